// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_product.hpp"

#include "pmm/gemm/local_gemm.hpp"

#include <utility>
#include <vector>

namespace orthant::pmm {
namespace {

/// C := S B with `width` columns. No-op if C is empty.
template<class T>
void multiply(DefaultExec const& exec, runtime::Instruments& instruments, LocalSpmm<T> const& matrix,
              std::int64_t width, Vector<T> const& b, Vector<T> const& c) {
  auto const& csr = matrix.block().csr;
  if (csr.num_rows == 0 || width == 0) return;
  instruments.flops.sparse += 2 * csr.num_nonzeros() * width;
  matrix.apply(exec, {0, csr.num_rows}, as_matrix(b, csr.num_columns, width),
               as_matrix(c, csr.num_rows, width));
}

/// The weights by number r: first W_r of all relations, then the roots.
template<class T>
class Weights {
 public:
  Weights(RelationWeights const& shape, Range inputs, RelationParameters<T> const& parameters)
      : shape_(shape),
        inputs_(inputs),
        expanded_(as_matrix(parameters.expanded, shape.expanded().rows, shape.out)),
        roots_(as_matrix(parameters.roots, shape.roots().rows, shape.out)),
        biases_(as_matrix(parameters.biases, shape.biases().rows, shape.out)) {}

  /// This rank's rows.
  [[nodiscard]] Panel<T> operator()(std::int64_t r) const {
    auto const is_root = r >= shape_.num_relations;
    auto const first = (is_root ? r - shape_.num_relations : r) * shape_.in;
    return (is_root ? roots_ : expanded_).rows({first + inputs_.begin, first + inputs_.end});
  }
  /// The bias of weight r, which must be a root: a row of `biases`.
  [[nodiscard]] Panel<T> bias(std::int64_t r) const {
    return biases_.rows({r - shape_.num_relations, r - shape_.num_relations + 1});
  }
  [[nodiscard]] bool has_bias(std::int64_t r) const {
    return adds_biases(shape_, inputs_) && r >= shape_.num_relations;
  }

 private:
  RelationWeights shape_;
  Range inputs_;
  Panel<T> expanded_, roots_, biases_;
};

/// Calls visit(r, pairs, beta) for each weight with pairs. `beta`: 0 for the first weight of these pairs, then 1.
template<class T, class Visit>
void for_each_weight(RelationBlock<T> const& block, RelationWeights const& shape, Visit const& visit) {
  for (std::int64_t r = 0; r < shape.num_relations; ++r)
    if (block.pairs_of(r).size() > 0) visit(r, block.pairs_of(r), T{0});
  std::vector<T> beta(static_cast<std::size_t>(block.num_selves), T{0});
  for (std::int64_t i = 0; i < shape.num_roots; ++i)
    if (auto const pairs = block.pairs_of_root(i); pairs.size() > 0)
      visit(shape.num_relations + i, pairs,
            std::exchange(beta[static_cast<std::size_t>(block.roots[static_cast<std::size_t>(i)])], T{1}));
}

/// A column of ones.
template<class T>
Panel<T> ones_of(RelationBlock<T> const& block, Range pairs) {
  return Panel<T>(as_matrix(block.ones, block.num_self_pairs(), 1)).rows({0, pairs.size()});
}

std::int64_t num_gradients(RelationWeights const& shape) {
  std::int64_t count = 0;
  for (auto const& [rows, columns] : {shape.expanded(), shape.roots(), shape.biases()})
    count += rows * columns;
  return count;
}

LocalPass pass_of_zeros(std::int64_t bytes) {
  return {"relation_zeros", 0, bytes};
}

LocalProduct sparse(char const* formula, Form form, Placement const& left, std::int64_t m, std::int64_t n,
                    std::int64_t k, std::int64_t num_nonzeros) {
  auto product = dense_product(formula, form, m, n, k);
  product.left = left;
  product.is_sparse = true;
  product.num_nonzeros = num_nonzeros;
  return product;
}

} // namespace

template<class T>
void relation_product(DefaultExec const& exec, runtime::Instruments& instruments,
                      RelationBlock<T> const& block, RelationWeights const& shape, Range inputs,
                      Vector<T> const& f, RelationParameters<T> const& parameters,
                      RelationMemory<T> const& memory, Vector<T> const& p) {
  multiply(exec, instruments, block.means, inputs.size(), f, memory.means);
  Panel<T> const u = as_matrix(memory.means, block.num_pairs(), inputs.size());
  Panel<T> const z = as_matrix(memory.products, block.num_pairs(), shape.out);
  Weights<T> const w(shape, inputs, parameters);
  for_each_weight(block, shape, [&](std::int64_t r, Range pairs, T beta) {
    local_gemm<T>(exec, 1, Transpose::no, u.rows(pairs), Transpose::no, w(r), beta, z.rows(pairs));
    if (w.has_bias(r))
      local_gemm<T>(exec, 1, Transpose::no, ones_of(block, pairs), Transpose::no, w.bias(r), 1,
                    z.rows(pairs));
  });
  auto const sizes = sizes_of(block, inputs, shape.out);
  instruments.flops.dense += 2 * sizes.num_multiplied() * inputs.size() * shape.out;
  if (adds_biases(shape, inputs)) instruments.flops.dense += 2 * sizes.root_pairs * shape.out;
  multiply(exec, instruments, block.sums, shape.out, memory.products, p);
}

template<class T>
void relation_product_backward(DefaultExec const& exec, runtime::Instruments& instruments,
                               RelationBlock<T> const& block, RelationWeights const& shape, Range inputs,
                               Vector<T> const& p_gradient, RelationParameters<T> const& parameters,
                               RelationMemory<T> const& memory, RelationParameters<T> const& gradients,
                               Vector<T> const& f_gradient) {
  auto const num_pairs = block.num_pairs();
  auto const out = shape.out;
  multiply(exec, instruments, block.sums_back, out, p_gradient, memory.products);
  Panel<T> const u = as_matrix(memory.means, num_pairs, inputs.size());
  Panel<T> const dz = as_matrix(memory.products, num_pairs, out);
  Weights<T> const w(shape, inputs, parameters), dw(shape, inputs, gradients);
  auto const needs_input_gradient = f_gradient.extent(0) > 0;
  // All gradients are first set to 0: those of rows of other ranks, and of relations without pairs, are not written below.
  instruments.passes.add(pass_of_zeros(num_gradients(shape) * static_cast<std::int64_t>(sizeof(T))));
  // Pointers: nvcc 13 does not compile a list of members such as {a.b, a.c} in a template.
  for (auto const* const gradient : {&gradients.expanded, &gradients.roots, &gradients.biases})
    if (gradient->extent(0) > 0) Kokkos::deep_copy(exec, *gradient, T{0});
  for_each_weight(block, shape, [&](std::int64_t r, Range pairs, T beta) {
    if (inputs.size() == 0) return;
    local_gemm<T>(exec, 1, Transpose::yes, u.rows(pairs), Transpose::no, dz.rows(pairs), 0, dw(r));
    if (w.has_bias(r))
      local_gemm<T>(exec, 1, Transpose::yes, ones_of(block, pairs), Transpose::no, dz.rows(pairs), 0,
                    dw.bias(r));
    if (!needs_input_gradient) return;
    Panel<T> const du = as_matrix(memory.means_gradient, num_pairs, inputs.size());
    local_gemm<T>(exec, 1, Transpose::no, dz.rows(pairs), Transpose::yes, w(r), beta, du.rows(pairs));
  });
  auto const sizes = sizes_of(block, inputs, out);
  auto const flops = 2 * sizes.num_multiplied() * inputs.size() * out;
  instruments.flops.dense += needs_input_gradient ? 2 * flops : flops;
  if (adds_biases(shape, inputs)) instruments.flops.dense += 2 * sizes.root_pairs * out;
  if (needs_input_gradient)
    multiply(exec, instruments, block.means_back, inputs.size(), memory.means_gradient, f_gradient);
}

void plan_relation_product(StepPlan& step, Placement const& adjacency, RelationSizes const& s,
                           RelationWeights const& shape) {
  auto const width = s.inputs.size();
  step.add_product(sparse("U = S F", Form::product, adjacency, s.pairs, width, s.columns, s.entries));
  step.add_product(dense_product("Z = U W", Form::product, s.num_multiplied(), s.out, width));
  if (adds_biases(shape, s.inputs))
    step.add_product(dense_product("Z = Z + 1 b", Form::product, s.root_pairs, s.out, 1));
  step.add_product(sparse("P = G Z", Form::product, adjacency, s.rows, s.out, s.pairs, s.pairs));
}

void plan_relation_product_backward(StepPlan& step, Placement const& adjacency, RelationSizes const& s,
                                    RelationWeights const& shape, bool needs_input_gradient) {
  auto const width = s.inputs.size();
  step.add_product(sparse("dZ = G^T dP", Form::right_grad, adjacency, s.pairs, s.out, s.rows, s.pairs));
  step.add_pass(pass_of_zeros(step.scalar_bytes(num_gradients(shape))));
  step.add_product(dense_product("dW = U^T dZ", Form::right_grad, width, s.out, s.num_multiplied()));
  if (adds_biases(shape, s.inputs))
    step.add_product(dense_product("db = 1^T dZ", Form::right_grad, 1, s.out, s.root_pairs));
  if (!needs_input_gradient) return;
  step.add_product(dense_product("dU = dZ W^T", Form::left_grad, s.num_multiplied(), width, s.out));
  step.add_product(sparse("dF = S^T dU", Form::right_grad, adjacency, s.columns, width, s.pairs, s.entries));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void relation_product(DefaultExec const&, runtime::Instruments&, RelationBlock<T> const&,         \
                                 RelationWeights const&, Range, Vector<T> const&,                            \
                                 RelationParameters<T> const&, RelationMemory<T> const&, Vector<T> const&);  \
  template void relation_product_backward(                                                                   \
      DefaultExec const&, runtime::Instruments&, RelationBlock<T> const&, RelationWeights const&, Range,     \
      Vector<T> const&, RelationParameters<T> const&, RelationMemory<T> const&,                              \
      RelationParameters<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm

// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_product.hpp"

#include "pmm/gemm/local_gemm.hpp"

#include <utility>
#include <vector>

namespace orthant::pmm {
namespace {

/// Index in the blocks of element (row, column) of W, or -1 if it is outside them.
struct BlockPlaces {
  std::int64_t in, out, num_blocks;
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t operator()(std::int64_t row, std::int64_t column) const {
    auto const width = out / num_blocks;
    auto const block = row % in / (in / num_blocks);
    return column / width == block ? row * width + column % width : -1;
  }
};

LocalPass pass_of_blocks(RelationWeights const& shape, std::int64_t number_bytes) {
  auto const numbers_of = [](Extents const& e) { return e.rows * e.columns; };
  return {"relation_blocks", numbers_of(shape.weight()) * number_bytes,
          numbers_of(shape.expanded()) * number_bytes};
}

/// The three products W = comp V, dV = comp^T dW and dcomp = dW V^T, with [R x in out] and [B x in out] matrices.
struct BasisMatrices {
  explicit BasisMatrices(RelationWeights const& shape)
      : relations(shape.num_relations),
        bases(shape.num_bases),
        size(shape.in * shape.out) {}
  std::int64_t relations, bases, size;
  [[nodiscard]] std::int64_t flops() const { return 2 * relations * bases * size; }
};

/// Calls body(index in W, index in the blocks or -1) for all elements of W, in kernels. Adds a pass to the ledger.
template<class T, class Body>
void for_each_element(DefaultExec const& exec, runtime::Instruments& instruments,
                      RelationWeights const& shape, Body const& body) {
  BlockPlaces const place{shape.in, shape.out, shape.num_blocks};
  auto const out = shape.out;
  instruments.passes.add(pass_of_blocks(shape, sizeof(T)));
  Kokkos::parallel_for(
      "orthant::pmm::relation_blocks",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, shape.num_relations * shape.in * out),
      KOKKOS_LAMBDA(std::int64_t i) { body(i, place(i / out, i % out)); });
}

} // namespace

LocalProduct dense_product(char const* formula, Form form, std::int64_t m, std::int64_t n, std::int64_t k) {
  auto const is_transposed = form == Form::right_grad;
  LocalProduct product;
  product.formula = formula;
  product.form = form;
  product.left = {{{}, {}}, {is_transposed ? k : m, is_transposed ? m : k}};
  product.m = m;
  product.n = n;
  product.k = k;
  return product;
}

template<class T>
void expand_weights(DefaultExec const& exec, runtime::Instruments& instruments, RelationWeights const& shape,
                    Vector<T> const& weight, Vector<T> const& comp, Vector<T> const& expanded) {
  if (shape.num_bases > 0) {
    BasisMatrices const s(shape);
    instruments.flops.dense += s.flops();
    return local_gemm<T>(exec, 1, Transpose::no, as_matrix(comp, s.relations, s.bases), Transpose::no,
                         as_matrix(weight, s.bases, s.size), 0, as_matrix(expanded, s.relations, s.size));
  }
  for_each_element<T>(
      exec, instruments, shape, KOKKOS_LAMBDA(std::int64_t i, std::int64_t in_blocks) {
        expanded(static_cast<std::size_t>(i)) =
            in_blocks < 0 ? T{0} : weight(static_cast<std::size_t>(in_blocks));
      });
}

template<class T>
void contract_gradient(DefaultExec const& exec, runtime::Instruments& instruments,
                       RelationWeights const& shape, Vector<T> const& gradient, Vector<T> const& weight,
                       Vector<T> const& comp, Vector<T> const& weight_gradient,
                       Vector<T> const& comp_gradient) {
  if (shape.num_bases > 0) {
    BasisMatrices const s(shape);
    auto const dw = as_matrix(gradient, s.relations, s.size);
    instruments.flops.dense += 2 * s.flops();
    local_gemm<T>(exec, 1, Transpose::yes, as_matrix(comp, s.relations, s.bases), Transpose::no, dw, 0,
                  as_matrix(weight_gradient, s.bases, s.size));
    return local_gemm<T>(exec, 1, Transpose::no, dw, Transpose::yes, as_matrix(weight, s.bases, s.size), 0,
                         as_matrix(comp_gradient, s.relations, s.bases));
  }
  for_each_element<T>(
      exec, instruments, shape, KOKKOS_LAMBDA(std::int64_t i, std::int64_t in_blocks) {
        if (in_blocks >= 0)
          weight_gradient(static_cast<std::size_t>(in_blocks)) = gradient(static_cast<std::size_t>(i));
      });
}

void plan_expand_weights(StepPlan& step, RelationWeights const& shape) {
  if (shape.is_full()) return;
  if (shape.num_blocks > 0) return step.add_pass(pass_of_blocks(shape, step.scalar_bytes(1)));
  BasisMatrices const s(shape);
  step.add_product(dense_product("W = a V", Form::product, s.relations, s.size, s.bases));
}

void plan_contract_gradient(StepPlan& step, RelationWeights const& shape) {
  if (shape.is_full()) return;
  if (shape.num_blocks > 0) return step.add_pass(pass_of_blocks(shape, step.scalar_bytes(1)));
  BasisMatrices const s(shape);
  step.add_product(dense_product("dV = a^T dW", Form::right_grad, s.bases, s.size, s.relations));
  step.add_product(dense_product("da = dW V^T", Form::left_grad, s.relations, s.bases, s.size));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void expand_weights(DefaultExec const&, runtime::Instruments&, RelationWeights const&,            \
                               Vector<T> const&, Vector<T> const&, Vector<T> const&);                        \
  template void contract_gradient(DefaultExec const&, runtime::Instruments&, RelationWeights const&,         \
                                  Vector<T> const&, Vector<T> const&, Vector<T> const&, Vector<T> const&,    \
                                  Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

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

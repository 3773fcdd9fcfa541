// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_product.hpp"

#include "pmm/gemm/local_gemm.hpp"

namespace orthant::pmm {
namespace {

/// C := S B with `width` columns, unless it is empty.
template<class T>
void multiply(DefaultExec const& exec, runtime::Instruments& instruments, LocalSpmm<T> const& matrix,
              std::int64_t width, Vector<T> const& b, Vector<T> const& c) {
  auto const& csr = matrix.block().csr;
  if (csr.num_rows == 0 || width == 0) return;
  instruments.flops.sparse += 2 * csr.num_nonzeros() * width;
  matrix.apply(exec, {0, csr.num_rows}, as_matrix(b, csr.num_columns, width),
               as_matrix(c, csr.num_rows, width));
}

/// This rank's rows of W_r.
Range rows_of_weight(RelationWeights const& shape, std::int64_t relation, Range inputs) {
  return {relation * shape.in + inputs.begin, relation * shape.in + inputs.end};
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
                      Vector<T> const& f, Vector<T> const& weight, RelationMemory<T> const& memory,
                      Vector<T> const& p) {
  multiply(exec, instruments, block.means, inputs.size(), f, memory.means);
  Panel<T> const u = as_matrix(memory.means, block.num_pairs(), inputs.size());
  Panel<T> const z = as_matrix(memory.products, block.num_pairs(), shape.out);
  Panel<T> const w = as_matrix(weight, shape.expanded().rows, shape.out);
  for (std::int64_t r = 0; r < shape.num_relations; ++r) {
    auto const pairs = block.pairs_of(r);
    if (pairs.size() == 0) continue;
    local_gemm<T>(exec, 1, Transpose::no, u.rows(pairs), Transpose::no,
                  w.rows(rows_of_weight(shape, r, inputs)), 0, z.rows(pairs));
  }
  instruments.flops.dense += 2 * block.num_pairs() * inputs.size() * shape.out;
  multiply(exec, instruments, block.sums, shape.out, memory.products, p);
}

template<class T>
void relation_product_backward(DefaultExec const& exec, runtime::Instruments& instruments,
                               RelationBlock<T> const& block, RelationWeights const& shape, Range inputs,
                               Vector<T> const& p_gradient, Vector<T> const& weight,
                               RelationMemory<T> const& memory, Vector<T> const& weight_gradient,
                               Vector<T> const& f_gradient) {
  auto const num_pairs = block.num_pairs();
  auto const& [rows_of_all, out] = shape.expanded();
  multiply(exec, instruments, block.sums_back, out, p_gradient, memory.products);
  Panel<T> const u = as_matrix(memory.means, num_pairs, inputs.size());
  Panel<T> const dz = as_matrix(memory.products, num_pairs, out);
  Panel<T> const w = as_matrix(weight, rows_of_all, out);
  Panel<T> const dw = as_matrix(weight_gradient, rows_of_all, out);
  auto const needs_input_gradient = f_gradient.extent(0) > 0;
  // Rows of other ranks, and relations without pairs, have the gradient 0.
  instruments.passes.add(pass_of_zeros(rows_of_all * out * static_cast<std::int64_t>(sizeof(T))));
  Kokkos::deep_copy(exec, weight_gradient, T{0});
  for (std::int64_t r = 0; r < shape.num_relations; ++r) {
    auto const pairs = block.pairs_of(r);
    if (pairs.size() == 0 || inputs.size() == 0) continue;
    auto const rows = rows_of_weight(shape, r, inputs);
    local_gemm<T>(exec, 1, Transpose::yes, u.rows(pairs), Transpose::no, dz.rows(pairs), 0, dw.rows(rows));
    if (!needs_input_gradient) continue;
    Panel<T> const du = as_matrix(memory.means_gradient, num_pairs, inputs.size());
    local_gemm<T>(exec, 1, Transpose::no, dz.rows(pairs), Transpose::yes, w.rows(rows), 0, du.rows(pairs));
  }
  auto const flops = 2 * num_pairs * inputs.size() * out;
  instruments.flops.dense += needs_input_gradient ? 2 * flops : flops;
  if (needs_input_gradient)
    multiply(exec, instruments, block.means_back, inputs.size(), memory.means_gradient, f_gradient);
}

void plan_relation_product(StepPlan& step, Placement const& adjacency, RelationSizes const& s) {
  auto const width = s.inputs.size();
  step.add_product(sparse("U = S F", Form::product, adjacency, s.pairs, width, s.columns, s.entries));
  step.add_product(dense_product("Z = U W", Form::product, s.pairs, s.out, width));
  step.add_product(sparse("P = G Z", Form::product, adjacency, s.rows, s.out, s.pairs, s.pairs));
}

void plan_relation_product_backward(StepPlan& step, Placement const& adjacency, RelationSizes const& s,
                                    RelationWeights const& shape, bool needs_input_gradient) {
  auto const width = s.inputs.size();
  auto const all = shape.expanded();
  step.add_product(sparse("dZ = G^T dP", Form::right_grad, adjacency, s.pairs, s.out, s.rows, s.pairs));
  step.add_pass(pass_of_zeros(step.scalar_bytes(all.rows * all.columns)));
  step.add_product(dense_product("dW = U^T dZ", Form::right_grad, width, s.out, s.pairs));
  if (!needs_input_gradient) return;
  step.add_product(dense_product("dU = dZ W^T", Form::left_grad, s.pairs, width, s.out));
  step.add_product(sparse("dF = S^T dU", Form::right_grad, adjacency, s.columns, width, s.pairs, s.entries));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void relation_product(DefaultExec const&, runtime::Instruments&, RelationBlock<T> const&,         \
                                 RelationWeights const&, Range, Vector<T> const&, Vector<T> const&,          \
                                 RelationMemory<T> const&, Vector<T> const&);                                \
  template void relation_product_backward(                                                                   \
      DefaultExec const&, runtime::Instruments&, RelationBlock<T> const&, RelationWeights const&, Range,     \
      Vector<T> const&, Vector<T> const&, RelationMemory<T> const&, Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm

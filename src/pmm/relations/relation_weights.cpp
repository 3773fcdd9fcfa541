// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_weights.hpp"

#include "pmm/gemm/local_gemm.hpp"
#include "runtime/observe/trace.hpp"

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

} // namespace orthant::pmm

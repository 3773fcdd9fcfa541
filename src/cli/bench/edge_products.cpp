// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/edge_products.hpp"

#include "models/plan/attention_step.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

/// Coefficients that are not dropped, and as good operands as any.
template<class T>
runtime::Vector<T> make_numbers(std::int64_t count) {
  auto const result = runtime::make_zeros<T>("orthant::cli::edge_operand", static_cast<std::size_t>(count));
  Kokkos::deep_copy(result, T{0.5});
  return result;
}

} // namespace

template<class T>
EdgeProducts<T>::EdgeProducts(pmm::ProcessGrid const& grid, models::GcnPlan const& plan,
                              models::OwnedAdjacency<T> const& adjacency)
    : block_(adjacency.edges->block) {
  std::int64_t width = 0;
  std::int64_t count = 0;
  for (auto const& layer : plan.layers) {
    models::AttentionSteps const steps(grid.shape(), grid.coordinates(), layer, adjacency.sizes,
                                       block_.num_edges());
    heads_.push_back(steps.heads);
    width = std::max(width, steps.heads.columns());
    count = std::max(count, steps.heads.count);
  }
  rows_ = make_numbers<T>(block_.num_rows * width);
  columns_ = make_numbers<T>(block_.num_columns * width);
  values_ = make_numbers<T>(block_.num_edges() * count);
  sums_ = make_numbers<T>(std::max(block_.num_rows, block_.num_columns) * width);
  dots_ = make_numbers<T>(block_.num_edges() * count);
}

template<class T>
pmm::Heads const& EdgeProducts<T>::heads_of(pmm::LocalProduct const& product) const {
  return heads_.at(static_cast<std::size_t>(product.layer));
}

template<class T>
void EdgeProducts<T>::multiply(runtime::DefaultExec const& exec, pmm::LocalProduct const& product) const {
  auto const& heads = heads_of(product);
  switch (product.form) {
  case pmm::Form::product:
    return edge_spmm(exec, block_, heads, {values_}, columns_, sums_);
  case pmm::Form::left_grad:
    return edge_dots(exec, block_, heads, rows_, columns_, dots_);
  case pmm::Form::right_grad:
    return edge_spmm_transposed(exec, block_, heads, {values_}, rows_, sums_);
  }
}

template<class T>
std::int64_t EdgeProducts<T>::bytes_of_values(pmm::LocalProduct const& product) const {
  return block_.num_edges() * heads_of(product).count * static_cast<std::int64_t>(sizeof(T));
}

template class EdgeProducts<float>;
template class EdgeProducts<double>;

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/edge_products.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

/// Operands as good as any.
template<class T>
runtime::Vector<T> make_numbers(std::int64_t count) {
  auto const result = runtime::make_zeros<T>("orthant::cli::edge_operand", static_cast<std::size_t>(count));
  Kokkos::deep_copy(result, T{0.5});
  return result;
}

} // namespace

template<class T>
EdgeProducts<T>::EdgeProducts(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
                              models::OwnedAdjacency<T> const& adjacency)
    : self_(MPI_COMM_SELF, "self"),
      workspace_(std::make_shared<pmm::Workspace<T>>()),
      block_(adjacency.edges->block) {
  std::int64_t width = 0;
  std::int64_t count = 0;
  std::int64_t num_gradients = 0;
  for (auto const& layer : plan.layers) {
    auto const& steps =
        steps_.emplace_back(grid.shape(), grid.coordinates(), layer, adjacency.sizes, block_.num_edges());
    width = std::max(width, steps.heads.columns());
    count = std::max(count, steps.heads.count);
    num_gradients = std::max(num_gradients, steps.num_coefficients());
    pmm::reserve_edge_softmax(*workspace_, block_.num_rows, steps.heads.count);
  }
  // A head has a column at least, so these are long enough for the ends of static scores, too.
  rows_ = make_numbers<T>(block_.num_rows * width);
  columns_ = make_numbers<T>(block_.num_columns * width);
  vectors_ = make_numbers<T>(width);
  coefficients_ = make_numbers<T>(block_.num_edges() * count);
  gradient_ = make_numbers<T>(num_gradients);
  sums_ = make_numbers<T>(std::max(block_.num_rows, block_.num_columns) * width);
  of_rows_ = make_numbers<T>(block_.num_rows * width);
  of_columns_ = make_numbers<T>(block_.num_columns * width);
  if (steps_.front().plan.is_dynamic()) terms_ = make_numbers<T>(block_.num_rows * width);
}

template<class T>
models::AttentionSteps const& EdgeProducts<T>::steps_of(pmm::LocalProduct const& product) const {
  return steps_.at(static_cast<std::size_t>(product.layer));
}

template<class T>
void EdgeProducts<T>::multiply(runtime::DefaultExec const& exec, pmm::LocalProduct const& product) {
  auto const& steps = steps_of(product);
  switch (product.form) {
  case pmm::Form::product:
    return sum_neighbours(exec, steps);
  case pmm::Form::left_grad:
    return find_gradients(exec, steps);
  case pmm::Form::right_grad:
    return edge_spmm_transposed(exec, block_, steps.heads, {coefficients_}, rows_, sums_);
  }
}

template<class T>
void EdgeProducts<T>::sum_neighbours(runtime::DefaultExec const& exec, models::AttentionSteps const& steps) {
  auto const& heads = steps.heads;
  if (steps.plan.is_dynamic())
    dynamic_scores(exec, passes_, block_, heads, dynamic_operands(), coefficients_);
  else
    static_scores(exec, passes_, block_, heads.count, rows_, columns_, coefficients_);
  edge_softmax(exec, self_, passes_, block_, heads.count, coefficients_, *workspace_);
  edge_spmm(exec, block_, heads, {coefficients_}, columns_, sums_);
}

template<class T>
void EdgeProducts<T>::find_gradients(runtime::DefaultExec const& exec, models::AttentionSteps const& steps) {
  auto const& heads = steps.heads;
  edge_dots(exec, block_, heads, sums_, columns_, gradient_);
  edge_softmax_backward(exec, self_, passes_, block_, heads.count, {coefficients_}, gradient_, *workspace_);
  if (steps.plan.is_dynamic())
    dynamic_scores_backward(exec, passes_, block_, heads, dynamic_operands(), gradient_,
                            {of_rows_, of_columns_, terms_});
  else
    static_scores_backward(exec, passes_, block_, heads.count, rows_, columns_, gradient_, of_rows_,
                           of_columns_);
}

template<class T>
std::string EdgeProducts<T>::formula_of(pmm::LocalProduct const& product) const {
  auto const is_dynamic = steps_of(product).plan.is_dynamic();
  switch (product.form) {
  case pmm::Form::product:
    return std::string("alpha = softmax(") + (is_dynamic ? "a leaky(L + R)" : "leaky(s + t)") + "), " +
           product.formula;
  case pmm::Form::left_grad:
    return product.formula + ", softmax', " + (is_dynamic ? "dL, dR" : "ds, dt");
  case pmm::Form::right_grad:
    break;
  }
  return product.formula;
}

template<class T>
std::int64_t EdgeProducts<T>::bytes_of_numbers(pmm::LocalProduct const& product) const {
  auto const& steps = steps_of(product);
  auto const has_scores = product.form != pmm::Form::right_grad;
  auto const width = steps.plan.is_dynamic() ? steps.heads.columns() : steps.heads.count;
  auto const ends = has_scores ? (block_.num_rows + block_.num_columns) * width : 0;
  return (steps.num_coefficients() + ends) * static_cast<std::int64_t>(sizeof(T));
}

template class EdgeProducts<float>;
template class EdgeProducts<double>;

} // namespace orthant::cli

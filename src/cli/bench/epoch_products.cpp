// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/epoch_products.hpp"

#include "pmm/kernels/rounding.hpp"
#include "pmm/matrix/dist_matrix.hpp"

#include <algorithm>
#include <type_traits>

namespace orthant::cli {
namespace {

using pmm::Form;
using pmm::Transpose;
using runtime::DefaultExec;
using runtime::Vector;

/// Operand with numbers between -1/2 and 1/2; no number is denormal, which would slow kernels down.
template<class T>
Vector<T> make_operand(std::int64_t count) {
  auto const result = runtime::make_zeros<T>("orthant::cli::operand", static_cast<std::size_t>(count));
  Kokkos::parallel_for(
      "orthant::cli::make_operand", Kokkos::RangePolicy<DefaultExec, std::int64_t>(0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        result(static_cast<std::size_t>(i)) = static_cast<T>(i * 7919 % 1009) / T{1009} - T{0.5};
      });
  return result;
}

/// True if a product has operands in this format.
bool have_format(std::vector<LocalProduct> const& products, runtime::Wire format) {
  return std::ranges::any_of(products, [=](LocalProduct const& p) { return p.operand_format == format; });
}

/// Number of elements of the largest operands, without sparse ones, which are stored elsewhere.
struct OperandSizes {
  std::int64_t left = 0;
  std::int64_t right = 0;
  std::int64_t result = 0;
};

OperandSizes largest_of(std::vector<LocalProduct> const& products) {
  OperandSizes sizes;
  for (auto const& p : products) {
    if (!p.is_sparse) sizes.left = std::max(sizes.left, p.m * p.k);
    sizes.right = std::max(sizes.right, p.k * p.n);
    sizes.result = std::max(sizes.result, p.m * p.n);
  }
  return sizes;
}

} // namespace

template<class T>
struct ProductOperands<T>::Panels {
  Transpose transpose_left, transpose_right;
  pmm::Panel<T> left, right, result;
};

template<class T>
ProductOperands<T>::ProductOperands(std::vector<LocalProduct> const& products) {
  auto const sizes = largest_of(products);
  left_ = make_operand<T>(sizes.left);
  right_ = make_operand<T>(sizes.right);
  result_ = make_operand<T>(sizes.result);
  if constexpr (std::is_same_v<T, float>) {
    if (have_format(products, runtime::Wire::bf16)) bf16_ = rounded<runtime::Bf16Number>();
    if (have_format(products, runtime::Wire::fp16)) fp16_ = rounded<runtime::Fp16Number>();
  }
}

template<class T>
template<class Number>
auto ProductOperands<T>::rounded() const -> Rounded<Number> {
  auto const round = [](Vector<T> const& numbers) {
    auto const result = runtime::make_zeros<Number>("orthant::cli::operand", numbers.extent(0));
    pmm::round_numbers(DefaultExec(), numbers, result);
    return result;
  };
  return {round(left_), round(right_), round(result_)};
}

template<class T>
std::int64_t ProductOperands<T>::num_bytes(std::vector<LocalProduct> const& products) {
  auto const sizes = largest_of(products);
  auto const has_rounded =
      have_format(products, runtime::Wire::bf16) || have_format(products, runtime::Wire::fp16);
  auto const bytes_per_number =
      static_cast<std::int64_t>(sizeof(T) + (has_rounded ? sizeof(runtime::Bf16Number) : 0));
  return (sizes.left + sizes.right + sizes.result) * bytes_per_number;
}

template<class T>
typename ProductOperands<T>::Panels ProductOperands<T>::panels_of(LocalProduct const& p) const {
  auto const is_left_transposed = p.form == Form::right_grad;
  auto const is_right_transposed = p.form == Form::left_grad;
  return {is_left_transposed ? Transpose::yes : Transpose::no,
          is_right_transposed ? Transpose::yes : Transpose::no,
          is_left_transposed ? pmm::as_matrix(left_, p.k, p.m) : pmm::as_matrix(left_, p.m, p.k),
          is_right_transposed ? pmm::as_matrix(right_, p.n, p.k) : pmm::as_matrix(right_, p.k, p.n),
          pmm::as_matrix(result_, p.m, p.n)};
}

template<class T>
template<class Work>
bool ProductOperands<T>::with_rounded(LocalProduct const& product, Work const& work) const {
  if constexpr (std::is_same_v<T, float>) {
    if (product.operand_format == runtime::Wire::bf16) work(bf16_);
    if (product.operand_format == runtime::Wire::fp16) work(fp16_);
    return product.operand_format != runtime::Wire::native;
  }
  return false;
}

template<class T>
template<class Number>
void ProductOperands<T>::multiply_rounded(DefaultExec const& exec, LocalProduct const& p,
                                          Rounded<Number> const& numbers) const {
  auto const transpose_left = p.form == Form::right_grad ? Transpose::yes : Transpose::no;
  auto const transpose_right = p.form == Form::left_grad ? Transpose::yes : Transpose::no;
  auto const operand = [](Vector<Number> const& from, Transpose transpose, std::int64_t m, std::int64_t n) {
    return pmm::Panel<Number>(transpose == Transpose::yes ? pmm::as_matrix(from, n, m)
                                                          : pmm::as_matrix(from, m, n));
  };
  auto const left = operand(numbers.left, transpose_left, p.m, p.k);
  auto const right = operand(numbers.right, transpose_right, p.k, p.n);
  if (p.form == Form::right_grad)
    pmm::local_gemm<Number, float>(exec, 1, transpose_left, left, transpose_right, right, 0,
                                   pmm::as_matrix(result_, p.m, p.n));
  else
    pmm::local_gemm<Number>(exec, 1, transpose_left, left, transpose_right, right, 0,
                            pmm::as_matrix(numbers.result, p.m, p.n));
}

template<class T>
void ProductOperands<T>::multiply(DefaultExec const& exec, LocalProduct const& product) const {
  if constexpr (std::is_same_v<T, float>)
    if (with_rounded(product, [&](auto const& numbers) { multiply_rounded(exec, product, numbers); })) return;
  auto const p = panels_of(product);
  pmm::local_gemm<T>(exec, 1, p.transpose_left, p.left, p.transpose_right, p.right, 0, p.result);
}

template<class T>
void ProductOperands<T>::multiply(DefaultExec const& exec, LocalProduct const& product,
                                  pmm::LocalSpmm<T> const& sparse) const {
  auto const apply = [&](auto const& right, auto const& result) {
    sparse.apply(exec, {0, product.m}, pmm::as_matrix(right, product.k, product.n),
                 pmm::as_matrix(result, product.m, product.n));
  };
  if constexpr (std::is_same_v<T, float>)
    if (with_rounded(product, [&](auto const& numbers) { apply(numbers.right, numbers.result); })) return;
  apply(right_, result_);
}

template<class T>
bool ProductOperands<T>::multiply_bare(std::string_view library, LocalProduct const& product) const {
  auto const p = panels_of(product);
  return bare_gemm<T>(library, p.transpose_left, p.left, p.transpose_right, p.right, p.result);
}

template<class T>
std::string_view ProductOperands<T>::library_of(LocalProduct const& product) const {
  auto const p = panels_of(product);
  return chosen_library<T>(p.transpose_left, p.transpose_right, {product.m, product.n, product.k});
}

template class ProductOperands<float>;
template class ProductOperands<double>;

namespace {

/// Operand with arbitrary values.
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
  // These arrays also hold the vertex terms of static scores, for which they are long enough because a head has at least one column.
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

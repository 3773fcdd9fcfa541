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

/// Numbers between -1/2 and 1/2: no kernel is slowed by denormals.
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

template<class Number>
Vector<Number> rounded(Vector<float> const& numbers) {
  auto const result = runtime::make_zeros<Number>("orthant::cli::operand", numbers.extent(0));
  pmm::round_numbers(DefaultExec(), numbers, result);
  return result;
}

/// Whether the operands of a sparse product are in that format.
bool have_format(std::vector<LocalProduct> const& products, runtime::Wire format) {
  return std::ranges::any_of(
      products, [=](LocalProduct const& p) { return p.is_sparse && p.operand_format == format; });
}

/// Numbers of the largest operands; sparse ones lie elsewhere.
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
    if (have_format(products, runtime::Wire::bf16)) right_bf16_ = rounded<runtime::Bf16Number>(right_);
    if (have_format(products, runtime::Wire::fp16)) right_fp16_ = rounded<runtime::Fp16Number>(right_);
  }
}

template<class T>
std::int64_t ProductOperands<T>::num_bytes(std::vector<LocalProduct> const& products) {
  auto const sizes = largest_of(products);
  auto const num_rounded =
      have_format(products, runtime::Wire::bf16) || have_format(products, runtime::Wire::fp16) ? sizes.right
                                                                                               : 0;
  return (sizes.left + sizes.right + sizes.result) * static_cast<std::int64_t>(sizeof(T)) +
         num_rounded * static_cast<std::int64_t>(sizeof(runtime::Bf16Number));
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
void ProductOperands<T>::multiply(DefaultExec const& exec, LocalProduct const& product) const {
  auto const p = panels_of(product);
  pmm::local_gemm<T>(exec, 1, p.transpose_left, p.left, p.transpose_right, p.right, 0, p.result);
}

template<class T>
void ProductOperands<T>::multiply(DefaultExec const& exec, LocalProduct const& product,
                                  pmm::LocalSpmm<T> const& sparse) const {
  auto const apply = [&](auto const& right) {
    sparse.apply(exec, {0, product.m}, pmm::as_matrix(right, product.k, product.n),
                 pmm::as_matrix(result_, product.m, product.n));
  };
  if constexpr (std::is_same_v<T, float>) {
    if (product.operand_format == runtime::Wire::bf16) return apply(right_bf16_);
    if (product.operand_format == runtime::Wire::fp16) return apply(right_fp16_);
  }
  apply(right_);
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

} // namespace orthant::cli

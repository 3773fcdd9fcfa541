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

/// Whether operands of a product are in that format.
bool have_format(std::vector<LocalProduct> const& products, runtime::Wire format) {
  return std::ranges::any_of(products, [=](LocalProduct const& p) { return p.operand_format == format; });
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

} // namespace orthant::cli

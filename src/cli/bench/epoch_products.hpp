#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The local products of an epoch (models/plan/gcn_step.hpp lists them) by themselves, without the communication
// around them.

#include "cli/machine/bare_gemm.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <vector>

namespace orthant::cli {

using pmm::LocalProduct;

/// Operands and result of any of some products, which use the same memory in turn. Products of 16-bit numbers leave
/// such numbers, but gradients of weights.
template<class T>
class ProductOperands {
 public:
  explicit ProductOperands(std::vector<LocalProduct> const& products);
  /// What they take.
  [[nodiscard]] static std::int64_t num_bytes(std::vector<LocalProduct> const& products);

  /// As the trainer does. Enqueues on exec.
  void multiply(runtime::DefaultExec const& exec, LocalProduct const& product) const;
  void multiply(runtime::DefaultExec const& exec, LocalProduct const& product,
                pmm::LocalSpmm<T> const& sparse) const;
  /// The dense product through one of bare_libraries() alone; false if it does not have it.
  bool multiply_bare(std::string_view library, LocalProduct const& product) const;
  /// The name of the library that multiply() gives the dense product to.
  [[nodiscard]] std::string_view library_of(LocalProduct const& product) const;

 private:
  struct Panels;
  [[nodiscard]] Panels panels_of(LocalProduct const& product) const;

  /// Rounded operands, and results, if there are products in that format.
  template<class Number>
  struct Rounded {
    runtime::Vector<Number> left, right, result;
  };
  template<class Number>
  [[nodiscard]] Rounded<Number> rounded() const;
  template<class Number>
  void multiply_rounded(runtime::DefaultExec const& exec, LocalProduct const& product,
                        Rounded<Number> const& numbers) const;
  /// work(Rounded) for a product of 16-bit numbers; false for others.
  template<class Work>
  bool with_rounded(LocalProduct const& product, Work const& work) const;

  runtime::Vector<T> left_, right_, result_;
  Rounded<runtime::Bf16Number> bf16_;
  Rounded<runtime::Fp16Number> fp16_;
};

extern template class ProductOperands<float>;
extern template class ProductOperands<double>;

} // namespace orthant::cli

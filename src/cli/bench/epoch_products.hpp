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

/// Operands and result of any of some products, which use the same memory in turn.
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

  runtime::Vector<T> left_, right_, result_;
  // right_, if there are sparse products with operands in that format
  runtime::Vector<runtime::Bf16Number> right_bf16_;
  runtime::Vector<runtime::Fp16Number> right_fp16_;
};

extern template class ProductOperands<float>;
extern template class ProductOperands<double>;

} // namespace orthant::cli

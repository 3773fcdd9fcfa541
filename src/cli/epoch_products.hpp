#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The products that a rank computes by itself in one epoch of full-graph training, in their order, as
// models/gcn_layer.hpp and models/gcn_linear.hpp list them: shapes from the model's plan, without the
// communication around them.

#include "cli/bare_gemm.hpp"
#include "models/gcn_plan.hpp"
#include "pmm/local_spmm.hpp"
#include "pmm/pmm.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

enum class LeftOperand : std::uint8_t { dense, adjacency, sparse_features };

/// C [m x n], summed over k. `left`, as it is stored: [m x k], or [k x m] for Form::right_grad.
struct LocalProduct {
  std::int64_t layer = 0; // -1: the input projection; the number of layers: the head
  std::string formula;
  pmm::Form form{};
  LeftOperand left{};
  pmm::Placement left_placement;
  bool is_even = true; // parity of the adjacency
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  [[nodiscard]] bool is_dense() const { return left == LeftOperand::dense; }
  [[nodiscard]] double dense_flops() const {
    return 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
  }
};

/// What decides which products an epoch has, besides the plan.
struct EpochTraits {
  bool has_sparse_features = false;
  bool trains_features = false;
  bool keeps_first_aggregate = false; // A^ F0 of an earlier epoch
};

/// Of this rank.
[[nodiscard]] std::vector<LocalProduct>
products_of_epoch(pmm::ProcessGrid const& grid, models::GcnPlan const& plan, EpochTraits const& traits);

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
  /// The dense product through the library alone.
  void multiply_bare(LocalProduct const& product) const;

 private:
  struct Panels;
  [[nodiscard]] Panels panels_of(LocalProduct const& product) const;

  runtime::Vector<T> left_, right_, result_;
};

extern template class ProductOperands<float>;
extern template class ProductOperands<double>;

} // namespace orthant::cli

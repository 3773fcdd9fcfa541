#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm (Ba, Kiros & Hinton, arXiv 1607.06450: pmm/token_rows/row_norm.hpp) and BatchNorm (batch_norm.hpp) of a layer's
// output Z[r,c] before its activation, with scale and shift per column. LayerNorm sums over the columns of a row, BatchNorm
// over all rows of the graph or batch.
//
// In evaluation BatchNorm uses running statistics m' and v'. A training step moves them by a share of 0.1 towards the mean of
// the statistics of its batches (one on the full graph), with n - 1 in place of n in v, as in PyTorch. Running statistics are
// stored like parameters, and the statistics of a step in place of their gradients, so sums of gradients over groups and
// batches also sum the statistics.

#include "models/layers/batch_norm.hpp"
#include "models/parameters/network.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "runtime/arrays/allocation.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace orthant::models {

// Names of the norms of hidden layers.

/// Norm of a hidden layer's output before its activation: none, RMSNorm (layers/rms_norm.hpp), LayerNorm or BatchNorm.
enum class Norm : std::uint8_t { none, rms, layer, batch };

/// Accepts "none", "rms", "layer" or "batch". Throws UserError for other words.
[[nodiscard]] Norm parse_norm(std::string_view word);
[[nodiscard]] std::string_view name_of(Norm norm);

/// Whether the norm subtracts means, and therefore has a shift.
[[nodiscard]] constexpr bool is_centered(Norm norm) {
  return norm == Norm::layer || norm == Norm::batch;
}

/// Number added to a variance, and weight of a step's statistics in the running ones. Both as in PyTorch.
inline constexpr double centered_norm_epsilon = 1e-5;
inline constexpr double running_momentum = 0.1;

/// Parameters of LayerNorm and BatchNorm except the scale. Copies share memory.
template<class T>
struct CenteredNormParameters {
  pmm::DistVector<T> shift, shift_gradient;
  // BatchNorm only: running statistics, and statistics of the last batch.
  pmm::DistVector<T> mean, mean_of_batch;
  pmm::DistVector<T> variance, variance_of_batch;
};

/// Arguments for the construction of a CenteredNorm.
template<class T>
struct CenteredNormParts {
  Norm kind = Norm::layer;
  pmm::DistVector<T> scale, scale_gradient;
  CenteredNormParameters<T> parameters;
  bool has_partial_gradients = false; // gradients are summed over the group elsewhere
};

/// Memory of the norm of one layer.
template<class T>
struct CenteredNormMemory {
  runtime::GrowingVector<T> mean{"orthant::models::norm_mean"};
  runtime::GrowingVector<T> inverse_deviation{"orthant::models::norm_inverse_deviation"};
};

/// Length of the borrowed `sums` of a CenteredNorm if this rank has `block` of Z.
[[nodiscard]] std::int64_t num_centered_sums(Norm kind, pmm::Block const& block);
/// Reserves space for partial sums of BatchNorm; LayerNorm needs reserve_column_sums(). `Work`: a Workspace or a WorkspacePlan. The
/// space is used only within each call.
template<class Work>
void reserve_centered_norm(Work& work, Norm kind, pmm::Block const& block) {
  if (kind == Norm::batch)
    work.reserve(pmm::Slot::sums, num_batch_norm_sums(block.rows.size(), block.columns.size()));
}
/// Lists the arrays of CenteredNormMemory.
void plan_centered_norm_arrays(pmm::StepPlan& step, Norm kind, pmm::Placement const& z);

template<class T>
class CenteredNorm {
 public:
  /// Norm of `z`, which must be replicated over its third axis and must stay in the same memory. `sums` [num_centered_sums()] is borrowed
  /// memory, used only within each call. Not collective.
  CenteredNorm(pmm::DistMatrix<T> const& z, CenteredNormParts<T> parts,
               std::shared_ptr<pmm::Workspace<T>> workspace, runtime::Vector<T> sums,
               CenteredNormMemory<T>& memory);

  /// y := norm(z). y must have the placement of z, but separate memory. Keeps the state for the backward pass. In training BatchNorm
  /// also stores its statistics. Collective over the column axis (LayerNorm) or the row axis (BatchNorm in training). Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, Pass pass, pmm::DistMatrix<T> const& y) const;
  /// y := the result of the last forward(), recomputed from z. Local. Enqueues on exec.
  void restore(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& y) const;
  /// gradient holds dy on entry and dz on return. Also computes the gradients of scale and shift. Call it after forward() in training.
  /// Collective over column and row axis. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const;

 private:
  [[nodiscard]] bool is_batch_norm() const { return parts_.kind == Norm::batch; }
  [[nodiscard]] pmm::RowNormSettings row_settings() const;
  [[nodiscard]] pmm::RowParts row_parts() const;
  [[nodiscard]] BatchNormState<T> batch_state() const { return {mean_, inverse_deviation_}; }
  void reduce_row_sums(runtime::DefaultExec const& exec) const;
  void backward_of_layer(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const;
  void backward_of_batch(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const;

  pmm::DistMatrix<T> z_;
  CenteredNormParts<T> parts_;
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  runtime::Vector<T> sums_, mean_, inverse_deviation_;
};

/// List forward(), restore() and backward() for a z with this placement.
void plan_centered_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, Pass pass);
void plan_restore_centered_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z);
void plan_centered_norm_backward(pmm::StepPlan& step, Norm kind, pmm::Placement const& z,
                                 bool has_partial_gradients);

extern template class CenteredNorm<float>;
extern template class CenteredNorm<double>;

} // namespace orthant::models

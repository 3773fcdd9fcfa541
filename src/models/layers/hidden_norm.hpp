#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Norms of a layer's output Z[r,c] before its activation, in passes of their own: LayerNorm (Ba, Kiros & Hinton, arXiv 1607.06450), RMSNorm
// (both: pmm/token_rows/row_norm.hpp) and BatchNorm (batch_norm.hpp), with a scale, and except for RMSNorm a shift, per column. LayerNorm
// and RMSNorm sum over the columns of a row, BatchNorm over all rows of the graph or batch. RMSNorm with ReLU is one pass instead
// (rms_norm.hpp).
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

/// Arguments for the construction of a HiddenNorm. RMSNorm has no `parameters`.
template<class T>
struct HiddenNormParts {
  Norm kind = Norm::layer;
  pmm::DistVector<T> scale, scale_gradient;
  CenteredNormParameters<T> parameters;
  bool has_partial_gradients = false; // gradients are summed over the group elsewhere
};

/// Memory of the norm of one layer.
template<class T>
struct HiddenNormMemory {
  runtime::GrowingVector<T> mean{"orthant::models::norm_mean"};
  runtime::GrowingVector<T> inverse_deviation{"orthant::models::norm_inverse_deviation"};
};

/// Length of the borrowed `sums` of a HiddenNorm if this rank has `block` of Z.
[[nodiscard]] std::int64_t num_norm_sums(Norm kind, pmm::Block const& block);
/// Reserves space for partial sums of BatchNorm; the other norms need reserve_column_sums(). `Work`: a Workspace or a WorkspacePlan. The
/// space is used only within each call.
template<class Work>
void reserve_norm(Work& work, Norm kind, pmm::Block const& block) {
  if (kind == Norm::batch)
    work.reserve(pmm::Slot::sums, num_batch_norm_sums(block.rows.size(), block.columns.size()));
}
/// Lists the arrays of HiddenNormMemory.
void plan_norm_arrays(pmm::StepPlan& step, Norm kind, pmm::Placement const& z);

template<class T>
class HiddenNorm {
 public:
  using Sum = runtime::SumOf<T>;

  /// Norm of `z`, which must be replicated over its third axis and must stay in the same memory. `sums` [num_norm_sums()] is borrowed
  /// memory, used only within each call. Not collective.
  HiddenNorm(pmm::DistMatrix<T> const& z, HiddenNormParts<Sum> parts,
             std::shared_ptr<pmm::Workspace<Sum>> workspace, runtime::Vector<Sum> sums,
             HiddenNormMemory<Sum>& memory);

  /// y := norm(z). y must have the placement of z, but separate memory. Keeps the state for the backward pass. In training BatchNorm
  /// also stores its statistics. Collective over the column axis (LayerNorm, RMSNorm) or the row axis (BatchNorm in training). Enqueues on exec.
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
  [[nodiscard]] BatchNormState<Sum> batch_state() const { return {mean_, inverse_deviation_}; }
  void reduce_row_sums(runtime::DefaultExec const& exec) const;
  void backward_of_rows(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const;
  void backward_of_batch(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const;

  pmm::DistMatrix<T> z_;
  HiddenNormParts<Sum> parts_;
  std::shared_ptr<pmm::Workspace<Sum>> workspace_;
  runtime::Vector<Sum> sums_, mean_, inverse_deviation_;
};

/// List forward(), restore() and backward() for a z with this placement and format of elements.
void plan_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, Pass pass, runtime::Wire format);
void plan_restore_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, runtime::Wire format);
void plan_norm_backward(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, bool has_partial_gradients,
                        runtime::Wire format);

extern template class HiddenNorm<float>;
extern template class HiddenNorm<double>;
extern template class HiddenNorm<runtime::Bf16Number>;
extern template class HiddenNorm<runtime::Fp16Number>;

} // namespace orthant::models

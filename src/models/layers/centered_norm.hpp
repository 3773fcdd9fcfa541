#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm (Ba, Kiros & Hinton, arXiv 1607.06450: pmm/token_rows/row_norm.hpp) and BatchNorm (batch_norm.hpp) of a layer's output Z[r,c]
// before its activation, with scale and shift per column. LayerNorm's sums run over the columns of a row, BatchNorm's over all rows of
// the graph, or of the batch in which Z is.
//
// BatchNorm evaluates by running statistics m' and v', which a training step moves by a share of 0.1 towards the mean of the statistics of
// its batches (on the full graph there is one), v with n - 1 in place of n, as in PyTorch. They lie where parameters do, and what they
// move towards lies in the place of their gradients, so that gradients' sums over groups and batches serve both.

#include "models/layers/batch_norm.hpp"
#include "models/parameters/network.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "runtime/arrays/allocation.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace orthant::models {

// The norms of hidden layers by name.

/// What normalises a hidden layer's output before its activation: nothing, RMSNorm (layers/rms_norm.hpp), LayerNorm or BatchNorm
/// (centered_norm.hpp).
enum class Norm : std::uint8_t { none, rms, layer, batch };

/// "none", "rms", "layer" or "batch". Throws UserError for another word.
[[nodiscard]] Norm parse_norm(std::string_view word);
[[nodiscard]] std::string_view name_of(Norm norm);

/// Whether it subtracts means, and so has a shift.
[[nodiscard]] constexpr bool is_centered(Norm norm) {
  return norm == Norm::layer || norm == Norm::batch;
}

/// What LayerNorm and BatchNorm add to a variance, and the share of a step's statistics in the running ones: those of PyTorch.
inline constexpr double centered_norm_epsilon = 1e-5;
inline constexpr double running_momentum = 0.1;

/// Beside the scale. A copy shares the numbers.
template<class T>
struct CenteredNormParameters {
  pmm::DistVector<T> shift, shift_gradient;
  // Of BatchNorm: running statistics, and those of the last batch.
  pmm::DistVector<T> mean, mean_of_batch;
  pmm::DistVector<T> variance, variance_of_batch;
};

/// What such a norm is made with.
template<class T>
struct CenteredNormParts {
  Norm kind = Norm::layer;
  pmm::DistVector<T> scale, scale_gradient;
  CenteredNormParameters<T> parameters;
  bool has_partial_gradients = false; // addends, which somebody else sums over the group
};

/// Memory that the norm of one layer has to itself.
template<class T>
struct CenteredNormMemory {
  runtime::GrowingVector<T> mean{"orthant::models::norm_mean"};
  runtime::GrowingVector<T> inverse_deviation{"orthant::models::norm_inverse_deviation"};
};

/// Numbers of sums that are lent, of a Z of which this rank has `block`.
[[nodiscard]] std::int64_t num_centered_sums(Norm kind, pmm::Block const& block);
/// Room for partial sums; those of LayerNorm are reserve_column_sums(). `Work`: a Workspace or a WorkspacePlan, which is used within each call only.
template<class Work>
void reserve_centered_norm(Work& work, Norm kind, pmm::Block const& block) {
  if (kind == Norm::batch)
    work.reserve(pmm::Slot::sums, num_batch_norm_sums(block.rows.size(), block.columns.size()));
}
/// Lists CenteredNormMemory.
void plan_centered_norm_arrays(pmm::StepPlan& step, Norm kind, pmm::Placement const& z);

template<class T>
class CenteredNorm {
 public:
  /// Of `z`, replicated over its third axis, whose memory stays where it is. `sums` [num_centered_sums()] is lent, and used within each
  /// call only. Not collective.
  CenteredNorm(pmm::DistMatrix<T> const& z, CenteredNormParts<T> parts,
               std::shared_ptr<pmm::Workspace<T>> workspace, runtime::Vector<T> sums,
               CenteredNormMemory<T>& memory);

  /// y := norm(z), which lies as z, and not in its memory; keeps what the backward pass needs, and leaves statistics of a training pass of
  /// BatchNorm. Collective over the column axis (LayerNorm) or the row axis (BatchNorm in training). Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, Pass pass, pmm::DistMatrix<T> const& y) const;
  /// y := what the last forward() made of z. Local.
  void restore(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& y) const;
  /// dz in place of dy, and the gradients of scale and shift. After forward() in training. Collective over column and row axis.
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

/// List forward(), restore() and backward(), for a z of that placement.
void plan_centered_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, Pass pass);
void plan_restore_centered_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z);
void plan_centered_norm_backward(pmm::StepPlan& step, Norm kind, pmm::Placement const& z,
                                 bool has_partial_gradients);

extern template class CenteredNorm<float>;
extern template class CenteredNorm<double>;

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Losses of logits[r,c] and counts of correct predictions. The classes are split over axis c; over the third
// axis the logits are replicated or row-sharded.
//
// Softmax cross-entropy of row i with label y, m_i = max_j z_ij, s_i = sum_j exp(z_ij - m_i):
//   loss_i = log s_i - (z_iy - m_i)          dz_ij = (exp(z_ij - m_i) / s_i - [j = y]) / n
// The max, then {s, z_y - m} packed, are reduced over the class axis; over the row axis go a few sums per
// group. With label smoothing e, C classes and q_ij = (1 - e) [j = y] + e / C (Szegedy et al., arXiv 1512.00567,
// section 7, as PyTorch's CrossEntropyLoss has it):
//   loss_i = log s_i - sum_j q_ij (z_ij - m_i)          dz_ij = (exp(z_ij - m_i) / s_i - q_ij) / n
//
// Binary cross-entropy with logits, y in {0, 1} an entry, C classes:
//   loss_i = 1/C sum_j max(z, 0) - z y + log(1 + exp(-|z|))          dz_ij = (sigmoid(z) - y) / (n C)
// An unknown entry (-1) counts nothing, neither loss nor gradient.
//
// Every row belongs to one group or to none. n is the global number of rows of the group that have a label,
// and the loss of the group is the mean over those. Group 0 carries the loss: its rows alone have a gradient.
// The others are only scored. What a group stands for is for the caller to say. A mask is one group. Sums over
// rows are in double. Source: Plexus (arXiv 2505.04083), section 3.2; the reductions are packed here.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/collectives.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace orthant::pmm::detail {

// The passes of a loss and its scores over a rank's block of the logits, as they are listed and as they are counted.

class LossPasses {
 public:
  LossPasses(Block const& logits, std::int64_t scalar_bytes)
      : num_rows_(logits.stored_rows.size()),
        num_logits_(logits.num_stored),
        logits_(num_logits_ * scalar_bytes),
        groups_(num_rows_ * std::int64_t{sizeof(std::int8_t)}),
        classes_(num_rows_ * std::int64_t{sizeof(std::int32_t)}),
        indicator_(num_logits_ * std::int64_t{sizeof(std::int8_t)}),
        maxima_(num_rows_ * scalar_bytes),
        sums_(2 * num_rows_ * scalar_bytes),                                          // and z_iy - m_i
        arg_maxima_(num_rows_ * std::int64_t{sizeof(runtime::ValueIndex<double>)}) {} // of float as long

  /// maxima(), sums() and gradient() at once, where a rank has all classes of its rows.
  [[nodiscard]] LocalPass softmax(bool has_gradient) const {
    return {.name = "softmax",
            .bytes_read = logits_ + (has_gradient ? groups_ : 0) + classes_,
            .bytes_written = sums_ + (has_gradient ? logits_ : 0),
            .exponentials = num_logits_,
            .row_sums = 2 * num_rows_};
  }
  /// A maximum of a row takes what a sum does.
  [[nodiscard]] LocalPass maxima() const {
    return {
        .name = "find_row_maxima", .bytes_read = logits_, .bytes_written = maxima_, .row_sums = num_rows_};
  }
  [[nodiscard]] LocalPass sums() const {
    return {.name = "sum_exponentials",
            .bytes_read = logits_ + maxima_ + classes_,
            .bytes_written = sums_,
            .exponentials = num_logits_,
            .row_sums = num_rows_};
  }
  /// On host processors sums() leaves the exponentials; devices take them again, behind the bytes.
  [[nodiscard]] LocalPass gradient() const {
    return {"softmax_gradient", logits_ + maxima_ + sums_ + groups_ + classes_, logits_};
  }
  /// Of the finished rows: a logarithm each.
  [[nodiscard]] LocalPass softmax_loss() const {
    return {.name = "softmax_loss", .bytes_read = groups_ + classes_ + sums_, .exponentials = num_rows_};
  }
  [[nodiscard]] LocalPass arg_maxima() const {
    return {.name = "find_row_arg_maxima",
            .bytes_read = logits_,
            .bytes_written = arg_maxima_,
            .row_sums = num_rows_};
  }
  [[nodiscard]] LocalPass count_classes() const {
    return {"count_classes", groups_ + classes_ + arg_maxima_, 0};
  }
  [[nodiscard]] LocalPass score_softmax() const {
    return {.name = "score_softmax",
            .bytes_read = groups_ + classes_ + sums_ + arg_maxima_,
            .exponentials = num_rows_};
  }

  /// An exponential and a logarithm of each number.
  [[nodiscard]] LocalPass binary_loss() const {
    return {.name = "binary_loss_and_gradient",
            .bytes_read = logits_ + groups_ + indicator_,
            .bytes_written = logits_,
            .exponentials = 2 * num_logits_};
  }
  [[nodiscard]] LocalPass count_entries() const {
    return {"count_entries", logits_ + groups_ + indicator_, 0};
  }
  [[nodiscard]] LocalPass score_binary() const {
    return {.name = "score_binary",
            .bytes_read = logits_ + groups_ + indicator_,
            .exponentials = 2 * num_logits_};
  }

 private:
  std::int64_t num_rows_, num_logits_;
  std::int64_t logits_, groups_, classes_, indicator_, maxima_, sums_, arg_maxima_; // bytes
};

} // namespace orthant::pmm::detail

namespace orthant::pmm {

inline constexpr int max_row_groups = 3; // as many as a kernel sums at once
inline constexpr int loss_row_group = 0;
inline constexpr std::int8_t no_row_group = -1;

/// What the rows of this rank's logits, its stored_rows, should be. Never written.
struct RowTargets {
  Vector<std::int8_t> groups;             // [rows] 0 .. number of groups - 1, or no_row_group
  Vector<std::int32_t> classes;           // [rows] global class, -1 = no label; single label
  runtime::Matrix<std::int8_t> indicator; // [rows x classes of the block] 1, 0, -1 = unknown; multi-label
  Vector<double> weights{};               // [rows] what the loss of a row counts; empty: 1. Of batches only
};

/// The same rows in host memory.
struct HostTargets {
  std::span<std::int8_t const> groups;
  std::span<std::int32_t const> classes;
  std::span<double const> weights{};
};

enum class LossKind : std::uint8_t { softmax, binary };

/// q_ij = of_label [j = y] + of_classes.
template<class T>
struct TargetShares {
  T of_label = 1;
  T of_classes = 0;
};

/// Lists the passes and the collectives of RowLoss::loss_and_gradient, and of RowLoss::evaluate. `counts_rows`: the
/// rows of a batch are counted over the ranks together with its loss.
void plan_loss(StepPlan& step, Placement const& logits, LossKind kind, bool counts_rows = false);
void plan_scores(StepPlan& step, Placement const& logits, LossKind kind, int num_groups = 1);

/// Lists the arrays of a RowLoss.
void plan_loss_arrays(StepPlan& step, Placement const& logits, LossKind kind);

/// The loss of a group of rows, and its correct predictions.
struct GroupScore {
  std::int64_t num_counted = 0; // labelled rows of the group; multi-label: known entries
  std::int64_t num_correct = 0; // arg-max is the label (ties: the smallest class); multi-label: sign is right
  double loss = 0;              // mean
  double macro_f1 = 0;          // class_counts.hpp says what these are
  double micro_f1 = 0;
  std::int64_t num_most_frequent = 0;  // that are correct if the most frequent answer is always given
  std::int64_t num_most_predicted = 0; // single label: rows that the most frequent prediction is given to
};

/// Scratch is allocated at construction and if rebind() finds more rows than before. Steps allocate nothing;
/// evaluate() makes its counts, 32 bytes per group and class. Collective functions: over the logits' row and class axes (and the third if row-sharded), all
/// ranks in the same order.
template<class T>
class RowLoss {
 public:
  /// For logits of that placement, not flat-sharded, and 1 to max_row_groups groups of rows (Error otherwise).
  /// No targets yet. `grid` must outlive it.
  RowLoss(ProcessGrid const& grid, Placement const& logits, LossKind kind, int num_groups = 1);

  /// Takes logits of another placement, such as the next batch's, of the same classes. No targets yet.
  /// Scratch grows only. Not collective.
  void rebind(Placement const& logits);

  /// Sets and counts the targets; those of another batch replace them. Throws Error, the same on all ranks,
  /// if their lengths are not those of the logits, or if a group or a class is out of range. Collective over
  /// the grid's group. Waits for kernels that check and count.
  void set_targets(RowTargets const& targets);
  /// Sets the targets of one batch of many, whose rows this rank also has in host memory, and checks and
  /// counts them there. Not collective, and waits for nothing: num_rows() is not known, and the labelled rows
  /// of group 0, each with its weight, are counted with the loss. Throws Error, on this rank alone, as set_targets() does.
  void set_batch_targets(RowTargets const& targets, HostTargets const& rows);

  /// From now on loss_and_gradient() multiplies the loss of a row by the weight of its class, [classes of the
  /// logits]; n stays the number of rows. An empty array ends this. Copies made later do the same. Throws Error
  /// unless the loss is softmax and the length fits.
  void set_class_weights(Vector<T> const& weights);

  /// From now on loss_and_gradient(), not evaluate(), smooths labels by e. Copies made later do the same. Throws
  /// Error unless the loss is softmax and 0 <= e < 1.
  void set_label_smoothing(double e);

  /// Labelled rows of the group on all ranks. Error after set_batch_targets().
  [[nodiscard]] std::int64_t num_rows(int group) const;

  /// The loss of group 0; gradient := its derivative by the logits (zero outside the rows of group 0).
  /// `gradient` has the placement of `logits` and may be the same matrix. `num_counted` replaces n if a step
  /// has rows elsewhere, too (a data axis, accumulated batches): losses and gradients then add up. Loss and
  /// gradient are 0 if n is 0. The gradient, not the loss, is multiplied by `gradient_scale`. The loss goes to
  /// loss(0) of an array of one number; if the array has two, the number of labelled rows of group 0 on all
  /// ranks goes to loss(1). Enqueues on exec; does not fence.
  void loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits, DistMatrix<T> const& gradient,
                         std::int64_t num_counted, Vector<double> const& loss, double gradient_scale = 1);
  /// The same with the loss brought to the host, for tests and tools: allocates, and fences exec.
  [[nodiscard]] double loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits,
                                         DistMatrix<T> const& gradient, std::int64_t num_counted);
  [[nodiscard]] double loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits,
                                         DistMatrix<T> const& gradient) {
    return loss_and_gradient(exec, logits, gradient, num_rows(loss_row_group));
  }

  /// The score of every group, in one pass; multi-label: means over known entries. Leaves the logits as they
  /// are. Fences exec.
  [[nodiscard]] std::vector<GroupScore> evaluate(DefaultExec const& exec, DistMatrix<T> const& logits);

  /// The power of two that brings a gradient of `num_counted` rows to about one: the largest that is at most
  /// n (binary: n C). The same on all ranks; to multiply by it is exact.
  [[nodiscard]] double scale_to_one(std::int64_t num_counted) const;

 private:
  /// What is wrong with the rows, and how many there are of each group, on this rank.
  struct LocalCounts {
    std::int64_t num_bad = 0;
    std::array<double, max_row_groups> counted{};
  };
  [[nodiscard]] LocalCounts count(RowTargets const& targets) const;
  [[nodiscard]] LocalCounts count(HostTargets const& rows) const;
  void check(RowTargets const& targets) const;
  void require_valid(LocalCounts const& local) const;
  void use(RowTargets const& targets, LocalCounts const& local);
  void require_planned(DistMatrix<T> const& matrix) const;
  void count_softmax(bool has_gradient) const;
  void run_softmax(DefaultExec const& exec, Matrix<T> const& logits, TargetShares<T> const& shares,
                   Matrix<T> const& gradient, T scale);
  void softmax_on_host(DefaultExec const& exec, Matrix<T> const& logits, TargetShares<T> const& shares,
                       Matrix<T> const& gradient, T scale);
  /// n, or n C of a binary loss: what the mean is over.
  [[nodiscard]] std::int64_t num_terms(std::int64_t num_counted) const;
  template<class Buffer>
  void reduce_sums(runtime::Stream const& stream, Buffer const& sums) const;

  ProcessGrid const* grid_;
  Placement placement_;
  LossKind kind_;
  int num_groups_;
  Block block_;
  RowTargets targets_;
  bool has_targets_ = false;
  std::optional<std::vector<std::int64_t>> num_rows_; // of each group on all ranks; none of a batch
  double num_local_loss_rows_ = 0;
  Vector<T> class_weights_;                          // [classes] or empty
  TargetShares<T> shares_{};                         // of loss_and_gradient()
  Vector<T> row_scalars_;                            // memory of row_max_ and sum_and_target_
  Vector<runtime::ValueIndex<T>> row_value_indices_; // memory of row_arg_max_
  Vector<T> row_max_;                                // [rows]
  runtime::Matrix<T> sum_and_target_;                // [rows x 2] s_i, sum_j q_ij (z_ij - m_i)
  Vector<runtime::ValueIndex<T>> row_arg_max_;       // [rows]
};

extern template class RowLoss<float>;
extern template class RowLoss<double>;

} // namespace orthant::pmm

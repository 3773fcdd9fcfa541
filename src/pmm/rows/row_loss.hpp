#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Losses of logits[r,c], their gradients, and counts of correct predictions. The classes are partitioned over axis c;
// over the third axis the logits are replicated or row-sharded.
//
// Softmax cross-entropy of row i with label y, m_i = max_j z_ij, s_i = sum_j exp(z_ij - m_i):
//   loss_i = log s_i - (z_iy - m_i)          dz_ij = (exp(z_ij - m_i) / s_i - [j = y]) / n
// First the maxima, then the packed pairs {s, z_y - m}, are reduced over the class axis. A few sums per group are
// reduced over the row axis. With label smoothing e, C classes and q_ij = (1 - e) [j = y] + e / C (Szegedy et al.,
// arXiv 1512.00567, section 7, as in PyTorch's CrossEntropyLoss):
//   loss_i = log s_i - sum_j q_ij (z_ij - m_i)          dz_ij = (exp(z_ij - m_i) / s_i - q_ij) / n
// Weights w of classes make it q_ij = (1 - e) w_y [j = y] + e / C w_j, Q_i = sum_j q_ij, again as in PyTorch:
//   loss_i = Q_i log s_i - sum_j q_ij (z_ij - m_i)          dz_ij = (Q_i exp(z_ij - m_i) / s_i - q_ij) / n
// A z-loss with coefficient c (PaLM, arXiv 2204.02311, section 5) adds c w_y L_i^2 to loss_i, and 2 c w_y L_i to the Q_i of dz_ij, where
// L_i = m_i + log s_i is the log of the sum of exponentials of row i: a row's z-loss has the weight of its label's class, with or without
// smoothing.
//
// Binary cross-entropy with logits, with a label y in {0, 1} per entry and C classes:
//   loss_i = 1/C sum_j max(z, 0) - z y + log(1 + exp(-|z|))          dz_ij = (sigmoid(z) - y) / (n C)
// An unknown entry (-1) adds nothing to the loss and has no gradient. Weights of classes multiply the terms of their class. Smoothing replaces
// y by (1 - e) y + e / 2. The focal loss (Lin et al., arXiv 1708.02002, equation 4) multiplies each term by (1 - p)^gamma, where
// p = s y + (1 - s) (1 - y) and s = sigmoid(z). If rows have one class, y_ij = [j = y] (LossKind::one_hot).
//
// Regression, with a target y per entry (LossKind::real) and r = z - y; an entry without a target (nan) adds nothing and has no gradient:
//   squared r^2, derivative 2 r      absolute |r|, sign(r)      huber r^2 / 2 and r if |r| <= 1, else |r| - 1/2 and sign(r)
// as MSELoss, L1Loss and HuberLoss of PyTorch. n is then the number of targets, and scores are R2 and MAE.
//
// Every row belongs to one group or to none; the caller decides what groups mean. n is the global number of rows of
// the group that have a label, and the loss of the group is the mean over these rows. Only the rows of group 0 have a
// gradient; the other groups are only scored. Sums over rows are in double.
// Source: Plexus (arXiv 2505.04083), section 3.2; the packed reductions are new.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/collectives.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace orthant::pmm::detail {

/// The passes of a loss and its scores over a rank's block of the logits, for plans and for the ledger of passes.
class LossPasses {
 public:
  LossPasses(Block const& logits, std::int64_t scalar_bytes)
      : num_rows_(logits.stored_rows.size()),
        num_logits_(logits.num_stored),
        logits_(num_logits_ * scalar_bytes),
        groups_(num_rows_ * std::int64_t{sizeof(std::int8_t)}),
        classes_(num_rows_ * std::int64_t{sizeof(std::int32_t)}),
        indicator_(num_logits_ * std::int64_t{sizeof(std::int8_t)}),
        numbers_(num_logits_ * std::int64_t{sizeof(double)}),
        maxima_(num_rows_ * scalar_bytes),
        sums_(2 * num_rows_ * scalar_bytes), // s_i and z_iy - m_i
        arg_maxima_(num_rows_ * std::int64_t{sizeof(runtime::ValueIndex<double>)}) {
  } // its size is the same for float

  /// maxima(), sums() and gradient() in one pass, if a rank has all classes of its rows.
  [[nodiscard]] LocalPass softmax(bool has_gradient) const {
    return {.name = "softmax",
            .bytes_read = logits_ + (has_gradient ? groups_ : 0) + classes_,
            .bytes_written = sums_ + (has_gradient ? logits_ : 0),
            .exponentials = num_logits_,
            .row_sums = 2 * num_rows_};
  }
  /// The maximum of a row costs as much as a sum of the row.
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
  /// On hosts sums() stores the exponentials. Devices compute them again, which the memory traffic hides.
  [[nodiscard]] LocalPass gradient() const {
    return {"softmax_gradient", logits_ + maxima_ + sums_ + groups_ + classes_, logits_};
  }
  /// The losses of the rows: one logarithm per row.
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

  /// One exponential and one logarithm per logit.
  [[nodiscard]] LocalPass binary_loss(bool is_one_hot) const {
    return {.name = "binary_loss_and_gradient",
            .bytes_read = logits_ + groups_ + (is_one_hot ? classes_ : indicator_),
            .bytes_written = logits_,
            .exponentials = 2 * num_logits_};
  }
  [[nodiscard]] LocalPass number_loss() const {
    return {"number_loss_and_gradient", logits_ + groups_ + numbers_, logits_};
  }
  /// Reads the columns twice (means, then deviations), one after the other, and the group of a row once per column.
  [[nodiscard]] LocalPass score_numbers() const {
    return {"score_numbers", 2 * (logits_ + numbers_ + num_logits_ * std::int64_t{sizeof(std::int8_t)}), 0};
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
  std::int64_t logits_, groups_, classes_, indicator_, numbers_, maxima_, sums_, arg_maxima_; // bytes
};

} // namespace orthant::pmm::detail

namespace orthant::pmm {

inline constexpr int max_row_groups = 3; // number of groups that a kernel sums at once
inline constexpr int loss_row_group = 0;
inline constexpr std::int8_t no_row_group = -1;

/// Targets of the rows of this rank's logits (its stored_rows). RowLoss only reads them.
struct RowTargets {
  Vector<std::int8_t> groups;             // [rows] 0 .. number of groups - 1, or no_row_group
  Vector<std::int32_t> classes;           // [rows] global class, -1 = no label; single label
  runtime::Matrix<std::int8_t> indicator; // [rows x classes of the block] 1, 0, -1 = unknown; multi-label
  Vector<double> weights{};               // [rows] weights of losses, only for batches; empty if all are 1
  runtime::Matrix<double> numbers{};      // [rows x columns of the block] targets, nan = none; regression
};

/// RowTargets in host memory, without the indicator.
struct HostTargets {
  std::span<std::int8_t const> groups;
  std::span<std::int32_t const> classes;
  std::span<double const> weights{};
  std::span<double const> numbers{};
};

/// softmax: one class per row. binary: any number of classes per row. one_hot: one class per row, trained with the binary loss and
/// scored as softmax is. real: a number per entry.
enum class LossKind : std::uint8_t { softmax, binary, one_hot, real };
/// Loss of a number.
enum class NumberLoss : std::uint8_t { squared, absolute, huber };

/// q_ij = of_label w_y [j = y] + of_classes w_j, and the coefficient of the z-loss.
template<class T>
struct TargetShares {
  T of_label = 1;
  T of_classes = 0;
  T const* class_weights = nullptr; // [all classes] w; null: all are 1
  T sum_of_weights = 0;             // over all classes
  T z_loss = 0;
};

/// Add the passes and the collectives of RowLoss::loss_and_gradient(), and of RowLoss::evaluate(), to `step`. If
/// `counts_rows`, the rows of a batch are counted over the ranks together with its loss.
void plan_loss(StepPlan& step, Placement const& logits, LossKind kind, bool counts_rows = false);
void plan_scores(StepPlan& step, Placement const& logits, LossKind kind, int num_groups = 1);

/// Adds the arrays of a RowLoss to `step`.
void plan_loss_arrays(StepPlan& step, Placement const& logits, LossKind kind);

/// The loss of a group of rows, and its correct predictions.
struct GroupScore {
  std::int64_t num_counted = 0; // labeled rows of the group; multi-label: known entries
  std::int64_t num_correct = 0; // arg-max (ties: smallest class) is the label; multi-label: sign is right
  double loss = 0;              // mean
  double macro_f1 = 0;          // defined in class_counts.hpp
  double micro_f1 = 0;
  std::int64_t num_most_frequent = 0;  // num_correct if the most frequent label were always predicted
  std::int64_t num_most_predicted = 0; // single label: rows with the most frequent prediction
  bool is_of_numbers = false;          // regression: num_counted targets, and these scores
  /// Mean over the columns of 1 - sum r^2 / sum (y - mean y)^2; of a constant column 1 if all r are 0, else 0, as in scikit-learn.
  double r2 = 0;
  double mae = 0; // mean of |r| over all targets
};

/// Loss of the rows of distributed logits. Scratch memory is allocated at construction, and if rebind() finds more rows
/// than before. Steps allocate nothing; evaluate() allocates its counts, 32 bytes per group and class. loss_and_gradient()
/// and evaluate() are collective over the logits' row and class axes, and over the third axis if the logits are
/// row-sharded; all ranks call in the same order.
template<class T>
class RowLoss {
 public:
  /// `logits` must not be flat-sharded, and num_groups must be 1 to max_row_groups; otherwise throws Error. The targets are
  /// not set. `grid` must outlive this object. Not collective.
  RowLoss(ProcessGrid const& grid, Placement const& logits, LossKind kind, int num_groups = 1);

  /// Changes the placement of the logits, for example for the next batch, with the same classes. The targets must be
  /// set again. Scratch memory only grows. Not collective.
  void rebind(Placement const& logits);

  /// Sets and counts the targets. Throws Error, the same on all ranks, if their lengths do not fit the logits, if a
  /// group or a class is out of range, or if they have weights. Collective over the grid's group. Waits for the kernels
  /// that check and count.
  void set_targets(RowTargets const& targets);
  /// Sets the targets of a batch. `rows` are the same targets in host memory, where they are checked and counted. Does not
  /// wait, so num_rows() is not available; loss_and_gradient() sums the weights of the labeled rows of group 0.
  /// Throws Error, only on this rank, if lengths do not fit or a group or a class is out of range. Not collective.
  void set_batch_targets(RowTargets const& targets, HostTargets const& rows);
  /// The same for targets that the host does not have. Waits for the kernels that check and count.
  void set_batch_targets(RowTargets const& targets);

  /// From now on loss_and_gradient() multiplies the loss of a row by the weight of its class; n remains the number of
  /// rows. A binary loss multiplies the terms of each class. `weights` is [classes of the logits], or empty to end the weighting.
  /// Copies of this object keep the weights. Throws Error unless the length fits.
  void set_class_weights(Vector<T> const& weights);

  /// From now on loss_and_gradient(), but not evaluate(), smooths labels by e. Copies of this object also do. Throws
  /// Error unless 0 <= e < 1.
  void set_label_smoothing(double e) {
    ORTHANT_REQUIRE(0 <= e && e < 1, "label smoothing of ", e);
    smoothing_ = e;
  }
  /// From now on loss_and_gradient(), but not evaluate(), adds a z-loss with this coefficient, weighted like the loss of its row, without
  /// further messages. Copies of this object also do. Throws Error unless the loss is softmax and 0 <= c < infinity.
  void set_z_loss(double c) {
    ORTHANT_REQUIRE(!trains_entries() && c >= 0 && std::isfinite(c), "a z-loss of ", c);
    z_loss_ = c;
  }
  /// From now on loss_and_gradient(), but not evaluate(), is the focal loss. Throws Error if the loss is softmax, or gamma < 0.
  void set_focal_gamma(double gamma) {
    ORTHANT_REQUIRE(trains_entries() && gamma >= 0, "a focal loss with gamma ", gamma);
    focal_gamma_ = gamma;
  }
  /// Selects the loss of numbers, also for evaluate(); before, it is squared. Throws Error unless the loss is of numbers.
  void set_number_loss(NumberLoss loss) {
    ORTHANT_REQUIRE(has_numbers(), "a loss of numbers for logits of classes");
    number_loss_ = loss;
  }

  /// Number of labeled rows of the group on all ranks. Throws Error if the targets are not set, or were set by
  /// set_batch_targets().
  [[nodiscard]] std::int64_t num_rows(int group) const;

  /// loss(0) := the loss of group 0; gradient := its derivative by the logits, 0 outside the rows of group 0.
  /// `gradient` must have the placement of `logits` and may be the same matrix. `num_counted` is n. If a step also has rows
  /// elsewhere (on a data axis, or in accumulated batches), pass their total, so that losses and gradients add up. Loss
  /// and gradient are 0 if n is 0. Only the gradient is multiplied by `gradient_scale`. If `loss` has two elements,
  /// loss(1) := the number (or sum of weights) of the labeled rows of group 0 on all ranks. Enqueues on exec; does not
  /// fence.
  void loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits, DistMatrix<T> const& gradient,
                         std::int64_t num_counted, Vector<double> const& loss, double gradient_scale = 1);
  /// As above, but returns the loss on the host, for tests and tools. Allocates, and fences exec.
  [[nodiscard]] double loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits,
                                         DistMatrix<T> const& gradient, std::int64_t num_counted);
  [[nodiscard]] double loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits,
                                         DistMatrix<T> const& gradient) {
    return loss_and_gradient(exec, logits, gradient, num_rows(loss_row_group));
  }

  /// Returns the score of every group; multi-label scores are means over known entries. Does not change the logits.
  /// Fences exec.
  [[nodiscard]] std::vector<GroupScore> evaluate(DefaultExec const& exec, DistMatrix<T> const& logits);

  /// Returns the power of two that scales a gradient of `num_counted` rows to about one: the largest that is at most
  /// n (binary: n C). It is the same on all ranks, and multiplication by it is exact.
  [[nodiscard]] double scale_to_one(std::int64_t num_counted) const;

 private:
  /// Number of invalid rows, and number (or sum of weights) of the rows of each group, on this rank.
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
  /// Whether loss_and_gradient(), and whether evaluate(), sums over entries.
  [[nodiscard]] bool trains_entries() const { return kind_ != LossKind::softmax; }
  [[nodiscard]] bool scores_entries() const { return kind_ == LossKind::binary || has_numbers(); }
  [[nodiscard]] bool has_numbers() const { return kind_ == LossKind::real; }
  void run_softmax_loss(DefaultExec const& exec, Matrix<T> const& logits, Matrix<T> const& gradient, T scale,
                        runtime::Number<double> const& loss);
  /// The divisor of the mean: n, or n C for a binary loss.
  [[nodiscard]] std::int64_t num_terms(std::int64_t num_counted) const {
    return trains_entries() && !has_numbers() ? num_counted * placement_.extents.columns : num_counted;
  }
  template<class Buffer>
  void reduce_sums(runtime::Stream const& stream, Buffer const& sums, bool are_of_entries) const;

  ProcessGrid const* grid_;
  Placement placement_;
  LossKind kind_;
  int num_groups_;
  Block block_;
  RowTargets targets_;
  bool has_targets_ = false;
  std::optional<std::vector<std::int64_t>> num_rows_; // rows of each group on all ranks; empty for a batch
  double num_local_loss_rows_ = 0;
  Vector<T> class_weights_;   // [classes] or empty
  double sum_of_weights_ = 0; // of classes
  double smoothing_ = 0;      // e
  double z_loss_ = 0;         // c
  double focal_gamma_ = 0;
  NumberLoss number_loss_ = NumberLoss::squared;
  Vector<T> row_scalars_;                            // memory of row_max_ and sum_and_target_
  Vector<runtime::ValueIndex<T>> row_value_indices_; // memory of row_arg_max_
  Vector<T> row_max_;                                // [rows]
  runtime::Matrix<T> sum_and_target_;                // [rows x 2] s_i, sum_j q_ij (z_ij - m_i)
  Vector<runtime::ValueIndex<T>> row_arg_max_;       // [rows]
};

extern template class RowLoss<float>;
extern template class RowLoss<double>;

} // namespace orthant::pmm

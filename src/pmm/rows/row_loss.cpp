// SPDX-License-Identifier: Apache-2.0
#include "pmm/rows/row_loss.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "pmm/rows/class_counts.hpp"
#include "pmm/rows/entry_loss_kernels.hpp"
#include "pmm/rows/row_loss_kernels.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

namespace orthant::pmm {

using runtime::Reduction;

namespace {

/// True if a gradient must be computed. A null pointer does not show this: a rank with rows but no classes has one, too.
template<class T>
bool is_wanted(Matrix<T> const& gradient) {
  return gradient.extent(0) > 0;
}

} // namespace

template<class T>
RowLoss<T>::RowLoss(ProcessGrid const& grid, Placement const& logits, LossKind kind, int num_groups)
    : grid_(&grid),
      kind_(kind),
      num_groups_(num_groups) {
  ORTHANT_REQUIRE(1 <= num_groups && num_groups <= max_row_groups, num_groups, " groups of rows");
  rebind(logits);
}

template<class T>
void RowLoss<T>::rebind(Placement const& logits) {
  ORTHANT_REQUIRE(logits.layout.storage != Storage::flat_sharded, "logits are ", logits.to_string());
  placement_ = logits;
  block_ = block_of(*grid_, logits);
  has_targets_ = false;
  num_rows_.reset();
  if (scores_entries()) return;
  auto const num_rows = static_cast<std::size_t>(block_.stored_rows.size());
  if (row_value_indices_.extent(0) < num_rows) {
    row_scalars_ = Vector<T>("orthant::pmm::RowLoss/row_scalars", 3 * num_rows);
    // Only evaluate() uses this array, and writes it first. It is not initialized, so it takes no physical memory until then.
    row_value_indices_ = Vector<runtime::ValueIndex<T>>(
        Kokkos::view_alloc("orthant::pmm::RowLoss/row_arg_max", Kokkos::WithoutInitializing), num_rows);
  }
  row_max_ = Vector<T>(row_scalars_.data(), num_rows);
  sum_and_target_ = Matrix<T>(row_scalars_.data() + num_rows, num_rows, 2);
  row_arg_max_ = Vector<runtime::ValueIndex<T>>(row_value_indices_.data(), num_rows);
}

/// Throws Error if the lengths of this rank's targets do not fit its block of the logits.
template<class T>
void RowLoss<T>::check(RowTargets const& targets) const {
  auto const num_rows = static_cast<std::size_t>(block_.stored_rows.size());
  ORTHANT_REQUIRE(targets.groups.extent(0) == num_rows, targets.groups.extent(0), " groups for ", num_rows,
                  " rows of ", placement_.to_string());
  if (has_numbers())
    ORTHANT_REQUIRE(targets.numbers.size() == num_rows * static_cast<std::size_t>(block_.columns.size()),
                    targets.numbers.size(), " numbers for ", num_rows, " rows of ", placement_.to_string());
  else if (scores_entries())
    ORTHANT_REQUIRE(targets.indicator.extent(0) == num_rows &&
                        targets.indicator.extent(1) == static_cast<std::size_t>(block_.columns.size()),
                    "an indicator of ", targets.indicator.extent(0), " x ", targets.indicator.extent(1),
                    " for ", num_rows, " x ", block_.columns.size());
  else
    ORTHANT_REQUIRE(targets.classes.extent(0) == num_rows, targets.classes.extent(0), " classes for ",
                    num_rows, " rows of ", placement_.to_string());
}

template<class T>
typename RowLoss<T>::LocalCounts RowLoss<T>::count(RowTargets const& targets) const {
  auto const is_single = !scores_entries();
  LocalCounts result;
  result.num_bad =
      detail::count_bad_rows(DefaultExec(), targets, num_groups_, is_single ? placement_.extents.columns : 0);
  if (result.num_bad > 0) return result; // count_rows() would index out of range
  auto const sums = has_numbers() ? detail::count_numbers(DefaultExec(), targets)
                                  : detail::count_rows(DefaultExec(), targets, is_single);
  std::copy_n(sums.counted, result.counted.size(), result.counted.begin());
  return result;
}

template<class T>
typename RowLoss<T>::LocalCounts RowLoss<T>::count(HostTargets const& rows) const {
  auto const is_single = !scores_entries();
  auto const num_rows = static_cast<std::size_t>(block_.stored_rows.size());
  ORTHANT_REQUIRE(rows.groups.size() == num_rows && (!is_single || rows.classes.size() == num_rows),
                  rows.groups.size(), " groups and ", rows.classes.size(), " classes on the host for ",
                  num_rows, " rows");
  ORTHANT_REQUIRE(rows.weights.empty() || rows.weights.size() == num_rows, rows.weights.size(), " weights");
  auto const width = has_numbers() ? static_cast<std::size_t>(block_.columns.size()) : 0;
  ORTHANT_REQUIRE(rows.numbers.size() == num_rows * width, rows.numbers.size(), " numbers on the host");
  LocalCounts result;
  for (std::size_t i = 0; i < rows.groups.size(); ++i) {
    auto const group = rows.groups[i];
    auto const label = is_single ? rows.classes[i] : 0;
    if (group < no_row_group || group >= num_groups_ || label < -1 || label >= placement_.extents.columns)
      ++result.num_bad;
    else if (group >= 0 && label >= 0) {
      auto const of_row = rows.numbers.subspan(i * width, width);
      auto const count = has_numbers() ? std::ranges::count_if(of_row, detail::has_target) : 1;
      result.counted[static_cast<std::size_t>(group)] +=
          static_cast<double>(count) * (rows.weights.empty() ? 1 : rows.weights[i]);
    }
  }
  return result;
}

template<class T>
void RowLoss<T>::set_targets(RowTargets const& targets) {
  LocalCounts local;
  runtime::together(grid_->group(), [&] {
    check(targets);
    ORTHANT_REQUIRE(targets.weights.extent(0) == 0, "rows of a batch alone have weights");
    local = count(targets);
    require_valid(local);
  });
  use(targets, local);
  auto const counts = std::span(local.counted).first(static_cast<std::size_t>(num_groups_));
  // All ranks of the class axis have counted the same rows, but each only its own targets of regression.
  if (has_numbers()) runtime::all_reduce(runtime::host, grid_->over(placement_.layout.columns), counts);
  runtime::all_reduce(runtime::host, grid_->over(placement_.layout.rows), counts);
  if (placement_.layout.storage == Storage::row_sharded)
    runtime::all_reduce(runtime::host, grid_->over(placement_.layout.third()), counts);
  num_rows_.emplace(counts.begin(), counts.end());
}

template<class T>
void RowLoss<T>::set_batch_targets(RowTargets const& targets, HostTargets const& rows) {
  check(targets);
  ORTHANT_REQUIRE(targets.weights.extent(0) == rows.weights.size(), targets.weights.extent(0),
                  " weights for ", rows.weights.size(), " on the host");
  use(targets, count(rows));
}

template<class T>
void RowLoss<T>::set_batch_targets(RowTargets const& targets) {
  check(targets);
  use(targets, count(targets));
}

template<class T>
void RowLoss<T>::require_valid(LocalCounts const& local) const {
  ORTHANT_REQUIRE(local.num_bad == 0, local.num_bad, " rows have a group beyond the ", num_groups_,
                  " of the loss or a class beyond the ", placement_.extents.columns, " of the logits");
}

template<class T>
void RowLoss<T>::use(RowTargets const& targets, LocalCounts const& local) {
  require_valid(local);
  targets_ = targets;
  has_targets_ = true;
  num_local_loss_rows_ = local.counted[loss_row_group];
  num_rows_.reset();
}

template<class T>
void RowLoss<T>::set_class_weights(Vector<T> const& weights) {
  ORTHANT_REQUIRE(weights.extent(0) == 0 ||
                      weights.extent(0) == static_cast<std::size_t>(placement_.extents.columns),
                  weights.extent(0), " weights for the classes of ", placement_.to_string());
  class_weights_ = weights;
  sum_of_weights_ = 0;
  auto const on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), weights);
  for (std::size_t j = 0; j < on_host.extent(0); ++j)
    sum_of_weights_ += static_cast<double>(on_host(j));
}

template<class T>
std::int64_t RowLoss<T>::num_rows(int group) const {
  ORTHANT_REQUIRE(num_rows_, "the rows of a batch, or of nothing, are not counted over the ranks");
  return num_rows_->at(static_cast<std::size_t>(group));
}

template<class T>
void RowLoss<T>::require_planned(DistMatrix<T> const& matrix) const {
  ORTHANT_REQUIRE(matrix.placement() == placement_, "logits or gradient are ", matrix.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(has_targets_, "targets have not been set");
}

/// Sums over rows are reduced over the row axis, and over the third axis if row-sharded. Sums over entries (binary) are
/// also reduced over the class axis.
template<class T>
template<class Buffer>
void RowLoss<T>::reduce_sums(runtime::Stream const& stream, Buffer const& sums, bool are_of_entries) const {
  auto const& layout = placement_.layout;
  if (are_of_entries) runtime::all_reduce(stream, grid_->over(layout.columns), sums);
  runtime::all_reduce(stream, grid_->over(layout.rows), sums);
  if (layout.storage == Storage::row_sharded) runtime::all_reduce(stream, grid_->over(layout.third()), sums);
}

/// run_softmax() on hosts. If a rank has all classes, all passes run on a few rows at a time, which stay in the
/// first-level cache.
template<class T>
void RowLoss<T>::softmax_on_host(DefaultExec const& exec, Matrix<T> const& logits,
                                 TargetShares<T> const& shares, Matrix<T> const& gradient, T scale) {
  constexpr std::int64_t rows_in_cache = 64;
  static auto const kernels = host_rows::best_row_kernels<T>();
  auto const& class_comm = grid_->over(placement_.layout.columns);
  auto const num_rows = block_.stored_rows.size();
  host_rows::HostSoftmax<T> const task{logits.extent(1),        logits.data(),        row_max_.data(),
                                       sum_and_target_.data(),  gradient.data(),      targets_.groups.data(),
                                       targets_.classes.data(), block_.columns.begin, scale,
                                       shares.of_label,         shares.of_classes,    shares.class_weights,
                                       shares.sum_of_weights,   shares.z_loss};
  auto const has_gradient = is_wanted(gradient);
  if (class_comm.size() == 1) {
    for_each_part(exec, "orthant::pmm::softmax", num_rows, [=](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; row += rows_in_cache) {
        auto const stop = std::min(end, row + rows_in_cache);
        kernels.find_maxima(task, row, stop);
        kernels.sum_exponentials(task, row, stop);
        if (has_gradient) kernels.finish_gradient(task, row, stop);
      }
    });
    return;
  }
  auto const run = [&](char const* label, auto const kernel) {
    for_each_part(exec, label, num_rows,
                  [=](std::int64_t begin, std::int64_t end) { kernel(task, begin, end); });
  };
  run("orthant::pmm::find_row_maxima", kernels.find_maxima);
  runtime::all_reduce(exec, class_comm, row_max_, Reduction::max);
  run("orthant::pmm::sum_exponentials", kernels.sum_exponentials);
  runtime::all_reduce(exec, class_comm, Vector<T>(sum_and_target_.data(), sum_and_target_.size()));
  if (has_gradient) run("orthant::pmm::softmax_gradient", kernels.finish_gradient);
}

/// Adds the same passes to the ledger that plan_softmax() adds to a step.
template<class T>
void RowLoss<T>::count_softmax(bool has_gradient) const {
  auto& ledger = grid_->passes();
  detail::LossPasses const passes(block_, sizeof(T));
  if (grid_->size(placement_.layout.columns) == 1) return ledger.add(passes.softmax(has_gradient));
  ledger.add(passes.maxima());
  ledger.add(passes.sums());
  if (has_gradient) ledger.add(passes.gradient());
}

/// Computes over all classes, and also the gradient if it is not empty:
///   row_max := max_j z_ij,     sum_and_target := {sum_j exp(z_ij - m_i), sum_j q_ij (z_ij - m_i)}
/// With a gradient, both may be computed only for the rows of group 0.
template<class T>
void RowLoss<T>::run_softmax(DefaultExec const& exec, Matrix<T> const& logits, TargetShares<T> const& shares,
                             Matrix<T> const& gradient, T scale) {
  count_softmax(is_wanted(gradient));
  if constexpr (runs_on_host) {
    softmax_on_host(exec, logits, shares, gradient, scale);
  } else {
    auto const& class_comm = grid_->over(placement_.layout.columns);
    if (class_comm.size() == 1)
      return detail::softmax_in_one_pass(exec, logits, targets_, shares, row_max_, sum_and_target_, scale,
                                         gradient);
    detail::find_row_maxima(exec, logits, row_max_);
    runtime::all_reduce(exec, class_comm, row_max_, Reduction::max);
    detail::sum_exponentials(exec, logits, row_max_, targets_, block_.columns.begin, shares, sum_and_target_);
    runtime::all_reduce(exec, class_comm, Vector<T>(sum_and_target_.data(), sum_and_target_.size()));
    if (!is_wanted(gradient)) return;
    detail::softmax_gradient(exec, logits, row_max_, sum_and_target_, targets_, block_.columns.begin, shares,
                             scale, gradient);
  }
}

/// Without label smoothing, the weight of its class multiplies a whole row; with it, each term has the weight of its class.
template<class T>
void RowLoss<T>::run_softmax_loss(DefaultExec const& exec, Matrix<T> const& logits, Matrix<T> const& gradient,
                                  T scale, runtime::Number<double> const& loss) {
  TargetShares<T> shares{static_cast<T>(1 - smoothing_),
                         static_cast<T>(smoothing_ / static_cast<double>(placement_.extents.columns))};
  auto of_rows = class_weights_;
  if (smoothing_ > 0 && class_weights_.extent(0) > 0) {
    shares.class_weights = class_weights_.data();
    shares.sum_of_weights = static_cast<T>(sum_of_weights_);
    of_rows = {};
  }
  shares.z_loss = static_cast<T>(z_loss_);
  run_softmax(exec, logits, shares, gradient, scale);
  if (of_rows.extent(0) > 0 || targets_.weights.extent(0) > 0)
    detail::weigh_gradient(exec, targets_, of_rows, gradient);
  detail::softmax_loss(exec, targets_, row_max_, sum_and_target_, of_rows, shares, loss);
}

template<class T>
double RowLoss<T>::scale_to_one(std::int64_t num_counted) const {
  return static_cast<double>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(num_terms(num_counted), 1))));
}

template<class T>
void RowLoss<T>::loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits,
                                   DistMatrix<T> const& gradient, std::int64_t num_counted,
                                   Vector<double> const& loss, double gradient_scale) {
  require_planned(logits);
  require_planned(gradient);
  auto const z = logits.local();
  auto const dz = gradient.local();
  auto const scale = num_counted == 0 ? 0.0 : 1.0 / static_cast<double>(num_terms(num_counted));
  auto const of_gradient = static_cast<T>(scale * gradient_scale);
  auto const sum = runtime::number_at(loss, 0);
  detail::LossPasses const passes(block_, sizeof(T));
  if (has_numbers()) {
    detail::number_loss_and_gradient(exec, z, targets_, number_loss_, of_gradient, dz, sum);
    grid_->passes().add(passes.number_loss());
  } else if (trains_entries()) {
    detail::BinaryTargets<T> const how{targets_.classes.data(),    kind_ == LossKind::one_hot,
                                       block_.columns.begin,       class_weights_.data(),
                                       static_cast<T>(smoothing_), static_cast<T>(focal_gamma_)};
    detail::binary_loss_and_gradient(exec, z, targets_, how, of_gradient, dz, sum);
    grid_->passes().add(passes.binary_loss(kind_ == LossKind::one_hot));
  } else {
    run_softmax_loss(exec, z, dz, of_gradient, sum);
    grid_->passes().add(passes.softmax_loss());
  }
  if (loss.extent(0) > 1) {
    // If the loss is also summed over the class axis, only its first rank contributes the count of rows. Targets are counted by each.
    auto const counts =
        !trains_entries() || has_numbers() || grid_->coordinate(placement_.layout.columns) == 0;
    Kokkos::parallel_for("orthant::pmm::set_count", detail::RowPolicy(exec, 0, 1),
                         detail::SetNumber{runtime::number_at(loss, 1), counts ? num_local_loss_rows_ : 0});
  }
  reduce_sums(exec, loss, trains_entries());
  Kokkos::parallel_for("orthant::pmm::scale_loss", detail::RowPolicy(exec, 0, 1),
                       detail::ScaleLoss{sum, scale});
}

template<class T>
double RowLoss<T>::loss_and_gradient(DefaultExec const& exec, DistMatrix<T> const& logits,
                                     DistMatrix<T> const& gradient, std::int64_t num_counted) {
  Vector<double> const loss("orthant::pmm::RowLoss/loss", 1);
  loss_and_gradient(exec, logits, gradient, num_counted, loss);
  runtime::compat::fence(exec, "orthant::pmm::RowLoss/the loss is read");
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), loss)(0);
}

template<class T>
std::vector<GroupScore> RowLoss<T>::evaluate(DefaultExec const& exec, DistMatrix<T> const& logits) {
  require_planned(logits);
  auto const z = logits.local();
  if (has_numbers()) {
    grid_->passes().add(detail::LossPasses(block_, sizeof(T)).score_numbers());
    auto const reduce = [&](std::span<double> sums) { reduce_sums(runtime::host, sums, true); };
    return detail::scores_of_numbers(exec, z, targets_, number_loss_, num_groups_, placement_.extents.columns,
                                     block_.columns.begin, reduce);
  }
  detail::GroupSums sums;
  auto const num_classes = placement_.extents.columns;
  detail::LossPasses const passes(block_, sizeof(T));
  auto const class_counts = detail::make_class_counts(num_groups_, num_classes);
  if (scores_entries()) {
    detail::count_entries(exec, z, targets_, block_.columns.begin, num_classes, class_counts);
    grid_->passes().add(passes.count_entries());
    sums = detail::score_binary(exec, z, targets_);
    grid_->passes().add(passes.score_binary());
  } else {
    run_softmax(exec, z, {}, {}, T{0});
    detail::find_row_arg_maxima(exec, z, block_.columns.begin, row_arg_max_);
    grid_->passes().add(passes.arg_maxima());
    runtime::all_reduce_arg_max(exec, grid_->over(placement_.layout.columns), row_arg_max_);
    detail::count_classes(exec, targets_, row_arg_max_, num_classes, class_counts);
    grid_->passes().add(passes.count_classes());
    sums = detail::score_softmax(exec, targets_, sum_and_target_, row_arg_max_);
    grid_->passes().add(passes.score_softmax());
  }

  std::vector<double> flat;
  for (int g = 0; g < num_groups_; ++g)
    flat.insert(flat.end(), {sums.loss[g], sums.correct[g], sums.counted[g]});
  auto const num_sums = flat.size();
  auto const counts = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), class_counts);
  for (std::size_t i = 0; i < counts.extent(0); ++i)
    flat.push_back(static_cast<double>(counts(i)));
  reduce_sums(runtime::host, std::span(flat), scores_entries());

  std::vector<GroupScore> scores;
  auto const per_group = counts.extent(0) / static_cast<std::size_t>(num_groups_);
  for (std::size_t at = 0; at < num_sums; at += 3) {
    auto const [loss, correct, counted] = std::tuple(flat[at], flat[at + 1], flat[at + 2]);
    auto& score = scores.emplace_back();
    score.num_counted = static_cast<std::int64_t>(counted);
    score.num_correct = static_cast<std::int64_t>(correct);
    score.loss = counted == 0 ? 0.0 : loss / counted;
    detail::add_class_scores(std::span<double const>(flat).subspan(num_sums + at / 3 * per_group, per_group),
                             kind_, score);
  }
  return scores;
}

template class RowLoss<float>;
template class RowLoss<double>;

} // namespace orthant::pmm

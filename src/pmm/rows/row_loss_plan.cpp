// SPDX-License-Identifier: Apache-2.0
//
// Passes, collectives and arrays of a RowLoss for the plan of a step, and the scores of class_counts.hpp.

#include "pmm/rows/class_counts.hpp"
#include "pmm/rows/row_loss.hpp"
#include "pmm/rows/row_loss_kernels.hpp"

#include <algorithm>

namespace orthant::pmm {

using runtime::Operation;

namespace {

/// Adds the collectives of RowLoss::reduce_sums() for `count` sums in double.
void plan_sums(StepPlan& step, Layout const& layout, LossKind kind, std::int64_t count) {
  auto const bytes = count * static_cast<std::int64_t>(sizeof(double));
  if (kind != LossKind::softmax) step.add_call(Operation::all_reduce, layout.columns, bytes);
  step.add_call(Operation::all_reduce, layout.rows, bytes);
  if (layout.storage == Storage::row_sharded) step.add_call(Operation::all_reduce, layout.third(), bytes);
}

detail::LossPasses passes_of(StepPlan const& step, Placement const& logits) {
  return {step.block(logits), step.scalar_bytes(1)};
}

/// Adds the passes and collectives of the row maxima and then of the two row sums; one pass if a rank has all classes.
void plan_softmax(StepPlan& step, Placement const& logits, bool has_gradient) {
  auto const passes = passes_of(step, logits);
  auto const class_axis = logits.layout.columns;
  if (step.shape().size(class_axis) == 1) return step.add_pass(passes.softmax(has_gradient));
  step.add_pass(passes.maxima());
  step.add_call(Operation::all_reduce, class_axis, passes.maxima().bytes_written);
  step.add_pass(passes.sums());
  step.add_call(Operation::all_reduce, class_axis, passes.sums().bytes_written);
  if (has_gradient) step.add_pass(passes.gradient());
}

} // namespace

void plan_loss(StepPlan& step, Placement const& logits, LossKind kind, bool counts_rows) {
  auto const passes = passes_of(step, logits);
  if (kind == LossKind::softmax) {
    plan_softmax(step, logits, true);
    step.add_pass(passes.softmax_loss());
  } else if (kind == LossKind::real) {
    step.add_pass(passes.number_loss());
  } else {
    step.add_pass(passes.binary_loss(kind == LossKind::one_hot));
  }
  plan_sums(step, logits.layout, kind, counts_rows ? 2 : 1);
}

void plan_scores(StepPlan& step, Placement const& logits, LossKind kind, int num_groups) {
  auto const passes = passes_of(step, logits);
  if (kind == LossKind::real) {
    for (int round = 0; round < 2; ++round)
      plan_sums(step, logits.layout, kind,
                num_groups * detail::NumberSums::num_parts * logits.extents.columns);
    step.add_pass(passes.score_numbers());
    return;
  }
  if (kind == LossKind::one_hot) kind = LossKind::softmax;
  if (kind == LossKind::softmax) {
    plan_softmax(step, logits, false);
    step.add_pass(passes.arg_maxima());
    step.add_call(Operation::all_reduce, logits.layout.columns, passes.arg_maxima().bytes_written);
    step.add_pass(passes.count_classes());
    step.add_pass(passes.score_softmax());
  } else {
    step.add_pass(passes.count_entries());
    step.add_pass(passes.score_binary());
  }
  plan_sums(step, logits.layout, kind, num_groups * (3 + detail::num_class_counts * logits.extents.columns));
}

void plan_loss_arrays(StepPlan& step, Placement const& logits, LossKind kind) {
  if (kind == LossKind::binary || kind == LossKind::real) return;
  auto const num_rows = step.block(logits).stored_rows.size();
  step.add_array("orthant::pmm::RowLoss/row_scalars", step.scalar_bytes(3 * num_rows));
  step.add_array("orthant::pmm::RowLoss/row_arg_max",
                 num_rows *
                     std::int64_t{sizeof(runtime::ValueIndex<double>)}); // its size is the same for float
}

} // namespace orthant::pmm

namespace orthant::pmm::detail {

void add_class_scores(std::span<double const> counts, LossKind kind, GroupScore& score) {
  auto both = 0.0;
  auto either = 0.0; // sum over the classes of there + predicted
  auto f1_sum = 0.0;
  auto num_classes = 0.0;
  auto most = 0.0;
  for (std::size_t at = 0; at < counts.size(); at += num_class_counts) {
    auto const of_class = counts.subspan(at, num_class_counts);
    auto const there = of_class[class_there];
    auto const sum = there + of_class[class_predicted];
    both += of_class[class_both];
    either += sum;
    f1_sum += sum > 0 ? 2 * of_class[class_both] / sum : 0.0;
    if (kind != LossKind::binary) {
      num_classes += sum > 0 ? 1 : 0;
      most = std::max(most, there);
      score.num_most_predicted =
          std::max(score.num_most_predicted, static_cast<std::int64_t>(of_class[class_predicted]));
    } else {
      num_classes += of_class[class_known] > 0 ? 1 : 0;
      most += std::max(there, of_class[class_known] - there);
    }
  }
  score.macro_f1 = num_classes > 0 ? f1_sum / num_classes : 0.0;
  score.micro_f1 = either > 0 ? 2 * both / either : 0.0;
  score.num_most_frequent = static_cast<std::int64_t>(most);
}

} // namespace orthant::pmm::detail

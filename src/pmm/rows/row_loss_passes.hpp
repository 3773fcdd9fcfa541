#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The passes of a loss and its scores over a rank's block of the logits, as they are listed and as they are counted.

#include "pmm/cost/step_plan.hpp"
#include "runtime/comm/collectives.hpp"

namespace orthant::pmm::detail {

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

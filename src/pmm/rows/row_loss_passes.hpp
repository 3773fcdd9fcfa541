#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The passes of a softmax loss over a rank's block of the logits, as they are listed and as they are counted.

#include "pmm/cost/step_plan.hpp"

namespace orthant::pmm::detail {

class SoftmaxPasses {
 public:
  SoftmaxPasses(Block const& logits, std::int64_t scalar_bytes)
      : num_rows_(logits.stored_rows.size()),
        num_logits_(logits.num_stored),
        logits_(num_logits_ * scalar_bytes),
        groups_(num_rows_ * std::int64_t{sizeof(std::int8_t)}),
        classes_(num_rows_ * std::int64_t{sizeof(std::int32_t)}),
        maxima_(num_rows_ * scalar_bytes),
        sums_(2 * num_rows_ * scalar_bytes) {} // and z_iy - m_i

  /// All of the following, where a rank has all classes of its rows.
  [[nodiscard]] LocalPass whole(bool has_gradient) const {
    return {.name = "softmax",
            .bytes_read = logits_ + (has_gradient ? groups_ : 0) + classes_,
            .bytes_written = sums_ + (has_gradient ? logits_ : 0),
            .exponentials = num_logits_,
            .row_sums = num_rows_};
  }
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
  [[nodiscard]] LocalPass gradient() const {
    return {.name = "softmax_gradient",
            .bytes_read = logits_ + maxima_ + sums_ + groups_ + classes_,
            .bytes_written = logits_,
            .exponentials = num_logits_};
  }
  /// Of the finished rows: a logarithm each.
  [[nodiscard]] LocalPass loss() const {
    return {.name = "softmax_loss",
            .bytes_read = groups_ + classes_ + sums_,
            .bytes_written = 0,
            .exponentials = num_rows_};
  }

 private:
  std::int64_t num_rows_, num_logits_;
  std::int64_t logits_, groups_, classes_, maxima_, sums_; // bytes
};

} // namespace orthant::pmm::detail

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which columns of a range are in the batch, and their number among them: a bit a column, and a table that is
// read only where a bit is set, so that nothing of the size of the range is ever cleared.

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::sampling {

class ColumnFilter {
 public:
  explicit ColumnFilter(std::int64_t num_columns)
      : bits_(static_cast<std::size_t>((num_columns + 63) / 64)),
        numbers_(static_cast<std::size_t>(num_columns)) {}

  /// Lets these columns through, in place of those before. Cost: O(columns let through, before and now).
  void set(std::span<std::int32_t const> columns) {
    for (auto const column : passing_)
      bits_[static_cast<std::size_t>(column) / 64] = 0;
    passing_.assign(columns.begin(), columns.end());
    std::int32_t number = 0;
    for (auto const column : passing_) {
      bits_[static_cast<std::size_t>(column) / 64] |= std::uint64_t{1} << (column % 64);
      numbers_[static_cast<std::size_t>(column)] = number++;
    }
  }

  [[nodiscard]] std::int64_t num_columns() const { return static_cast<std::int64_t>(numbers_.size()); }
  /// 1 where the column is let through, else 0.
  [[nodiscard]] std::size_t passes(std::int32_t column) const {
    return bits_[static_cast<std::size_t>(column) / 64] >> (column % 64) & 1U;
  }
  /// Its number among those let through. Only for one that is.
  [[nodiscard]] std::int32_t number(std::int32_t column) const {
    return numbers_[static_cast<std::size_t>(column)];
  }
  [[nodiscard]] std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(bits_.size() * sizeof(bits_[0]) + numbers_.size() * sizeof(numbers_[0]));
  }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::int32_t> numbers_;
  std::vector<std::int32_t> passing_;
};

} // namespace orthant::sampling

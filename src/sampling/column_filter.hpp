#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which columns of a range are in the batch, and their number among them: a bit a column, and a count every
// 64 columns that is read only where one of their bits is set, so that nothing of the size of the range is
// ever cleared. 12 bytes for 64 columns.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace orthant::sampling {

class ColumnFilter {
 public:
  explicit ColumnFilter(std::int64_t num_columns)
      : num_columns_(num_columns),
        bits_(static_cast<std::size_t>((num_columns + 63) / 64)),
        before_(bits_.size()) {}

  /// Lets these columns through, in place of those before; ascending. Cost: O(columns let through, before and
  /// now).
  void set(std::span<std::int32_t const> columns) {
    for (auto const column : passing_)
      bits_[word_of(column)] = 0;
    passing_.assign(columns.begin(), columns.end());
    std::int32_t number = 0;
    for (auto const column : passing_) {
      auto& word = bits_[word_of(column)];
      if (word == 0) before_[word_of(column)] = number;
      word |= bit_of(column);
      ++number;
    }
  }

  [[nodiscard]] std::int64_t num_columns() const { return num_columns_; }
  /// 1 where the column is let through, else 0.
  [[nodiscard]] std::size_t passes(std::int32_t column) const {
    return bits_[word_of(column)] >> (column % 64) & 1U;
  }
  /// Its number among those let through. Only for one that is.
  [[nodiscard]] std::int32_t number(std::int32_t column) const {
    return before_[word_of(column)] + std::popcount(bits_[word_of(column)] & (bit_of(column) - 1));
  }
  [[nodiscard]] std::int64_t num_bytes() const { return bytes(num_columns_); }
  /// num_bytes() of a filter of so many columns.
  [[nodiscard]] static constexpr std::int64_t bytes(std::int64_t num_columns) {
    return (num_columns + 63) / 64 * 12;
  }

 private:
  static std::size_t word_of(std::int32_t column) { return static_cast<std::size_t>(column) / 64; }
  static std::uint64_t bit_of(std::int32_t column) { return std::uint64_t{1} << (column % 64); }

  std::int64_t num_columns_;
  std::vector<std::uint64_t> bits_;
  std::vector<std::int32_t> before_; // columns that pass, of all words before
  std::vector<std::int32_t> passing_;
};

} // namespace orthant::sampling

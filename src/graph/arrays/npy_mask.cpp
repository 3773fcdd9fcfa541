// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy_streams.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace orthant::graph {

using runtime::throw_user;

std::vector<std::int64_t> NpyMask::vertices(NpyArray array, Share share, std::int64_t split) {
  auto const num_columns = array.num_columns();
  auto const column = num_columns > 1 ? split : 0;
  auto const rows = runtime::balanced_range(array.shape()[0], share.count, share.index);
  if (column < columns_.begin || column >= columns_.end) {
    auto const begin = column / most_columns_at_once * most_columns_at_once;
    columns_ = {begin, std::min(begin + most_columns_at_once, num_columns)};
    read(std::move(array), rows);
  }
  std::vector<std::int64_t> selected;
  for (std::size_t i = 0; i < bits_.size(); ++i)
    if ((bits_[i] >> (column - columns_.begin) & 1) != 0)
      selected.push_back(rows.begin + static_cast<std::int64_t>(i));
  if (column + 1 == columns_.end) *this = {};
  return selected;
}

void NpyMask::read(NpyArray array, Range rows) {
  if (array.type() != "|b1" && !array.is_integer())
    throw_user("{}: type '{}'; a mask is of bool: a.astype(bool)", array.name(), array.type());
  auto const num_columns = array.num_columns();
  auto const most_rows = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / num_columns);
  std::vector<double> members;
  bits_.clear();
  for (auto begin = rows.begin; begin < rows.end; begin += most_rows) {
    auto const end = std::min(begin + most_rows, rows.end);
    members.resize(static_cast<std::size_t>((end - begin) * num_columns));
    array.read(begin * num_columns, std::span(members));
    for (auto row = begin; row < end; ++row) {
      auto& bits = bits_.emplace_back();
      for (auto column = columns_.begin; column < columns_.end; ++column) {
        auto const element = row * num_columns + column;
        auto const member = members[static_cast<std::size_t>(element - begin * num_columns)];
        if (member != 0 && member != 1)
          throw_user("{}: {} at element {} (byte {}) is neither 0 nor 1; a list of vertices is called {}",
                     array.name(), member, element, array.byte_of(element),
                     "train_idx.npy, valid_idx.npy, test_idx.npy");
        if (member == 1) bits |= std::uint64_t{1} << (column - columns_.begin);
      }
    }
  }
}

} // namespace orthant::graph

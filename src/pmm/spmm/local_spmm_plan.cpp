// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm_plan.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <limits>

namespace orthant::pmm::detail {
namespace {

std::int32_t num_steps(RowPiece const& piece) {
  return (piece.length + gathers_at_once - 1) / gathers_at_once;
}

void append_long_row(RowPlan& plan, std::int32_t row, std::int64_t begin, std::int64_t end) {
  auto const first = plan.num_places;
  for (auto start = begin; start < end; start += longest_piece)
    plan.pieces.push_back({start,
                           static_cast<std::int32_t>(std::min<std::int64_t>(end - start, longest_piece)), row,
                           plan.num_places++});
  auto const num_pieces = plan.num_places - first;
  if (num_pieces <= pieces_of_a_group) {
    plan.long_rows.push_back({first, static_cast<std::int32_t>(num_pieces), 1, row});
    return;
  }
  auto const num_groups = (num_pieces + pieces_of_a_group - 1) / pieces_of_a_group;
  for (auto place = first; place < plan.num_places; place += pieces_of_a_group)
    plan.groups.push_back(
        {place, static_cast<std::int32_t>(std::min<std::int64_t>(plan.num_places - place, pieces_of_a_group)),
         1, -1});
  plan.long_rows.push_back({first, static_cast<std::int32_t>(num_groups), pieces_of_a_group, row});
}

} // namespace

RowPlan plan_rows(std::span<std::int64_t const> offsets, runtime::Range rows) {
  ORTHANT_REQUIRE(static_cast<std::int64_t>(offsets.size()) == rows.size() + 1 &&
                      rows.end <= std::numeric_limits<std::int32_t>::max(),
                  rows.size(), " rows up to ", rows.end, ", ", offsets.size(), " offsets");
  RowPlan plan;
  for (auto row = rows.begin; row < rows.end; ++row) {
    auto const begin = offsets[static_cast<std::size_t>(row - rows.begin)];
    auto const end = offsets[static_cast<std::size_t>(row - rows.begin) + 1];
    if (end - begin > longest_piece)
      append_long_row(plan, static_cast<std::int32_t>(row), begin, end);
    else
      plan.pieces.push_back(
          {begin, static_cast<std::int32_t>(end - begin), static_cast<std::int32_t>(row), -1});
  }
  for (auto window = plan.pieces.begin(); window != plan.pieces.end();) {
    auto const next = window + std::min<std::ptrdiff_t>(plan.pieces.end() - window, plan_window);
    std::stable_sort(window, next, [](RowPiece const& one, RowPiece const& other) {
      return num_steps(one) > num_steps(other);
    });
    window = next;
  }
  std::stable_sort(plan.long_rows.begin(), plan.long_rows.end(),
                   [](PieceSum const& one, PieceSum const& other) { return one.count > other.count; });
  return plan;
}

} // namespace orthant::pmm::detail

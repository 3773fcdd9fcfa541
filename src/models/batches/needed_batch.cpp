// SPDX-License-Identifier: Apache-2.0
#include "models/batches/needed_batch.hpp"

#include <numeric>

namespace orthant::models {
namespace {

using runtime::LocalColumn;
using sampling::SampledBlock;
using Places = std::vector<LocalColumn>;

/// The block without other columns than these.
template<class T>
void keep_columns(SampledBlock<T>& block, Places const& places) {
  Places number_of(static_cast<std::size_t>(block.num_columns), -1);
  for (std::size_t i = 0; i < places.size(); ++i)
    number_of[static_cast<std::size_t>(places[i])] = static_cast<LocalColumn>(i);
  for (auto& column : block.columns)
    column = number_of[static_cast<std::size_t>(column)];
  for (auto& column : block.self_columns)
    if (column >= 0) column = number_of[static_cast<std::size_t>(column)];
  std::vector<T> scale; // [groups x columns]
  scale.reserve(static_cast<std::size_t>(block.num_groups) * places.size());
  for (std::int64_t group = 0; group < block.num_groups; ++group)
    for (auto const place : places)
      scale.push_back(block.column_scale[static_cast<std::size_t>(group * block.num_columns + place)]);
  block.column_scale = std::move(scale);
  block.num_columns = std::ssize(places);
}

/// The block without other rows than these; the others have no entries.
template<class T>
void keep_rows(SampledBlock<T>& block, Places const& places) {
  for (std::size_t i = 0; i < places.size(); ++i)
    block.row_offsets[i + 1] = block.row_offsets[static_cast<std::size_t>(places[i]) + 1];
  block.row_offsets.resize(places.size() + 1);
  block.row_scale = pmm::at_places(std::move(block.row_scale), places);
  block.row_groups = pmm::at_places(std::move(block.row_groups), places);
  block.self_columns = pmm::at_places(std::move(block.self_columns), places);
  block.self_scale = pmm::at_places(std::move(block.self_scale), places);
  block.num_rows = std::ssize(places);
}

/// A pattern that touches what the block and its self loops do.
struct TouchedPattern {
  std::vector<runtime::Offset> row_offsets{0};
  Places columns;
};

template<class T>
TouchedPattern touched_pattern(SampledBlock<T> const& block) {
  TouchedPattern pattern;
  pattern.columns.reserve(block.columns.size() + static_cast<std::size_t>(block.num_rows));
  for (std::size_t row = 0; row < static_cast<std::size_t>(block.num_rows); ++row) {
    pattern.columns.insert(pattern.columns.end(), block.columns.begin() + block.row_offsets[row],
                           block.columns.begin() + block.row_offsets[row + 1]);
    if (block.self_columns[row] >= 0) pattern.columns.push_back(block.self_columns[row]);
    pattern.row_offsets.push_back(std::ssize(pattern.columns));
  }
  return pattern;
}

} // namespace

template<class T>
std::shared_ptr<pmm::NeededRows const> keep_needed_rows(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                                        pmm::CellSizes const& sizes,
                                                        sampling::SampledPair<T>& pair, pmm::Gather gather) {
  auto pattern = touched_pattern(pair.block);
  auto needed = std::make_shared<pmm::NeededRows const>(
      plan_needed_rows(grid, roles, sizes, {pattern.row_offsets, pattern.columns}, gather));
  if (needed->over_c) {
    keep_columns(pair.block, needed->over_c->touched);
    keep_rows(pair.transposed, needed->over_c->touched);
  }
  if (needed->over_a) {
    keep_rows(pair.block, needed->over_a->touched);
    keep_columns(pair.transposed, needed->over_a->touched);
  }
  return needed;
}

void plan_needed_lists(pmm::StepPlan& step, pmm::Roles const& roles, pmm::NeededCountsOfAxes const& needed) {
  using runtime::Operation;
  constexpr std::int64_t agreement_bytes = 8;
  constexpr std::int64_t coverage_bytes = 4 * sizeof(std::int64_t);
  step.add_call(Operation::all_reduce, pmm::group_axes, agreement_bytes);
  step.add_call(Operation::all_reduce, pmm::group_axes, coverage_bytes);
  auto const add_lists = [&](pmm::Axis axis, std::optional<pmm::NeededCounts> const& counts) {
    if (!counts) return;
    auto const& touched = counts->touched;
    auto const num_leaving = std::accumulate(touched.begin(), touched.end(), std::int64_t{0}) -
                             touched[static_cast<std::size_t>(step.coordinates().along(axis))];
    step.add_call(Operation::all_to_all, axis,
                  (std::ssize(touched) - 1) * std::int64_t{sizeof(std::int64_t)});
    step.add_call(Operation::all_to_all, axis, num_leaving * std::int64_t{sizeof(LocalColumn)});
  };
  add_lists(roles.c, needed.over_c);
  add_lists(roles.a, needed.over_a);
}

template std::shared_ptr<pmm::NeededRows const> keep_needed_rows(pmm::ProcessGrid const&, pmm::Roles const&,
                                                                 pmm::CellSizes const&,
                                                                 sampling::SampledPair<float>&, pmm::Gather);
template std::shared_ptr<pmm::NeededRows const> keep_needed_rows(pmm::ProcessGrid const&, pmm::Roles const&,
                                                                 pmm::CellSizes const&,
                                                                 sampling::SampledPair<double>&, pmm::Gather);

} // namespace orthant::models

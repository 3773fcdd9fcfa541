// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/batch_edges.hpp"

#include "models/parameters/device_copy.hpp"
#include "runtime/arrays/growing_list.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace orthant::models {
namespace {

/// Makes the lists by column from the lists by row.
void list_by_columns(HostEdges& edges) {
  edges.column_offsets.assign(static_cast<std::size_t>(edges.num_columns) + 1, 0);
  for (auto const column : edges.columns)
    ++edges.column_offsets[static_cast<std::size_t>(column) + 1];
  std::partial_sum(edges.column_offsets.begin(), edges.column_offsets.end(), edges.column_offsets.begin());
  runtime::resize_for_writing(edges.rows, edges.columns.size());
  runtime::resize_for_writing(edges.places, edges.columns.size());
  // Each list is filled from its end, with rows in descending order, so the offsets finally are the beginnings.
  auto& ends = edges.column_offsets;
  for (auto row = edges.num_rows; row-- > 0;)
    for (auto e = edges.row_offsets[static_cast<std::size_t>(row) + 1];
         e-- > edges.row_offsets[static_cast<std::size_t>(row)];) {
      auto const column = static_cast<std::size_t>(edges.columns[static_cast<std::size_t>(e)]);
      auto const place = static_cast<std::size_t>(--ends[column + 1]);
      edges.rows[place] = static_cast<runtime::LocalColumn>(row);
      edges.places[place] = e;
    }
  // ends[j + 1] is now the beginning of list j.
  std::shift_left(ends.begin(), ends.end(), 1);
  ends.back() = std::ssize(edges.columns);
}

} // namespace

template<class T>
void fill_edges(sampling::SampledBlock<T> const& block, HostEdges& edges) {
  edges.num_rows = block.num_rows;
  edges.num_columns = block.num_columns;
  auto const num_loops = std::ranges::count_if(block.self_columns, [](auto column) { return column >= 0; });
  runtime::resize_for_writing(edges.row_offsets, static_cast<std::size_t>(block.num_rows) + 1);
  runtime::resize_for_writing(edges.columns, block.columns.size() + static_cast<std::size_t>(num_loops));
  runtime::resize_for_writing(edges.entries, block.self_entries.empty() ? 0 : edges.columns.size());
  edges.row_offsets[0] = 0;
  auto to = edges.columns.begin();
  for (std::size_t row = 0; row < static_cast<std::size_t>(block.num_rows); ++row) {
    auto const begin = block.columns.begin() + block.row_offsets[row];
    auto const end = block.columns.begin() + block.row_offsets[row + 1];
    auto const self = block.self_columns.empty() ? -1 : block.self_columns[row];
    auto const behind = self < 0 ? end : std::lower_bound(begin, end, self);
    if (!edges.entries.empty()) {
      auto const first = block.entries.begin() + block.row_offsets[row];
      auto entry = std::copy(first, first + (behind - begin), edges.entries.begin() + edges.row_offsets[row]);
      if (self >= 0) *entry++ = block.self_entries[row];
      std::copy(first + (behind - begin), first + (end - begin), entry);
    }
    to = std::copy(begin, behind, to);
    if (self >= 0) *to++ = self;
    to = std::copy(behind, end, to);
    edges.row_offsets[row + 1] = to - edges.columns.begin();
  }
  list_by_columns(edges);
}

template<class T>
void fill_edge_features(std::span<T const> of_sampler, std::int64_t num_features, HostEdges const& edges,
                        std::vector<T>& features) {
  auto const width = static_cast<std::size_t>(num_features);
  runtime::resize_for_writing(features, edges.entries.size() * width);
  for (auto* to = features.data(); auto const entry : edges.entries)
    to = std::copy_n(of_sampler.data() + static_cast<std::size_t>(entry) * width, width, to);
}

EdgeOperands lend_edges(HostEdges& edges, std::vector<std::int64_t>& row_ids,
                        std::vector<std::int64_t>& column_ids) {
  EdgeOperands operands;
  operands.block = {edges.num_rows,
                    edges.num_columns,
                    lent("orthant::models::batch/row_offsets", edges.row_offsets),
                    lent("orthant::models::batch/columns", edges.columns),
                    lent("orthant::models::batch/edge_columns", edges.column_offsets),
                    lent("orthant::models::batch/edge_rows", edges.rows),
                    lent("orthant::models::batch/edge_places", edges.places)};
  operands.row_ids = lent("orthant::models::batch/edge_row_ids", row_ids);
  operands.column_ids = lent("orthant::models::batch/edge_column_ids", column_ids);
  return operands;
}

template<class T>
OwnedAdjacency<T> adjacency_of_edges(pmm::CellSizes sizes, EdgeOperands edges) {
  auto const& block = edges.block;
  OwnedAdjacency<T> adjacency;
  adjacency.sizes = std::move(sizes);
  adjacency.forward = pmm::LocalSpmm<T>(
      pmm::SparseBlock<T>{{block.num_rows, block.num_columns, block.row_offsets, block.columns, {}}, {}, {}});
  adjacency.backward = pmm::LocalSpmm<T>(
      pmm::SparseBlock<T>{{block.num_columns, block.num_rows, block.column_offsets, block.rows, {}}, {}, {}});
  adjacency.edges = std::make_shared<EdgeOperands const>(std::move(edges));
  return adjacency;
}

template<class T>
pmm::TypedEntries entries_of(sampling::SampledBlock<T> const& block, graph::StoreFacts const& facts,
                             std::vector<std::int64_t> const& root_types) {
  graph::CsrBlock csr;
  csr.columns_range = {0, block.num_columns};
  csr.row_offsets = block.row_offsets;
  csr.columns = block.columns;
  csr.relations = block.relations;
  auto entries = entries_of(std::move(csr), facts, root_types);
  entries.counts = block.relation_counts;
  entries.relation_offsets = block.relation_offsets;
  entries.row_relations = block.row_relations;
  return entries;
}

template<class T>
void fill_relations(graph::StoreFacts const& facts, std::vector<std::int64_t> const& root_types,
                    sampling::SampledBlock<T> const& block, std::vector<std::int64_t> const& row_ids,
                    pmm::HostRelationBlock<T>& listed) {
  list_relation_block(with_selves(entries_of(block, facts, root_types), facts,
                                  {{block.self_columns.begin(), block.self_columns.end()}, row_ids}),
                      listed);
}

template<class T>
RelationOperand<T> lend_relations(pmm::HostRelationBlock<T>& listed, pmm::CellSizes sizes) {
  auto const view_of = [](char const*, auto& list) { return lent("orthant::models::batch/relations", list); };
  return {std::make_shared<pmm::RelationBlock<T> const>(
              relation_block_of(listed, pmm::Contents::changing, view_of)),
          std::move(sizes)};
}

template<class T>
void fill_sparse_rows(std::vector<std::int32_t> const& rows, std::int64_t num_columns,
                      SparseRowsOfGraph<T> const& from, HostSparseRows<T>& sparse) {
  auto const is_pattern = from.values.empty();
  auto const begin_of = [&](std::int32_t row) { return from.row_offsets[static_cast<std::size_t>(row)]; };
  runtime::resize_for_writing(sparse.row_offsets, rows.size() + 1);
  sparse.row_offsets[0] = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    sparse.row_offsets[i + 1] = sparse.row_offsets[i] + begin_of(rows[i] + 1) - begin_of(rows[i]);
  auto const num_entries = static_cast<std::size_t>(sparse.row_offsets.back());
  runtime::resize_for_writing(sparse.columns, num_entries);
  runtime::resize_for_writing(sparse.values, is_pattern ? 0 : num_entries);
  auto const copy = [&](auto const& all, auto& to) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy(all.begin() + begin_of(rows[i]), all.begin() + begin_of(rows[i] + 1),
                to.begin() + sparse.row_offsets[i]);
  };
  copy(from.columns, sparse.columns);
  if (!is_pattern) copy(from.values, sparse.values);
  sparse.row_scale.clear();
  for (std::size_t i = 0; i < rows.size() && !from.row_scale.empty(); ++i)
    sparse.row_scale.push_back(from.row_scale[static_cast<std::size_t>(rows[i])]);

  // The transpose, by counting: rows ascend within a column.
  sparse.column_offsets.assign(static_cast<std::size_t>(num_columns) + 1, 0);
  for (auto const column : sparse.columns)
    ++sparse.column_offsets[static_cast<std::size_t>(column) + 1];
  std::partial_sum(sparse.column_offsets.begin(), sparse.column_offsets.end(), sparse.column_offsets.begin());
  runtime::resize_for_writing(sparse.rows, sparse.columns.size());
  runtime::resize_for_writing(sparse.transposed_values, sparse.values.size());
  auto next = sparse.column_offsets;
  for (std::size_t row = 0; row + 1 < sparse.row_offsets.size(); ++row)
    for (auto k = static_cast<std::size_t>(sparse.row_offsets[row]);
         k < static_cast<std::size_t>(sparse.row_offsets[row + 1]); ++k) {
      auto const place = static_cast<std::size_t>(next[static_cast<std::size_t>(sparse.columns[k])]++);
      sparse.rows[place] = static_cast<runtime::LocalColumn>(row);
      if (!is_pattern) sparse.transposed_values[place] = sparse.values[k];
    }
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void fill_edges(sampling::SampledBlock<T> const&, HostEdges&);                                    \
  template void fill_edge_features(std::span<T const>, std::int64_t, HostEdges const&, std::vector<T>&);     \
  template pmm::TypedEntries entries_of(sampling::SampledBlock<T> const&, graph::StoreFacts const&,          \
                                        std::vector<std::int64_t> const&);                                   \
  template void fill_relations(graph::StoreFacts const&, std::vector<std::int64_t> const&,                   \
                               sampling::SampledBlock<T> const&, std::vector<std::int64_t> const&,           \
                               pmm::HostRelationBlock<T>&);                                                  \
  template RelationOperand<T> lend_relations(pmm::HostRelationBlock<T>&, pmm::CellSizes);                    \
  template void fill_sparse_rows(std::vector<std::int32_t> const&, std::int64_t,                             \
                                 SparseRowsOfGraph<T> const&, HostSparseRows<T>&);                           \
  template OwnedAdjacency<T> adjacency_of_edges(pmm::CellSizes, EdgeOperands);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

template<class T>
BatchBlocks<T> DroppedBatch<T>::with_values(std::size_t index, bool is_transposed, BatchBlocks<T> blocks,
                                            BlockIds const& ids, std::vector<pmm::DroppedBlock<T>>& all) {
  pairs_.resize(std::max(pairs_.size(), index + 1));
  auto& pair = pairs_[index];
  auto const forward = is_transposed ? std::size_t{1} : std::size_t{0};
  auto const add = [&](std::size_t which, pmm::SparseBlock<T> const& block, auto const& rows,
                       auto const& columns) {
    auto const num_nonzeros = block.csr.num_nonzeros();
    pair.values[which] = runtime::part_of(pair.memory[which].reserve(num_nonzeros), 0, num_nonzeros);
    static_cast<void>(with_dropped_values(block, pair.values[which], rows, columns, all));
  };
  if (!pair.is_used) {
    add(forward, blocks.forward, ids.rows, ids.columns);
    add(1 - forward, blocks.adjoint, ids.columns, ids.rows);
    pair.is_used = true;
  }
  blocks.forward.csr.values = pair.values[forward];
  blocks.adjoint.csr.values = pair.values[1 - forward];
  return blocks;
}

template<class T>
pmm::SparseBlock<T> DroppedBatch<T>::with_values(pmm::SparseBlock<T> block, BlockIds const& ids,
                                                 std::vector<pmm::DroppedBlock<T>>& all) {
  pairs_.resize(1);
  auto const count = block.csr.num_nonzeros();
  auto const values = runtime::part_of(pairs_.front().memory.front().reserve(count), 0, count);
  return with_dropped_values(std::move(block), values, ids.rows, ids.columns, all);
}

template<class T>
pmm::SparseBlock<T> to_sparse_block(sampling::SampledBlock<T> const& from) {
  // The batch is borrowed; the block never writes to it.
  auto& block = const_cast<sampling::SampledBlock<T>&>(from);
  pmm::SparseBlock<T> result;
  result.csr = {block.num_rows, block.num_columns,
                lent("orthant::models::batch/row_offsets", block.row_offsets),
                lent("orthant::models::batch/columns", block.columns),
                lent("orthant::models::batch/values", block.values)};
  if (block.num_rows == 0)
    return result; // without rows there are no groups, so the number of column scales
                   // differs
  result.row_scale = lent("orthant::models::batch/row_scale", block.row_scale);
  result.column_scale = lent("orthant::models::batch/column_scale", block.column_scale);
  result.row_groups = lent("orthant::models::batch/row_groups", block.row_groups);
  result.self_columns = lent("orthant::models::batch/self_columns", block.self_columns);
  result.self_scale = lent("orthant::models::batch/self_scale", block.self_scale);
  return result;
}

template pmm::SparseBlock<float> to_sparse_block(sampling::SampledBlock<float> const&);
template pmm::SparseBlock<double> to_sparse_block(sampling::SampledBlock<double> const&);
template class DroppedBatch<float>;
template class DroppedBatch<double>;

namespace {

using runtime::LocalColumn;
using sampling::SampledBlock;
using Places = std::vector<LocalColumn>;

/// Removes all other columns from the block.
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

/// Removes all other rows from the block; they must have no entries.
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

/// A pattern that touches the same rows and columns as the block and its self loops.
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

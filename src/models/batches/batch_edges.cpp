// SPDX-License-Identifier: Apache-2.0
#include "models/batches/batch_edges.hpp"

#include "models/core/device_copy.hpp"
#include "runtime/arrays/growing_list.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace orthant::models {
namespace {

/// The lists by column of what is there by rows.
void list_by_columns(HostEdges& edges) {
  edges.column_offsets.assign(static_cast<std::size_t>(edges.num_columns) + 1, 0);
  for (auto const column : edges.columns)
    ++edges.column_offsets[static_cast<std::size_t>(column) + 1];
  std::partial_sum(edges.column_offsets.begin(), edges.column_offsets.end(), edges.column_offsets.begin());
  runtime::resize_for_writing(edges.rows, edges.columns.size());
  runtime::resize_for_writing(edges.places, edges.columns.size());
  // Places are taken from the end of each list, rows in descending order, so that the offsets end as they began.
  auto& ends = edges.column_offsets;
  for (auto row = edges.num_rows; row-- > 0;)
    for (auto e = edges.row_offsets[static_cast<std::size_t>(row) + 1];
         e-- > edges.row_offsets[static_cast<std::size_t>(row)];) {
      auto const column = static_cast<std::size_t>(edges.columns[static_cast<std::size_t>(e)]);
      auto const place = static_cast<std::size_t>(--ends[column + 1]);
      edges.rows[place] = static_cast<runtime::LocalColumn>(row);
      edges.places[place] = e;
    }
  // Now ends[j + 1] is where list j begins.
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
  edges.row_offsets[0] = 0;
  auto to = edges.columns.begin();
  for (std::size_t row = 0; row < static_cast<std::size_t>(block.num_rows); ++row) {
    auto const begin = block.columns.begin() + block.row_offsets[row];
    auto const end = block.columns.begin() + block.row_offsets[row + 1];
    auto const self = block.self_columns.empty() ? -1 : block.self_columns[row];
    auto const behind = self < 0 ? end : std::lower_bound(begin, end, self);
    to = std::copy(begin, behind, to);
    if (self >= 0) *to++ = self;
    to = std::copy(behind, end, to);
    edges.row_offsets[row + 1] = to - edges.columns.begin();
  }
  list_by_columns(edges);
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

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void fill_edges(sampling::SampledBlock<T> const&, HostEdges&);                                    \
  template OwnedAdjacency<T> adjacency_of_edges(pmm::CellSizes, EdgeOperands);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

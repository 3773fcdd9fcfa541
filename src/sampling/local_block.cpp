// SPDX-License-Identifier: Apache-2.0
//
// Reading a rectangle of a store, or lists of rows and columns, for sampling.
#include "sampling/block_sampler.hpp"

#include "runtime/numbers/counts.hpp"

namespace orthant::sampling {
namespace {

using runtime::index;

using graph::CsrBlock;
using graph::SelfLoops;

/// selves[r]: the column of the block where row r meets itself, or -1.
std::vector<runtime::LocalColumn> self_columns_of(graph::GraphStore const& store, graph::Parity parity,
                                                  Range rows, Range columns) {
  auto const places = store.read_other_positions(graph::row_order(parity), rows);
  std::vector<runtime::LocalColumn> selves;
  selves.reserve(places.size());
  for (auto const place : places)
    selves.push_back(columns.contains(place) ? static_cast<runtime::LocalColumn>(place - columns.begin) : -1);
  return selves;
}

/// Takes the entries where a vertex meets itself out of the block. weights[r]: their sum in row r; where row
/// r has none, selves[r] becomes -1.
std::vector<double> take_self_loops(CsrBlock& block, std::vector<runtime::LocalColumn>& selves) {
  std::vector<double> weights(selves.size());
  std::size_t num_kept = 0;
  std::size_t k = 0;
  for (std::size_t row = 0; row < selves.size(); ++row) {
    bool has_one = false;
    for (auto const end = index(block.row_offsets[row + 1]); k < end; ++k) {
      auto const value = block.values.empty() ? 1.0F : block.values[k];
      if (block.columns[k] == selves[row]) {
        weights[row] += static_cast<double>(value);
        has_one = true;
        continue;
      }
      block.columns[num_kept] = block.columns[k];
      if (!block.values.empty()) block.values[num_kept] = value;
      ++num_kept;
    }
    block.row_offsets[row + 1] = static_cast<std::int64_t>(num_kept);
    if (!has_one) selves[row] = -1;
  }
  block.columns.resize(num_kept);
  block.values.resize(block.values.empty() ? 0 : num_kept);
  return weights;
}

/// The same of lists, which are of one order: where a position meets itself.
std::vector<runtime::LocalColumn> self_columns_of(graph::Ranges const& rows, graph::Ranges const& columns) {
  graph::ListPlaces const place_of(columns);
  std::vector<runtime::LocalColumn> selves;
  for (auto const& range : rows)
    for (auto position = range.begin; position < range.end; ++position)
      selves.push_back(static_cast<runtime::LocalColumn>(place_of(position)));
  return selves;
}

/// Those that are added lie apart from A without its own; A's own are read, and taken out.
SelfLoops stored_self_loops(graph::StoreFacts const& facts) {
  return facts.adds_self_loops() ? SelfLoops::dropped : facts.graph_operator().self_loops;
}

template<class T>
LocalBlock<T> with_self_loops_apart(CsrBlock pattern, bool adds, std::vector<runtime::LocalColumn> selves,
                                    graph::Scales const& scales) {
  auto const weights = adds ? std::vector<double>(selves.size(), 1.0) : take_self_loops(pattern, selves);
  LocalBlock<T> block{pattern.rows.size(),
                      pattern.columns_range.size(),
                      std::move(pattern.row_offsets),
                      std::move(pattern.columns),
                      {pattern.values.begin(), pattern.values.end()},
                      {scales.rows.begin(), scales.rows.end()},
                      {scales.columns.begin(), scales.columns.end()},
                      std::move(selves),
                      {}};
  for (std::size_t row = 0; row < weights.size(); ++row) {
    auto const column = block.self_columns[row];
    auto const r = scales.rows.empty() ? 1 : scales.rows[row];
    auto const s = scales.columns.empty() || column < 0 ? 1 : scales.columns[index(column)];
    block.self_scale.push_back(static_cast<T>(r * weights[row] * s));
  }
  return block;
}

} // namespace

template<class T>
LocalBlock<T> read_local_block(graph::GraphStore const& store, graph::Parity parity, Range rows,
                               Range columns) {
  auto const& facts = store.facts();
  return with_self_loops_apart<T>(store.read_block(parity, rows, columns, stored_self_loops(facts)),
                                  facts.adds_self_loops(), self_columns_of(store, parity, rows, columns),
                                  store.read_scales(parity, rows, columns));
}

template<class T>
LocalBlock<T> read_local_block(graph::GraphStore const& store, graph::Ranges const& rows,
                               graph::Ranges const& columns) {
  auto const& facts = store.facts();
  return with_self_loops_apart<T>(read_listed_block(store, rows, columns, stored_self_loops(facts)),
                                  facts.adds_self_loops(), self_columns_of(rows, columns),
                                  read_listed_scales(store, rows, columns));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template LocalBlock<T> read_local_block(graph::GraphStore const&, graph::Parity, Range, Range);            \
  template LocalBlock<T> read_local_block(graph::GraphStore const&, graph::Ranges const&,                    \
                                          graph::Ranges const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::sampling

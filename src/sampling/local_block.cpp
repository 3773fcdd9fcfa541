// SPDX-License-Identifier: Apache-2.0
//
// Reads blocks for sampling from a store: a rectangle, or lists of rows and columns.
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"
#include "sampling/block_sampler.hpp"

#include <utility>

namespace orthant::sampling {
namespace {

using graph::CsrBlock;
using graph::SelfLoops;
using runtime::index;

/// selves[r] is the column of the block where row r meets itself, or -1.
std::vector<runtime::LocalColumn> self_columns_of(graph::GraphStore const& store, graph::Parity parity,
                                                  Range rows, Range columns) {
  auto const places = store.read_other_positions(graph::row_order(parity), rows);
  std::vector<runtime::LocalColumn> selves;
  selves.reserve(places.size());
  for (auto const place : places)
    selves.push_back(columns.contains(place) ? static_cast<runtime::LocalColumn>(place - columns.begin) : -1);
  return selves;
}

/// Removes the entries where a vertex meets itself from the block. weights[r] is their sum in row r. If row r has no such entry, selves[r]
/// becomes -1. Features of the removed entries, or 0, become those of the rows, behind those of the entries.
std::vector<double> take_self_loops(CsrBlock& block, std::vector<runtime::LocalColumn>& selves) {
  std::vector<double> weights(selves.size());
  auto const width = index(block.num_features);
  std::vector<double> of_selves(selves.size() * width);
  auto const move_features = [&](std::size_t from, std::vector<double>& to, std::size_t place) {
    for (std::size_t f = 0; f < width; ++f)
      to[place * width + f] = block.features[from * width + f];
  };
  std::size_t num_kept = 0;
  std::size_t k = 0;
  for (std::size_t row = 0; row < selves.size(); ++row) {
    bool has_one = false;
    for (auto const end = index(block.row_offsets[row + 1]); k < end; ++k) {
      auto const value = block.values.empty() ? 1.0F : block.values[k];
      if (block.columns[k] == selves[row]) {
        weights[row] += static_cast<double>(value);
        move_features(k, of_selves, row);
        has_one = true;
        continue;
      }
      block.columns[num_kept] = block.columns[k];
      if (!block.values.empty()) block.values[num_kept] = value;
      move_features(k, block.features, num_kept);
      ++num_kept;
    }
    block.row_offsets[row + 1] = static_cast<std::int64_t>(num_kept);
    if (!has_one) selves[row] = -1;
  }
  block.columns.resize(num_kept);
  block.values.resize(block.values.empty() ? 0 : num_kept);
  block.features.resize(num_kept * width);
  block.features.insert(block.features.end(), of_selves.begin(), of_selves.end());
  return weights;
}

/// selves[r] for lists of ranges of one order, where row r and its column have the same position, or -1.
std::vector<runtime::LocalColumn> self_columns_of(graph::Ranges const& rows, graph::Ranges const& columns) {
  graph::ListPlaces const place_of(columns);
  std::vector<runtime::LocalColumn> selves;
  for (auto const& range : rows)
    for (auto position = range.begin; position < range.end; ++position)
      selves.push_back(static_cast<runtime::LocalColumn>(place_of(position)));
  return selves;
}

/// Whether self loops are added to the block, which is then read without those of A. Otherwise self loops are read and then removed from the
/// block: those of A, or added ones that have features.
bool adds_apart(graph::StoreFacts const& facts) {
  return facts.adds_self_loops() && facts.num_edge_features == 0;
}
SelfLoops stored_self_loops(graph::StoreFacts const& facts) {
  return adds_apart(facts) ? SelfLoops::dropped : facts.graph_operator().self_loops;
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
                      {},
                      {scales.rows.begin(), scales.rows.end()},
                      {scales.columns.begin(), scales.columns.end()},
                      std::move(selves),
                      {},
                      pattern.num_features,
                      {pattern.features.begin(), pattern.features.end()}};
  for (std::size_t row = 0; row < weights.size(); ++row) {
    auto const column = block.self_columns[row];
    auto const r = scales.rows.empty() ? 1 : scales.rows[row];
    auto const s = scales.columns.empty() || column < 0 ? 1 : scales.columns[index(column)];
    block.self_scale.push_back(static_cast<T>(r * weights[row] * s));
  }
  return block;
}

template<class T>
LocalBlock<T> with_relations(CsrBlock pattern, std::vector<runtime::LocalColumn> selves) {
  ORTHANT_REQUIRE(pattern.relations.size() == pattern.columns.size(), "a block without relations");
  LocalBlock<T> block;
  block.num_rows = pattern.rows.size();
  block.num_columns = pattern.columns_range.size();
  block.row_offsets = std::move(pattern.row_offsets);
  block.columns = std::move(pattern.columns);
  block.relations = std::move(pattern.relations);
  block.self_columns = std::move(selves);
  return block;
}

} // namespace

template<class T>
LocalBlock<T> read_local_block(graph::GraphStore const& store, graph::Parity parity, Range rows,
                               Range columns, BlockScales scales) {
  auto const& facts = store.facts();
  if (scales == BlockScales::none)
    return with_relations<T>(store.read_block(parity, rows, columns, SelfLoops::as_given),
                             self_columns_of(store, parity, rows, columns));
  return with_self_loops_apart<T>(store.read_block(parity, rows, columns, stored_self_loops(facts)),
                                  adds_apart(facts), self_columns_of(store, parity, rows, columns),
                                  store.read_scales(parity, rows, columns));
}

template<class T>
LocalBlock<T> read_local_block(graph::GraphStore const& store, graph::Ranges const& rows,
                               graph::Ranges const& columns, BlockScales scales) {
  auto const& facts = store.facts();
  if (scales == BlockScales::none)
    return with_relations<T>(read_listed_block(store, rows, columns, SelfLoops::as_given),
                             self_columns_of(rows, columns));
  return with_self_loops_apart<T>(read_listed_block(store, rows, columns, stored_self_loops(facts)),
                                  adds_apart(facts), self_columns_of(rows, columns),
                                  read_listed_scales(store, rows, columns));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template LocalBlock<T> read_local_block(graph::GraphStore const&, graph::Parity, Range, Range,             \
                                          BlockScales);                                                      \
  template LocalBlock<T> read_local_block(graph::GraphStore const&, graph::Ranges const&,                    \
                                          graph::Ranges const&, BlockScales);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::sampling

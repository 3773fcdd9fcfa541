// SPDX-License-Identifier: Apache-2.0
#include "sampling/batch_builder.hpp"

#include "runtime/arrays/growing_list.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>

namespace orthant::sampling {
namespace {

using runtime::index;
using runtime::Range;

/// Number of columns that are read at once. It is limited because their vertices' keys need memory in addition to the lists.
std::int64_t columns_at_once(std::int64_t num_vertices) {
  constexpr std::int64_t least = std::int64_t{1} << 20;
  constexpr std::int64_t most_pieces = 64;
  return std::max(least, divided_up(num_vertices, most_pieces));
}

/// Numbers of entries of these rows of A. With relations, self loops count, and degrees are not stored for them: rows are read in pieces.
std::vector<std::int64_t> read_num_entries(graph::GraphStore const& store, graph::Parity parity, Range rows,
                                           bool has_relations) {
  if (!has_relations) {
    auto const degrees = store.read_degrees(graph::row_order(parity), rows);
    return {degrees.begin(), degrees.end()};
  }
  auto const n = store.facts().num_vertices;
  std::vector<std::int64_t> counts(index(rows.size()), 0);
  for (std::int64_t begin = 0; begin < n; begin += columns_at_once(n)) {
    auto const block = store.read_block(parity, rows, {begin, std::min(n, begin + columns_at_once(n))},
                                        graph::SelfLoops::as_given);
    for (std::size_t row = 0; row < counts.size(); ++row)
      counts[row] += block.row_offsets[row + 1] - block.row_offsets[row];
  }
  return counts;
}

} // namespace

NeighbourLists::NeighbourLists(runtime::Communicator const& comm, graph::GraphStore const& store,
                               SamplingKeys const& keys, graph::Order order, graph::Ranges const& ranges,
                               BatchEdges edges) {
  auto const& facts = store.facts();
  auto const parity =
      order == graph::Order::p1 || !facts.has_two_orders() ? graph::Parity::even : graph::Parity::odd;
  auto const n = facts.num_vertices;
  of_self_loop_ = facts.adds_self_loops() ? 1 : 0;
  auto const has_relations = edges == BatchEdges::relations;
  auto const self_loops = has_relations ? graph::SelfLoops::as_given : graph::SelfLoops::dropped;
  num_relations_ = has_relations ? facts.num_relations() : 0;
  auto next = runtime::together(comm, [&] {
    offsets_.assign(1, 0);
    for (auto const& range : ranges)
      for (auto const degree : read_num_entries(store, parity, range, has_relations))
        offsets_.push_back(offsets_.back() + degree);
    keys_ = PackedIds(n, offsets_.back());
    weights_.resize(facts.is_weighted && !has_relations ? index(offsets_.back()) : 0);
    relations_.resize(has_relations ? index(offsets_.back()) : 0);
    return std::vector<std::int64_t>(offsets_.begin(), offsets_.end() - 1);
  });
  auto const step = columns_at_once(n);
  for (std::int64_t begin = 0; begin < n; begin += step) {
    Range const columns{begin, std::min(n, begin + step)};
    auto const column_keys = keys.of(runtime::together(
        comm, [&] { return read_original_ids(store, graph::column_order(parity), {columns}); }));
    runtime::together(comm, [&] {
      std::size_t place = 0;
      for (auto const& range : ranges) {
        auto const block = store.read_block(parity, range, columns, self_loops);
        for (std::size_t row = 0; row < index(range.size()); ++row, ++place)
          for (auto k = index(block.row_offsets[row]); k < index(block.row_offsets[row + 1]); ++k) {
            auto const to = index(next[place]++);
            keys_.set(to, column_keys[index(block.columns[k])]);
            if (!weights_.empty()) weights_[to] = block.values[k];
            if (has_relations) relations_[to] = block.relations[k];
          }
      }
    });
  }
}

void NeighbourLists::find_degrees(std::span<std::int32_t const> places, KeyBits const& batch,
                                  std::vector<double>& degrees) const {
  degrees.clear();
  for (auto const place : places) {
    auto degree = of_self_loop_;
    for (auto k = index(offsets_[index(place)]); k < index(offsets_[index(place) + 1]); ++k)
      if (batch.has(keys_[k])) degree += weights_.empty() ? 1.0 : static_cast<double>(weights_[k]);
    degrees.push_back(degree);
  }
}

template<class T>
void NeighbourLists::count_relations(std::span<std::int32_t const> places, KeyBits const& batch,
                                     SampledBlock<T>& block) const {
  std::vector<std::int32_t> counts(index(num_relations_), 0);
  runtime::resize_for_writing(block.relation_counts, block.relations.size());
  block.relation_offsets.assign(1, 0);
  block.row_relations.clear();
  for (std::size_t row = 0; row < places.size(); ++row) {
    auto const for_each_neighbour = [&](auto const& visit) {
      for (auto k = index(offsets_[index(places[row])]); k < index(offsets_[index(places[row]) + 1]); ++k)
        if (batch.has(keys_[k])) visit(relations_[k]);
    };
    for_each_neighbour([&](std::uint16_t relation) {
      if (counts[relation]++ == 0) block.row_relations.push_back(relation);
    });
    std::sort(block.row_relations.begin() + block.relation_offsets.back(), block.row_relations.end());
    for (auto e = index(block.row_offsets[row]); e < index(block.row_offsets[row + 1]); ++e)
      block.relation_counts[e] = counts[block.relations[e]];
    for (auto k = index(block.relation_offsets.back()); k < block.row_relations.size(); ++k)
      counts[block.row_relations[k]] = 0;
    block.relation_offsets.push_back(std::ssize(block.row_relations));
  }
}

template<class T>
BatchBuilder<T>::BatchBuilder(runtime::Communicator const& comm, graph::GraphStore const& store,
                              Sampler const& sampler, BatchEdges edges)
    : comm_(comm),
      store_(store),
      sampler_(sampler),
      edges_(edges),
      keys_(comm, store, sampler.strata(), sampler.stratum_sizes().size()) {
  ORTHANT_REQUIRE(sampler.stratum_sizes() == keys_.sizes(), "a sampler of other strata than the ",
                  keys_.num_strata(), " of a store of ", store.facts().num_vertices, " vertices");
  if (edges == BatchEdges::rescale) return;
  ORTHANT_REQUIRE(edges == BatchEdges::relations || store.facts().normalization != graph::Normalization::none,
                  "degrees of a graph without normalization");
  batch_keys_ = KeyBits(store.facts().num_vertices);
}

template<class T>
std::size_t BatchBuilder<T>::add_ranges(Order order, graph::Ranges const& ranges) {
  if (!store_.facts().has_two_orders()) order = Order::p1;
  auto const known = std::find_if(ranges_.begin(), ranges_.end(), [&](KnownRange const& other) {
    return other.order == order && other.ranges == ranges;
  });
  auto const number = static_cast<std::size_t>(known - ranges_.begin());
  // The range may be new on some ranks only, but all ranks must take part in the collective calls.
  auto const is_new = known == ranges_.end();
  if (runtime::all_reduced(comm_, std::int64_t{is_new ? 1 : 0}, runtime::Reduction::max) == 0) return number;
  auto ids = runtime::together(
      comm_, [&] { return is_new ? read_original_ids(store_, order, ranges) : PackedIds(); });
  auto const keys = keys_.num_strata() == 1 ? PackedIds() : keys_.of(ids);
  runtime::together(comm_, [&] {
    if (!is_new) return;
    auto vertices = keys_.num_strata() == 1 ? LocalVertices(ids) : LocalVertices(keys, std::move(ids));
    ranges_.push_back({order, ranges, std::move(vertices), ColumnFilter(0), {}});
  });
  return number;
}

template<class T>
void BatchBuilder<T>::add_other_positions(std::size_t range) {
  runtime::together(comm_, [&] {
    auto& [order, places, vertices, filter, neighbours] = ranges_[range];
    if (!vertices.has_other_positions())
      vertices.set_other_positions(read_other_positions(store_, order, places));
  });
}

template<class T>
std::size_t BatchBuilder<T>::find_block(std::optional<Parity> parity, std::size_t rows,
                                        std::size_t columns) const {
  auto const found = std::find_if(blocks_.begin(), blocks_.end(), [&](KnownBlock<T> const& block) {
    return block.parity == parity && block.rows == rows && block.columns == columns;
  });
  return static_cast<std::size_t>(found - blocks_.begin());
}

template<class T>
template<class Read>
void BatchBuilder<T>::keep_block(BlockHandle handle, std::optional<Parity> parity, std::size_t rows,
                                 std::size_t columns, Read const& read) {
  runtime::together(comm_, [&] {
    if (handle.index < blocks_.size()) return;
    blocks_.push_back({parity, rows, columns, BlockSampler<T>(read(), scales())});
    auto& column_range = ranges_[columns];
    if (column_range.filter.num_columns() == 0)
      column_range.filter = ColumnFilter(graph::total_size(column_range.ranges));
  });
  if (edges_ == BatchEdges::rescale) return;
  add_neighbours(rows);
  if (edges_ == BatchEdges::renormalize) add_neighbours(columns);
}

template<class T>
void BatchBuilder<T>::add_neighbours(std::size_t range) {
  auto& known = ranges_[range];
  // The lists may be missing on some ranks only, but all ranks must take part in the collective calls.
  auto const are_missing = known.neighbours.empty();
  if (runtime::all_reduced(comm_, std::int64_t{are_missing ? 1 : 0}, runtime::Reduction::max) == 0) return;
  NeighbourLists lists(comm_, store_, keys_, known.order, are_missing ? known.ranges : graph::Ranges(),
                       edges_);
  if (are_missing) known.neighbours = std::move(lists);
}

template<class T>
BlockScales BatchBuilder<T>::scales() const {
  if (edges_ == BatchEdges::rescale) return BlockScales::of_graph;
  if (edges_ == BatchEdges::relations) return BlockScales::none;
  return store_.facts().normalization == graph::Normalization::row ? BlockScales::row_in_batch
                                                                   : BlockScales::symmetric_in_batch;
}

template<class T>
BlockHandle BatchBuilder<T>::add_block(Parity parity, Range rows, Range columns) {
  auto const& facts = store_.facts();
  if (!facts.has_two_orders()) parity = Parity::even;
  auto const row_range = add_range(graph::row_order(parity), rows);
  auto const column_range = add_range(graph::column_order(parity), columns);
  // Even if A is symmetric, D^-1 (A + I) is not, nor is A~ if m(a, b) depends on the neighbor's stratum.
  bool const is_symmetric = edges_ != BatchEdges::relations && facts.is_symmetric &&
                            facts.normalization != graph::Normalization::row &&
                            (edges_ == BatchEdges::renormalize || sampler_.has_symmetric_factors());
  auto const transposed_parity =
      !facts.has_two_orders() || parity == Parity::odd ? Parity::even : Parity::odd;
  auto const same = find_block(parity, row_range, column_range);
  auto const mirrored =
      is_symmetric ? find_block(transposed_parity, column_range, row_range) : blocks_.size();
  auto const handle = same == blocks_.size() && mirrored != blocks_.size() ? BlockHandle{mirrored, true}
                                                                           : BlockHandle{same, false};
  keep_block(handle, parity, row_range, column_range,
             [&] { return read_local_block<T>(store_, parity, rows, columns, scales()); });
  return handle;
}

template<class T>
BlockHandle BatchBuilder<T>::add_block(graph::Ranges const& rows, graph::Ranges const& columns) {
  auto const row_range = add_ranges(Order::p1, rows);
  auto const column_range = add_ranges(Order::p1, columns);
  BlockHandle const handle{find_block(std::nullopt, row_range, column_range), false};
  keep_block(handle, std::nullopt, row_range, column_range,
             [&] { return read_local_block<T>(store_, rows, columns, scales()); });
  return handle;
}

template<class T>
void BatchBuilder<T>::build(std::int64_t epoch, std::int64_t index, Batch<T>& batch) {
  batch.epoch = epoch;
  batch.index = index;
  batch.vertices.resize(ranges_.size());
  batch.blocks.resize(blocks_.size());
  sampler_.draw(epoch, index, batch.keys);
  if (edges_ != BatchEdges::rescale) batch_keys_.set(batch.keys.keys);
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    ranges_[i].vertices.find(batch.keys, batch.vertices[i]);
    if (edges_ == BatchEdges::renormalize && !ranges_[i].neighbours.empty())
      ranges_[i].neighbours.find_degrees(batch.vertices[i].positions, batch_keys_, batch.vertices[i].degrees);
    if (ranges_[i].filter.num_columns() > 0) ranges_[i].filter.set(batch.vertices[i].positions);
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    auto& block = blocks_[i];
    block.sampler.sample(batch.vertices[block.rows], batch.vertices[block.columns],
                         ranges_[block.columns].filter, batch.keys, batch.blocks[i]);
    if (edges_ == BatchEdges::relations)
      ranges_[block.rows].neighbours.count_relations(batch.vertices[block.rows].positions, batch_keys_,
                                                     batch.blocks[i].block);
  }
}

template class BatchBuilder<float>;
template class BatchBuilder<double>;

} // namespace orthant::sampling

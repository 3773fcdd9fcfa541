// SPDX-License-Identifier: Apache-2.0
#include "models/core/owned_adjacency.hpp"

#include "models/core/device_copy.hpp"
#include "models/core/graph_operands.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace orthant::models {
namespace {

using graph::CsrBlock;
using graph::GraphStore;
using graph::Order;
using graph::Parity;
using runtime::Range;
using Ranges = std::vector<Range>;

std::int64_t total_size(Ranges const& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), std::int64_t{0},
                         [](std::int64_t sum, Range const& range) { return sum + range.size(); });
}

/// The place of a position in the list that ranges make, or -1.
class ListPlaces {
 public:
  explicit ListPlaces(Ranges const& ranges) {
    auto begin = std::int64_t{0};
    for (auto const& range : ranges) {
      sorted_.push_back({range, begin});
      begin += range.size();
    }
    std::ranges::sort(sorted_, {}, [](Part const& part) { return part.range.begin; });
  }
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const {
    auto const after =
        std::ranges::upper_bound(sorted_, position, {}, [](Part const& part) { return part.range.begin; });
    if (after == sorted_.begin()) return -1;
    auto const& part = *std::prev(after);
    return part.range.contains(position) ? part.place + position - part.range.begin : -1;
  }

 private:
  struct Part {
    Range range;
    std::int64_t place = 0;
  };
  std::vector<Part> sorted_;
};

/// Entries that arrive in pieces of some columns, each with the place of its column in the list.
class ListedEntries {
 public:
  static constexpr std::int64_t entry_bytes = 16;

  explicit ListedEntries(std::int64_t num_rows) : num_rows_(static_cast<std::size_t>(num_rows)) {}

  void add(CsrBlock const& piece, std::int64_t first_row, std::vector<std::int32_t> const& place_of_column) {
    has_values_ = has_values_ || !piece.values.empty();
    for (std::size_t row = 0; row + 1 < piece.row_offsets.size(); ++row)
      for (auto k = static_cast<std::size_t>(piece.row_offsets[row]);
           k < static_cast<std::size_t>(piece.row_offsets[row + 1]); ++k)
        if (auto const place = place_of_column[static_cast<std::size_t>(piece.columns[k])]; place >= 0)
          entries_.push_back({first_row + static_cast<std::int64_t>(row), place,
                              piece.values.empty() ? 1.0F : piece.values[k]});
  }

  /// Rows ascend, and columns within a row. Takes the entries.
  [[nodiscard]] CsrBlock block(std::int64_t num_columns) && {
    CsrBlock block;
    block.rows = {0, static_cast<std::int64_t>(num_rows_)};
    block.columns_range = {0, num_columns};
    block.row_offsets.assign(num_rows_ + 1, 0);
    std::ranges::sort(entries_, {}, [](Entry const& entry) { return std::pair(entry.row, entry.column); });
    for (auto const& entry : entries_) {
      ++block.row_offsets[static_cast<std::size_t>(entry.row) + 1];
      block.columns.push_back(entry.column);
      if (has_values_) block.values.push_back(entry.value);
    }
    std::partial_sum(block.row_offsets.begin(), block.row_offsets.end(), block.row_offsets.begin());
    return block;
  }

 private:
  struct Entry {
    std::int64_t row;
    std::int32_t column;
    float value;
  };
  static_assert(sizeof(Entry) == entry_bytes);
  std::size_t num_rows_;
  std::vector<Entry> entries_;
  bool has_values_ = false;
};

/// Columns are read in slabs of about that many entries.
constexpr std::int64_t entries_per_slab = std::int64_t{1} << 22;

/// Ranges of columns of the stored matrix that hold all of the listed ones.
Ranges stored_columns(graph::StoreFacts const& facts, Ranges const& rows, Ranges const& columns) {
  if (!facts.has_two_orders()) return columns;
  auto const n = facts.num_vertices;
  auto const entries = static_cast<double>(facts.num_entries + n) * static_cast<double>(total_size(rows)) /
                       static_cast<double>(std::max<std::int64_t>(n, 1));
  auto const num_slabs = std::clamp<std::int64_t>(static_cast<std::int64_t>(entries) / entries_per_slab + 1,
                                                  1, std::max<std::int64_t>(n, 1));
  Ranges slabs;
  for (std::int64_t i = 0; i < num_slabs; ++i)
    slabs.push_back(runtime::balanced_range(n, num_slabs, i));
  return slabs;
}

/// For each column of a range of the stored matrix its place in the list, or -1.
std::vector<std::int32_t> places_of(GraphStore const& store, ListPlaces const& list, Range columns) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(columns.size()));
  if (store.facts().has_two_orders())
    positions = store.read_other_positions(Order::p2, columns);
  else
    std::iota(positions.begin(), positions.end(), columns.begin);
  std::vector<std::int32_t> places(positions.size());
  std::ranges::transform(positions, places.begin(),
                         [&](std::int64_t position) { return static_cast<std::int32_t>(list(position)); });
  return places;
}

/// Factors of rows, and of columns, of the vertices that the ranges of order p1 list.
struct ListedScales {
  std::vector<double> of_rows, of_columns;
};
ListedScales read_listed_scales(GraphStore const& store, Ranges const& ranges) {
  ListedScales scales;
  auto const append = [](std::vector<double>& to, std::vector<double> const& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (auto const& range : ranges) {
    append(scales.of_rows, store.read_scales(Parity::even, range, {0, 0}).rows);
    append(scales.of_columns, store.read_scales(Parity::odd, {0, 0}, range).columns);
  }
  return scales;
}

ListedScales kept(std::optional<pmm::NeededSlabs> const& axis, ListedScales scales) {
  return {pmm::keep_needed(axis, std::move(scales.of_rows)),
          pmm::keep_needed(axis, std::move(scales.of_columns))};
}

template<class T>
pmm::SparseBlock<T> scaled(runtime::CsrMatrix<T> const& csr, std::vector<double> const& rows,
                           std::vector<double> const& columns) {
  return {csr, to_vector<T>("orthant::models::row_scale", rows),
          to_vector<T>("orthant::models::column_scale", columns)};
}

} // namespace

CsrBlock read_listed_block(GraphStore const& store, Ranges const& rows, Ranges const& columns) {
  ListPlaces const list(columns);
  ListedEntries entries(total_size(rows));
  for (auto const& stored : stored_columns(store.facts(), rows, columns)) {
    auto const places = places_of(store, list, stored);
    auto first_row = std::int64_t{0};
    for (auto const& range : rows) {
      entries.add(store.read_block(Parity::even, range, stored), first_row, places);
      first_row += range.size();
    }
  }
  return std::move(entries).block(total_size(columns));
}

void plan_owned_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                          std::int64_t num_nonzeros) {
  auto const num_rows = sizes.num_rows();
  auto const num_columns = sizes.num_columns();
  auto const plan_scales = [&](std::int64_t rows, std::int64_t columns) {
    step.add_array("orthant::models::row_scale", step.scalar_bytes(rows));
    step.add_array("orthant::models::column_scale", step.scalar_bytes(columns));
  };
  auto const by_rows = facts.normalization != graph::Normalization::none;
  auto const by_columns = facts.normalization == graph::Normalization::symmetric;
  step.add_array("entries as they are read", num_nonzeros * ListedEntries::entry_bytes,
                 pmm::Lifetime::operation);
  plan_csr(step, num_rows, num_nonzeros, facts.is_weighted);
  plan_scales(by_rows ? num_rows : 0, by_columns ? num_columns : 0);
  if (backward_flow(facts) == pmm::Flow::forward)
    plan_scales(by_columns ? num_rows : 0, by_rows ? num_columns : 0);
  else
    plan_transposed(step, num_columns, num_nonzeros, facts.is_weighted);
}

template<class T>
OwnedAdjacency<T> read_owned_adjacency(pmm::ProcessGrid const& grid, GraphStore const& store,
                                       pmm::Roles const& roles, pmm::Gather gather) {
  auto const& shape = grid.shape();
  auto const n = store.facts().num_vertices;
  auto const rows = pmm::block_rows(shape, grid.coordinates(), roles, n);
  auto const columns = pmm::block_columns(shape, grid.coordinates(), roles, n);
  OwnedAdjacency<T> made;
  made.sizes = pmm::contiguous_cells(shape, grid.coordinates(), roles, n);
  auto block = runtime::together(grid.group(), [&] { return read_listed_block(store, rows, columns); });
  pmm::HostPattern const pattern{block.row_offsets, block.columns};
  auto const needed = pmm::plan_needed_rows(grid, roles, made.sizes, pattern, gather);
  made.needed = std::make_shared<pmm::NeededRows const>(needed);
  runtime::together(grid.group(), [&] {
    keep_needed(needed, pattern);
    block.rows = {0, std::ssize(block.row_offsets) - 1};
    block.columns_range = {0, needed.num_columns(made.sizes)};
    auto const csr = to_csr<T>(std::exchange(block, {}));
    auto const of_rows = kept(needed.over_a, read_listed_scales(store, rows));
    auto const of_columns = kept(needed.over_c, read_listed_scales(store, columns));
    auto const forward = scaled(csr, of_rows.of_rows, of_columns.of_columns);
    // A^^T = diag(s) A^T diag(r) for A^ = diag(r) A diag(s).
    auto const backward = backward_flow(store.facts()) == pmm::Flow::forward
                              ? scaled(csr, of_rows.of_columns, of_columns.of_rows)
                              : pmm::transposed(forward);
    made.forward = pmm::LocalSpmm<T>(forward, pmm::Contents::fixed);
    made.backward = pmm::LocalSpmm<T>(backward, pmm::Contents::fixed);
  });
  return made;
}

template OwnedAdjacency<float> read_owned_adjacency(pmm::ProcessGrid const&, GraphStore const&,
                                                    pmm::Roles const&, pmm::Gather);
template OwnedAdjacency<double> read_owned_adjacency(pmm::ProcessGrid const&, GraphStore const&,
                                                     pmm::Roles const&, pmm::Gather);

} // namespace orthant::models

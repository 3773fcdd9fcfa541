// SPDX-License-Identifier: Apache-2.0
#include "graph/store_reader.hpp"

#include "graph/store_arrays.hpp"
#include "graph/store_writer.hpp"
#include "runtime/error.hpp"
#include "runtime/hdf5_file.hpp"
#include "runtime/together.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace orthant::graph {

using runtime::Hdf5File;
using runtime::Hdf5Type;
using runtime::throw_user;
using runtime::together;

struct GraphStore::State {
  Hdf5File file;
  StoreFacts facts;
  std::string name;

  /// The name of an array of a group that has one folder an order; a single order's is p1.
  [[nodiscard]] std::string array(char const* group, Order order, char const* leaf) const {
    bool const is_p2 = order == Order::p2 && facts.has_two_orders();
    return std::string(group) + (is_p2 ? "/p2" : "/p1") + leaf;
  }

  /// Ids and positions are stored in 32 bits where those do.
  [[nodiscard]] std::vector<std::int64_t> read_ids(std::string const& array_name, Range rows) const {
    if (file.type(array_name) == Hdf5Type::int64)
      return read_checked<std::int64_t>(file, array_name, 0, rows);
    auto const narrow = read_checked<std::int32_t>(file, array_name, 0, rows);
    return {narrow.begin(), narrow.end()};
  }

  /// The rows in `order` of an array that is stored in order p2 only: contiguous, or gathered.
  template<class T>
  [[nodiscard]] std::vector<T> gather_row(GraphStore const& store, std::string const& array_name,
                                          std::int64_t row, Order order, Range rows) const {
    if (order == Order::p2 || !facts.has_two_orders()) return read_checked<T>(file, array_name, row, rows);
    auto const places = store.read_other_positions(order, rows);
    auto const whole = read_checked<T>(file, array_name, row, {0, facts.num_vertices});
    std::vector<T> result(places.size());
    std::transform(places.begin(), places.end(), result.begin(),
                   [&](std::int64_t place) { return whole[static_cast<std::size_t>(place)]; });
    return result;
  }
};

namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Reads what says that this is a store, and which.
StoreFacts read_facts(Hdf5File const& file) {
  if (!file.contains_attribute("/", "format") || file.read_text("/", "format") != "orthant graph store")
    throw_user("{} is an HDF5 file, but no graph store; orthant partition makes one", file.name());
  if (auto const version = file.read_integer("/", "version"); version != store_version)
    throw_user("{} is a graph store of version {}; this program reads version {}{}", file.name(), version,
               store_version, version > store_version ? ": use a newer orthant" : "");
  auto const text = file.read_text("/", "facts");
  if (file.read_integer("/", "facts_crc32") != crc32_of(std::as_bytes(std::span(text))))
    throw_user("{} is damaged: wrong checksum of its facts; partition the graph again", file.name());
  return StoreFacts::from_json(text);
}

/// Replaces or drops the entries where a vertex meets itself; selves[r] is that column or outside the block.
CsrBlock with_self_loops(CsrBlock const& block, std::span<std::int64_t const> selves, SelfLoops self_loops) {
  CsrBlock result;
  result.rows = block.rows;
  result.columns_range = block.columns_range;
  result.row_offsets.reserve(block.row_offsets.size());
  result.row_offsets.push_back(0);
  auto const num_added = self_loops == SelfLoops::added ? selves.size() : 0;
  bool const is_weighted = !block.values.empty();
  result.columns.reserve(block.columns.size() + num_added);
  if (is_weighted) result.values.reserve(block.columns.size() + num_added);
  auto const put = [&](std::int64_t column, float value) {
    result.columns.push_back(static_cast<std::int32_t>(column));
    if (is_weighted) result.values.push_back(value);
  };
  for (std::size_t row = 0; row < selves.size(); ++row) {
    auto const self = selves[row] - block.columns_range.begin;
    bool is_due = self_loops == SelfLoops::added && block.columns_range.contains(selves[row]);
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k) {
      auto const column = block.columns[index(k)];
      if (is_due && column >= self) {
        put(self, 1);
        is_due = false;
      }
      if (column != self) put(column, is_weighted ? block.values[index(k)] : 1.0F);
    }
    if (is_due) put(self, 1);
    result.row_offsets.push_back(static_cast<std::int64_t>(result.columns.size()));
  }
  return result;
}

} // namespace

GraphStore::GraphStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
GraphStore::GraphStore(GraphStore&&) noexcept = default;
GraphStore& GraphStore::operator=(GraphStore&&) noexcept = default;
GraphStore::~GraphStore() = default;

GraphStore GraphStore::open(runtime::Communicator const& comm, std::filesystem::path const& path) {
  return together(comm, [&] { return from_file(Hdf5File::open(path)); });
}

GraphStore GraphStore::from_file(Hdf5File file) {
  auto state = std::make_unique<State>();
  state->facts = read_facts(file);
  state->name = file.name();
  state->file = std::move(file);
  return GraphStore(std::move(state));
}

StoreFacts const& GraphStore::facts() const {
  return state_->facts;
}
std::string const& GraphStore::name() const {
  return state_->name;
}
std::int64_t GraphStore::bytes_read() const {
  return state_->file.bytes_read();
}

CsrBlock GraphStore::read_block(Parity parity, Range rows, Range columns, SelfLoops self_loops) const {
  ORTHANT_REQUIRE(columns.size() <= std::int64_t{1} << 31, "a block of ", columns.size(), " columns");
  auto const n = facts().num_vertices;
  ORTHANT_REQUIRE(0 <= rows.begin && rows.end <= n && 0 <= columns.begin && columns.end <= n);
  auto const& file = state_->file;
  auto block = [&] {
    if (parity == Parity::even || !facts().has_two_orders())
      return read_tiles(file, "/topology/even", rows, columns, n, n);
    if (facts().has_odd_topology()) return read_tiles(file, "/topology/odd", rows, columns, n, n);
    return transposed(read_tiles(file, "/topology/even", columns, rows, n, n)); // A[p2, p1] = A[p1, p2]^T
  }();
  bool const changes =
      self_loops == SelfLoops::added || (self_loops == SelfLoops::dropped && facts().num_self_loops > 0);
  if (!changes) return block;
  return with_self_loops(block, read_other_positions(row_order(parity), rows), self_loops);
}

CsrBlock GraphStore::read_block(Parity parity, Range rows, Range columns) const {
  return read_block(parity, rows, columns,
                    facts().adds_self_loops() ? SelfLoops::added : SelfLoops::as_given);
}

std::vector<std::int64_t> GraphStore::find_self_loops(Parity parity, CsrBlock const& block) const {
  auto places = read_other_positions(row_order(parity), block.rows);
  for (std::size_t row = 0; row < places.size(); ++row) {
    auto const self = places[row] - block.columns_range.begin;
    places[row] = -1;
    if (self < 0 || self >= block.columns_range.size()) continue;
    auto const begin = block.columns.begin() + block.row_offsets[row];
    auto const end = block.columns.begin() + block.row_offsets[row + 1];
    auto const found = std::lower_bound(begin, end, self);
    if (found != end && *found == self) places[row] = found - block.columns.begin();
  }
  return places;
}

Scales GraphStore::read_scales(Parity parity, Range rows, Range columns) const {
  if (facts().normalization == Normalization::none) return {};
  auto const sums = [&](Order order, Range range) {
    std::vector<double> result;
    if (facts().is_weighted) {
      result =
          read_checked<double>(state_->file, state_->array("/vertices", order, "/weight_sums"), 0, range);
    } else {
      auto const degrees = read_degrees(order, range);
      result.assign(degrees.begin(), degrees.end());
    }
    for (auto& sum : result)
      sum += 1; // the added self loop
    return result;
  };
  // A row whose negative weights leave no positive sum keeps out of the normalised matrix, as in PyG.
  auto const power = [](std::vector<double> values, bool is_root) {
    for (auto& value : values)
      value = value > 0 ? 1 / (is_root ? std::sqrt(value) : value) : 0;
    return values;
  };
  if (facts().normalization == Normalization::row) return {power(sums(row_order(parity), rows), false), {}};
  return {power(sums(row_order(parity), rows), true), power(sums(column_order(parity), columns), true)};
}

std::vector<float> GraphStore::read_features(Order order, Range rows, Range columns) const {
  ORTHANT_REQUIRE(facts().feature_kind == FeatureKind::dense, name(), " has no dense features");
  auto const width = columns.size();
  std::vector<float> result(index(rows.size() * width));
  for (auto column = columns.begin; column < columns.end; ++column) {
    auto const values = state_->gather_row<float>(*this, "/features/dense", column, order, rows);
    auto* to = result.data() + (column - columns.begin);
    for (auto const value : values) {
      *to = value;
      to += width;
    }
  }
  return result;
}

CsrBlock GraphStore::read_sparse_features(Range rows, Range columns) const {
  ORTHANT_REQUIRE(facts().feature_kind == FeatureKind::sparse, name(), " has no sparse features");
  return read_tiles(state_->file, "/features/sparse", rows, columns, facts().num_vertices,
                    facts().num_features);
}

std::vector<std::int32_t> GraphStore::read_labels(Order order, Range rows) const {
  ORTHANT_REQUIRE(facts().label_kind == LabelKind::single, name(), " has no labels of one class a vertex");
  return read_checked<std::int32_t>(state_->file, state_->array("/labels", order, ""), 0, rows);
}

std::vector<std::int8_t> GraphStore::read_label_indicator(Order order, Range rows, Range classes) const {
  ORTHANT_REQUIRE(facts().label_kind == LabelKind::multi, name(),
                  " has no labels of several classes a vertex");
  std::vector<std::int8_t> result(index(rows.size() * classes.size()));
  for (auto column = classes.begin; column < classes.end; ++column) {
    auto const values =
        read_checked<std::int8_t>(state_->file, state_->array("/labels", order, ""), column, rows);
    for (std::size_t row = 0; row < values.size(); ++row)
      result[row * index(classes.size()) + index(column - classes.begin)] = values[row];
  }
  return result;
}

std::vector<std::uint8_t> GraphStore::read_mask(Split split, Order order, Range rows) const {
  if (!facts().has_split) return std::vector<std::uint8_t>(index(rows.size()));
  auto bits = read_checked<std::uint8_t>(state_->file, state_->array("/split", order, ""), 0, rows);
  for (auto& bit : bits)
    bit = bit >> static_cast<int>(split) & 1U;
  return bits;
}

std::vector<std::int64_t> GraphStore::read_original_ids(Order order, Range rows) const {
  return state_->read_ids(state_->array("/vertices", order, "/original_ids"), rows);
}

std::vector<std::int64_t> GraphStore::read_other_positions(Order order, Range rows) const {
  if (facts().has_two_orders())
    return state_->read_ids(state_->array("/vertices", order, "/positions_in_other_order"), rows);
  std::vector<std::int64_t> same(index(rows.size()));
  for (std::size_t i = 0; i < same.size(); ++i)
    same[i] = rows.begin + static_cast<std::int64_t>(i);
  return same;
}

std::vector<std::int64_t> GraphStore::read_degrees(Order order, Range rows) const {
  return state_->read_ids(state_->array("/vertices", order, "/degrees"), rows);
}

void GraphStore::verify(runtime::Communicator const& comm) const {
  together(comm, [&] { verify_part(state_->file, comm.rank(), comm.size()); });
}

} // namespace orthant::graph

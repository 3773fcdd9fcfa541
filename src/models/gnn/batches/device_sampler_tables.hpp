#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a DeviceSampler keeps of a graph, and the memory of its batches.

#include "models/gnn/batches/device_sampler.hpp"
#include "models/gnn/batches/device_selection.hpp"
#include "models/parameters/device_copy.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace orthant::models::device_sampling {

using runtime::GrowingVector;
using runtime::Offset;
using runtime::Vector;
using sampling::BlockScales;

/// Memory of a selection.
class SelectionMemory {
 public:
  Selection reserve(std::int64_t num_items) {
    auto const num_words = (num_items + items_a_word - 1) / items_a_word;
    return {bits_.reserve(num_words), before_.reserve(num_words + 1), num_words};
  }

 private:
  GrowingVector<std::uint64_t> bits_{"orthant::models::selection/bits"};
  GrowingVector<Offset> before_{"orthant::models::selection/before"};
};

/// A number that the sum of terms of a draw hardly ever exceeds, if each is drawn with this probability: the mean and six standard
/// deviations. `squares`: sum of the squared terms.
inline std::int64_t most_of_draw(double probability, std::size_t sum, double squares) {
  constexpr double deviations = 6;
  auto const most = probability * static_cast<double>(sum) +
                    deviations * std::sqrt(probability * (1 - probability) * squares) + 1;
  return std::min(static_cast<std::int64_t>(sum), static_cast<std::int64_t>(most));
}

/// Lists of the rows of a block, of which a batch takes some, and the memory of what it takes.
struct RowLists {
  Vector<Offset> offsets;        // [rows + 1]
  Vector<std::uint32_t> columns; // [entries] local columns, or keys
  double squares = 0;            // sum of the squared lengths of rows
  std::int64_t capacity = 0;     // of entries of the sampled rows
  GrowingVector<Offset> begins{"orthant::models::batch/begins"};
  SelectionMemory kept{};

  [[nodiscard]] bool empty() const { return offsets.extent(0) == 0; }
  /// Sets the capacity if a row is drawn with this probability.
  void choose_capacity(double probability) {
    capacity = most_of_draw(probability, columns.extent(0), squares);
  }
};

inline RowLists make_lists(std::vector<Offset> const& offsets, std::vector<std::uint32_t> const& columns) {
  RowLists lists;
  lists.offsets = to_vector<Offset>("orthant::models::sampler/row_offsets", offsets);
  lists.columns = to_vector<std::uint32_t>("orthant::models::sampler/columns", columns);
  for (std::size_t row = 0; row + 1 < offsets.size(); ++row) {
    auto const length = static_cast<double>(offsets[row + 1] - offsets[row]);
    lists.squares += length * length;
  }
  return lists;
}

inline Vector<std::uint32_t> copy_of(char const* label, sampling::PackedIds const& ids) {
  std::vector<std::uint32_t> numbers(ids.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::uint32_t>(ids[i]);
  return to_vector<std::uint32_t>(label, numbers);
}

/// Null if the array is empty.
template<class T>
T const* pointer_of(Vector<T> const& numbers) {
  return numbers.extent(0) == 0 ? nullptr : numbers.data();
}

/// A range of the builder.
template<class T>
struct DeviceRange {
  Vector<std::uint32_t> keys;            // [positions]
  Vector<std::uint32_t> original_ids;    // [positions] or empty: the keys
  Vector<std::uint32_t> other_positions; // [positions] or empty
  RowLists neighbours;                   // or empty
  Vector<float> weights;                 // of the neighbors; empty for a pattern
  double of_self_loop = 0;
  SelectionMemory chosen{};
  std::int64_t capacity = 0; // of vertices of a batch

  [[nodiscard]] std::int64_t num_positions() const { return static_cast<std::int64_t>(keys.extent(0)); }
};

template<class T>
DeviceRange<T> make_range(sampling::KnownRange const& known) {
  DeviceRange<T> range;
  auto const& vertices = known.vertices;
  std::vector<std::uint32_t> keys(static_cast<std::size_t>(vertices.size()));
  vertices.table().for_each({0, std::numeric_limits<std::int64_t>::max()},
                            [&](std::int64_t key, std::int64_t place) {
                              keys[static_cast<std::size_t>(place)] = static_cast<std::uint32_t>(key);
                            });
  range.keys = to_vector<std::uint32_t>("orthant::models::sampler/keys", keys);
  range.original_ids = copy_of("orthant::models::sampler/original_ids", vertices.original_ids());
  range.other_positions = copy_of("orthant::models::sampler/other_positions", vertices.other_positions());
  if (known.neighbours.empty()) return range;
  auto const& lists = known.neighbours;
  std::vector<std::uint32_t> neighbours(lists.keys().size());
  for (std::size_t k = 0; k < neighbours.size(); ++k)
    neighbours[k] = static_cast<std::uint32_t>(lists.keys()[k]);
  range.neighbours = make_lists(lists.offsets(), neighbours);
  range.weights = to_vector<float>("orthant::models::sampler/weights", lists.weights());
  range.of_self_loop = lists.of_self_loop();
  return range;
}

/// A block of A^, or its transpose.
template<class T>
struct BlockSide {
  RowLists lists;
  Vector<T> values;          // [entries] or empty
  Vector<T> row_scale;       // [rows] or empty
  std::int64_t capacity = 0; // of entries of a batch
};

template<class T>
struct SampledFrom {
  std::size_t rows, columns; // numbers of ranges
  BlockScales scales;
  std::array<BlockSide<T>, 2> sides{};
  Vector<std::int32_t> self_columns{}; // [rows]
  Vector<T> self_scale{};              // [rows]
};

template<class T>
SampledFrom<T> make_block(sampling::KnownBlock<T> const& known) {
  auto const& block = known.sampler.block();
  ORTHANT_REQUIRE(block.num_features == 0, "kernels sample no features of edges: use --batch-source host");
  auto const num_columns = static_cast<std::size_t>(block.num_columns);
  std::vector<std::uint32_t> const columns(block.columns.begin(), block.columns.end());
  std::vector<Offset> offsets(num_columns + 1, 0); // of the transpose: a counting sort
  for (auto const column : columns)
    ++offsets[column + 1];
  for (std::size_t j = 0; j < num_columns; ++j)
    offsets[j + 1] += offsets[j];
  std::vector<std::uint32_t> rows(columns.size());
  std::vector<T> values(block.values.size());
  auto next = offsets;
  for (std::size_t row = 0; row + 1 < block.row_offsets.size(); ++row)
    for (auto k = static_cast<std::size_t>(block.row_offsets[row]);
         k < static_cast<std::size_t>(block.row_offsets[row + 1]); ++k) {
      auto const place = static_cast<std::size_t>(next[columns[k]]++);
      rows[place] = static_cast<std::uint32_t>(row);
      if (!values.empty()) values[place] = block.values[k];
    }
  SampledFrom<T> from{known.rows, known.columns, known.sampler.scales()};
  auto const side = [](std::vector<Offset> const& of_rows, std::vector<std::uint32_t> const& entries,
                       std::vector<T> const& of_entries, std::vector<T> const& scale) {
    return BlockSide<T>{make_lists(of_rows, entries),
                        to_vector<T>("orthant::models::sampler/values", of_entries),
                        to_vector<T>("orthant::models::sampler/row_scale", scale)};
  };
  from.sides = {side(block.row_offsets, columns, block.values, block.row_scale),
                side(offsets, rows, values, block.column_scale)};
  from.self_columns = to_vector<std::int32_t>("orthant::models::sampler/self_columns", block.self_columns);
  from.self_scale = to_vector<T>("orthant::models::sampler/self_scale", block.self_scale);
  return from;
}

/// Memory of the vertices of a batch in a range.
template<class T>
struct VertexMemory {
  GrowingVector<std::int32_t> positions{"orthant::models::batch/positions"};
  GrowingVector<std::int8_t> groups{"orthant::models::batch/groups"};
  GrowingVector<std::int64_t> original_ids{"orthant::models::batch/original_ids"};
  GrowingVector<std::int64_t> other_positions{"orthant::models::batch/other_positions"};
  GrowingVector<T> scale{"orthant::models::batch/scale_in_batch"}; // of renormalized edges
};

/// Memory of a block of a batch, or of its transpose.
template<class T>
struct BlockMemory {
  GrowingVector<Offset> row_offsets{"orthant::models::batch/row_offsets"};
  GrowingVector<std::int32_t> columns{"orthant::models::batch/columns"};
  GrowingVector<T> values{"orthant::models::batch/values"};
  GrowingVector<T> row_scale{"orthant::models::batch/row_scale"};
  GrowingVector<T> column_scale{"orthant::models::batch/column_scale"};
  GrowingVector<std::int32_t> self_columns{"orthant::models::batch/self_columns"};
  GrowingVector<T> self_scale{"orthant::models::batch/self_scale"};
};

template<class T>
struct BatchMemory {
  DeviceBatch<T> batch;
  std::vector<VertexMemory<T>> vertices;
  std::vector<std::array<BlockMemory<T>, 2>> blocks;

  void resize(std::size_t num_ranges, std::size_t num_blocks) {
    vertices.resize(num_ranges);
    blocks.resize(num_blocks);
    batch.vertices.resize(num_ranges);
    batch.blocks.resize(num_blocks);
  }
};

/// An array that the host fills and kernels read. It only grows.
template<class T>
class Upload {
 public:
  explicit Upload(char const* label) : label_(label) {}
  /// Returns null if there are none.
  T const* send(runtime::DefaultExec const& exec, std::span<T const> numbers) {
    if (numbers.empty()) return nullptr;
    if (numbers.size() > on_host_.extent(0)) {
      on_host_ = Pinned(label_, numbers.size());
      numbers_ = Vector<T>(label_, numbers.size());
    }
    std::copy(numbers.begin(), numbers.end(), on_host_.data());
    Kokkos::deep_copy(exec, numbers_, on_host_);
    return numbers_.data();
  }

 private:
  using Pinned = Kokkos::View<T*, runtime::compat::PinnedSpace>;
  std::string label_;
  Vector<T> numbers_;
  Pinned on_host_;
};

} // namespace orthant::models::device_sampling

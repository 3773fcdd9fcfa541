#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of device_sampler.cpp. Numbers of vertices and entries of a batch are only known to the device; kernels run over the capacities of
// arrays and write nothing beyond them.

#include "models/gnn/batches/device_selection.hpp"
#include "runtime/device/kokkos_compat.hpp"
#include "runtime/numbers/random.hpp"

#include <cstdint>

namespace orthant::models::device_sampling {

using runtime::DefaultExec;
using runtime::Offset;
using Each = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

/// sampling::BatchPart for kernels. The parts of a batch are sorted by their keys.
struct DevicePart {
  runtime::KeyedBijection order;
  bool is_shuffled = false;
  std::int64_t first_key = 0;
  std::int64_t first_place = 0;
  std::int64_t first_member = 0; // members of the parts before this one
  std::int8_t group = 0;
};
struct DeviceParts {
  DevicePart const* parts = nullptr;
  std::int64_t count = 0;

  /// The last part whose number `first` is at most `number`.
  template<std::int64_t DevicePart::*first>
  [[nodiscard]] KOKKOS_FUNCTION DevicePart const& at(std::int64_t number) const {
    std::int64_t begin = 0, end = count;
    while (end - begin > 1) {
      auto const middle = begin + (end - begin) / 2;
      if (parts[middle].*first <= number)
        begin = middle;
      else
        end = middle;
    }
    return parts[begin];
  }
};

/// members := the keys of the batch.
struct MarkMember {
  DeviceParts parts;
  std::uint64_t* members;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const& part = parts.at<&DevicePart::first_member>(i);
    auto const place = part.first_place + i - part.first_member;
    auto const key =
        part.first_key +
        (part.is_shuffled ? static_cast<std::int64_t>(part.order(static_cast<std::uint64_t>(place))) : place);
    Kokkos::atomic_fetch_or(members + key / items_a_word, std::uint64_t{1} << (key % items_a_word));
  }
};

/// Vertices of a range that are members.
struct FindVertices {
  std::uint64_t const* members;
  std::uint32_t const* keys; // [count]
  std::int64_t count;
  std::uint32_t const* ids;    // or null: the keys
  std::uint32_t const* others; // or null
  DeviceParts parts;           // null parts: one group
  std::int64_t capacity;
  std::int32_t* positions;
  std::int64_t *original_ids, *other_positions;
  std::int8_t* groups;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t start(std::int64_t) const { return 0; }
  [[nodiscard]] KOKKOS_FUNCTION bool selects(std::int64_t i, std::int64_t) const {
    return i < count && Selection::has(members, keys[i]);
  }
  KOKKOS_FUNCTION void list(std::int64_t i, std::int64_t, Offset number) const {
    if (number >= capacity) return;
    positions[number] = static_cast<std::int32_t>(i);
    original_ids[number] = ids == nullptr ? keys[i] : ids[i];
    if (others != nullptr) other_positions[number] = others[i];
    if (parts.parts != nullptr) groups[number] = parts.at<&DevicePart::first_key>(keys[i]).group;
  }
};

/// The sampled rows of a range.
struct SampledRows {
  std::int32_t const* positions;
  Selection chosen;
  std::int64_t capacity;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t count() const {
    return chosen.count() < capacity ? chosen.count() : capacity;
  }
};

/// begins[i] := number of entries of the sampled rows before the i-th; *total := of all of them.
struct LayRowsOut {
  using value_type = Offset;
  SampledRows rows;
  Offset const* offsets;
  Offset* begins; // [capacity + 1]
  std::int64_t* total;

  KOKKOS_FUNCTION void operator()(std::int64_t i, Offset& sum, bool is_final) const {
    if (is_final) begins[i] = sum;
    if (is_final && i == rows.capacity) *total = sum;
    if (i >= rows.count()) return;
    auto const row = rows.positions[i];
    sum += offsets[row + 1] - offsets[row];
  }
};

/// Entries of the sampled rows whose column is in a set.
template<class T>
struct CutEntries {
  SampledRows rows;
  Offset const* begins;
  Offset const* offsets;
  std::uint32_t const* columns;
  std::uint64_t const* set;
  // of list() alone
  Selection of_columns{};
  T const* values = nullptr;
  std::int64_t capacity = 0;
  std::int32_t* kept_columns = nullptr;
  T* kept_values = nullptr;

  /// The row of an entry, from `low` on: steps of 1, 2, 4, .., and then a bisection, as many rows may be without entries.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t row_of(std::int64_t entry, std::int64_t low) const {
    auto const count = rows.count();
    std::int64_t step = 1;
    for (; low + step <= count && begins[low + step] <= entry; step *= 2)
      low += step;
    auto end = low + step <= count ? low + step : count + 1;
    while (end - low > 1) {
      auto const middle = low + (end - low) / 2;
      if (begins[middle] <= entry)
        low = middle;
      else
        end = middle;
    }
    return low;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t start(std::int64_t entry) const { return row_of(entry, 0); }
  /// Place of the entry in the lists of the graph, or -1 if there is no such entry. `low`: start() of an earlier entry.
  [[nodiscard]] KOKKOS_FUNCTION Offset place(std::int64_t entry, std::int64_t low) const {
    auto const row = row_of(entry, low);
    return row < rows.count() ? offsets[rows.positions[row]] + entry - begins[row] : Offset{-1};
  }
  [[nodiscard]] KOKKOS_FUNCTION bool selects(std::int64_t entry, std::int64_t row) const {
    auto const k = place(entry, row);
    return k >= 0 && Selection::has(set, columns[k]);
  }
  KOKKOS_FUNCTION void list(std::int64_t entry, std::int64_t row, Offset number) const {
    if (number >= capacity) return;
    auto const k = place(entry, row);
    kept_columns[number] = static_cast<std::int32_t>(of_columns.number(columns[k]));
    if (values != nullptr) kept_values[number] = values[k];
  }
};

/// The entries of the sampled rows laid end to end, and those of them that are kept.
struct KeptEntries {
  Offset const* begins;
  Selection kept;

  /// Kept entries of the rows before the i-th.
  [[nodiscard]] KOKKOS_FUNCTION Offset before(std::int64_t i) const {
    auto const all = items_a_word * kept.num_words;
    return kept.number(begins[i] < all ? begins[i] : all);
  }
};

struct FillRowOffsets {
  SampledRows rows;
  KeptEntries entries;
  Offset* row_offsets; // [capacity + 1]

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (i <= rows.count()) row_offsets[i] = entries.before(i);
  }
};

/// scale[i] := d^-1/2, or 1 / d, of the degree d within the batch; 0 without neighbors.
template<class T>
struct ScaleByDegree {
  SampledRows rows;
  KeptEntries entries;
  Offset const* offsets;
  float const* weights; // or null
  double of_self_loop;
  bool is_symmetric;
  T* scale;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (i >= rows.count()) return;
    auto d = of_self_loop;
    if (weights == nullptr)
      d += static_cast<double>(entries.before(i + 1) - entries.before(i)); // a sum of ones is exact
    else
      for (auto e = entries.begins[i]; e < entries.begins[i + 1]; ++e)
        if (e < items_a_word * entries.kept.num_words && entries.kept.has(e))
          d += weights[offsets[rows.positions[i]] + e - entries.begins[i]];
    scale[i] = static_cast<T>(d > 0 ? 1 / (is_symmetric ? runtime::compat::sqrt(d) : d) : 0);
  }
};

/// picked[i] := scale[position of row i], or 1.
template<class T>
struct PickScale {
  SampledRows rows;
  T const* scale; // or null
  T* picked;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (i < rows.count()) picked[i] = scale == nullptr ? T{1} : scale[rows.positions[i]];
  }
};

/// scale[g][j] := own[j] m(g, g_j), or own[j] m(g_j, g) in the transpose.
template<class T>
struct ScaleColumns {
  SampledRows columns; // of the block
  T const* own;
  std::int8_t const* groups; // or null
  double const* factors;     // [groups x groups]
  std::int64_t num_groups;
  bool is_transposed;
  T* scale; // [groups x columns]

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const g = i / columns.capacity;
    auto const j = i % columns.capacity;
    auto const count = columns.count();
    if (j >= count) return;
    auto const of_column = groups == nullptr ? 0 : groups[j];
    auto const factor =
        is_transposed ? factors[of_column * num_groups + g] : factors[g * num_groups + of_column];
    scale[g * count + j] = own[j] * static_cast<T>(factor);
  }
};

/// Self loops of the sampled rows, in the block and in its transpose, whose arrays were filled with -1 and 0.
template<class T>
struct FindSelfLoops {
  SampledRows rows;
  Selection columns;
  std::int64_t num_columns; // capacity
  std::int32_t const* self_columns;
  T const* of_graph; // scales of the graph's self loops; null: products of the two below
  T const* row_scale;
  T const* column_scale;
  std::int32_t *block_columns, *transposed_columns;
  T *block_scale, *transposed_scale;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    if (i >= rows.count()) return;
    auto const row = rows.positions[i];
    auto const column = self_columns[row];
    if (column < 0 || !columns.has(column)) return;
    auto const j = columns.number(column);
    if (j >= num_columns) return;
    auto const scale = of_graph != nullptr ? of_graph[row] : row_scale[i] * column_scale[j];
    block_columns[i] = static_cast<std::int32_t>(j);
    block_scale[i] = scale;
    transposed_columns[j] = static_cast<std::int32_t>(i);
    transposed_scale[j] = scale;
  }
};

} // namespace orthant::models::device_sampling

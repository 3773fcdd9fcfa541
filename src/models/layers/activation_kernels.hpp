#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Functors of activation.cpp for packs of four elements on a device (pmm/kernels/packs.hpp). Bytes moved, and time for
// 2,450,000 x 128 floats at 4.3 TB/s:
//
//   BiasReluPack, MaskPack   read and write each element once          2.51 GB   0.58 ms
//   BackwardPack             reads two, writes one; also sums columns   3.76 GB   0.88 ms

#include "models/layers/activation.hpp"
#include "pmm/rows/column_sums.hpp"

namespace orthant::models::detail {

using pmm::Divisor;
using pmm::Pack;
using pmm::pack_size;
using pmm::PackedArray;
using pmm::Place;

/// block[which] without a run-time index, which would make the compiler store `block` in memory instead of registers.
KOKKOS_INLINE_FUNCTION std::uint32_t word_of(runtime::Words4x32 const& block, std::uint64_t which) {
  auto const low = (which & 1) == 0 ? block[0] : block[1];
  auto const high = (which & 1) == 0 ? block[2] : block[3];
  return (which & 2) == 0 ? low : high;
}

/// Bits of the elements of a pack: bit k is set if element k is kept.
struct PackMask {
  PackedArray<std::int64_t const> original_ids;
  Divisor num_columns;
  std::uint64_t first_column;
  runtime::RandomStream stream;
  std::uint64_t drop_threshold; // a word below it drops the element
  bool is_whole_blocks;         // each pack is one block of four random words

  /// The packs begin at elements `first` + 0, 4, 8 .. of a block with `columns` columns.
  PackMask(Dropout const& dropout, BlockKeys const& keys, std::int64_t first, std::int64_t columns)
      : original_ids(keys.original_ids.data()),
        num_columns(columns),
        first_column(static_cast<std::uint64_t>(keys.first_column)),
        stream(dropout.stream),
        drop_threshold(runtime::bernoulli_threshold(dropout.probability)),
        is_whole_blocks(first % 4 == 0 && columns % 4 == 0 && keys.first_column % 4 == 0) {}

  [[nodiscard]] KOKKOS_FUNCTION runtime::Words4x32 block_of(std::int64_t row, std::uint64_t feature) const {
    return stream.block(static_cast<std::uint64_t>(original_ids[row]), feature >> 2);
  }

  [[nodiscard]] KOKKOS_FUNCTION unsigned kept(std::int64_t element, std::int64_t count) const {
    Place place(element, num_columns);
    auto block = block_of(place.row, first_column + static_cast<std::uint64_t>(place.column));
    unsigned bits = 0;
    if (is_whole_blocks) {
      for (unsigned k = 0; k < 4; ++k)
        bits |= static_cast<unsigned>(block[k] >= drop_threshold) << k;
      return bits;
    }
    for (unsigned k = 0; k < 4 && k < count; ++k) {
      auto const feature = first_column + static_cast<std::uint64_t>(place.column);
      if (k > 0 && (place.column == 0 || (feature & 3) == 0)) block = block_of(place.row, feature);
      bits |= static_cast<unsigned>(word_of(block, feature & 3) >= drop_threshold) << k;
      place.step(num_columns.value());
    }
    return bits;
  }
};

/// to := M scale f(from + 1 bias^T), with f = relu or the identity, for elements first, first + 1 .. of a block.
template<class T, bool is_relu>
struct MaskPack {
  using Sum = runtime::SumOf<T>;
  PackedArray<T const> from;
  PackedArray<T> to;
  PackedArray<Sum const> bias; // null without a bias
  PackMask mask;
  std::int64_t first;
  Sum scale;

  KOKKOS_FUNCTION void operator()(std::int64_t i, std::int64_t count) const {
    auto pack = from.load(i, count);
    if (!bias.is_empty())
      add(pack, row_pack(bias, Place(first + i, mask.num_columns).column, mask.num_columns.value()));
    auto const kept = mask.kept(first + i, count);
    for (unsigned k = 0; k < 4; ++k) {
      auto const value = pack.number[k];
      // NaN is kept: it must reach the loss, where it is reported.
      pack.number[k] = (kept >> k & 1) == 0 || (is_relu && value < Sum{0}) ? Sum{0} : value * scale;
    }
    to.store(i, count, pack);
  }
};

/// z := relu(z + 1 bias^T)
template<class T>
struct BiasReluPack {
  using Sum = runtime::SumOf<T>;
  PackedArray<T> z;
  PackedArray<Sum const> bias; // null without a bias
  Divisor num_columns;

  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto pack = z.load(first, count);
    if (!bias.is_empty()) add(pack, row_pack(bias, Place(first, num_columns).column, num_columns.value()));
    for (auto& number : pack.number)
      number = number < Sum{0} ? Sum{0} : number;
    z.store(first, count, pack);
  }
};

/// gradient := gradient scale where active > 0, else 0. Also returns it, as terms of column sums.
template<class T>
struct BackwardPack {
  using Sum = runtime::SumOf<T>;
  static constexpr bool only_loads = false;

  PackedArray<T const> active;
  PackedArray<T> gradient;
  Sum scale;

  KOKKOS_FUNCTION Pack<Sum> operator()(std::int64_t first, std::int64_t count) const {
    auto const activation = active.load(first, count);
    auto pack = gradient.load(first, count);
    for (int k = 0; k < pack_size; ++k)
      pack.number[k] = activation.number[k] > Sum{0} ? pack.number[k] * scale : Sum{0};
    gradient.store(first, count, pack);
    return pack;
  }
};

/// to := M value / (1 - p) for the entries of a sparse block. Vector lanes of a thread share the entries of a row.
template<class T>
struct MaskEntries {
  runtime::CsrMatrix<T> csr;
  bool rows_are_vertices;
  runtime::Vector<std::int64_t> original_ids;
  std::int64_t first_column;
  runtime::RandomStream stream;
  std::uint64_t drop_threshold;
  T scale;
  runtime::Vector<T> to;

  KOKKOS_FUNCTION void mask(std::int64_t row, runtime::Offset k) const {
    auto const entry = static_cast<std::size_t>(k);
    auto const column = static_cast<std::int64_t>(csr.columns(entry));
    auto const vertex = static_cast<std::size_t>(rows_are_vertices ? row : column);
    auto const feature = static_cast<std::uint64_t>(first_column + (rows_are_vertices ? column : row));
    auto const block = stream.block(static_cast<std::uint64_t>(original_ids(vertex)), feature >> 2);
    auto const is_dropped = word_of(block, feature & 3) < drop_threshold;
    auto const value = csr.values.extent(0) == 0 ? T{1} : csr.values(entry);
    to(entry) = is_dropped ? T{0} : value * scale;
  }
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const end = csr.row_offsets(static_cast<std::size_t>(row) + 1);
    for (auto k = csr.row_offsets(static_cast<std::size_t>(row)); k < end; ++k)
      mask(row, k);
  }
  template<class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    auto const begin = csr.row_offsets(static_cast<std::size_t>(row));
    auto const end = csr.row_offsets(static_cast<std::size_t>(row) + 1);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, begin, end),
                         [&](runtime::Offset k) { mask(row, k); });
  }
};

} // namespace orthant::models::detail

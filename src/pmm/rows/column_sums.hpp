#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Column sums of a block on a device, in two kernels without atomics, with the same bits in every run; and the bodies
// of bias kernels for a pack of numbers.
//
//   partial(s, l) := sum of lines of slab s, element l          sums(j) := sum_t partial(t, j)
//
// A line is the smallest number of rows (1, 2 or 4) that is a whole number of packs of four numbers, so that 16 bytes
// are read at a time whatever the width. A slab is a share of the lines. The partial sums of a line are the sums of its
// rows, one after the other: the first kernel writes a matrix of (slabs x rows per line) x columns, which the second
// kernel sums. The order of additions depends only on the shape and the team size, which is constant on a device.

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"
#include "pmm/product/workspace.hpp"

#include <algorithm>
#include <bit>

namespace orthant::pmm {

/// How the rows of a block are divided into lines and slabs.
struct ColumnSlabs {
  // For 2.45 million rows these are enough teams to keep all multiprocessors busy, while the partial sums take only 1/2000 of the block's
  // memory.
  static constexpr std::int64_t most_slabs = 2048;
  static constexpr std::int64_t fewest_lines = 32; // smaller slabs cost more in partial sums than they save

  std::int64_t num_rows;
  std::int64_t num_columns;
  std::int64_t rows_per_line;
  std::int64_t num_lines;
  std::int64_t packs_per_line;
  std::int64_t lines_per_slab;
  std::int64_t num_slabs;

  ColumnSlabs(std::int64_t rows, std::int64_t columns)
      : num_rows(rows),
        num_columns(columns),
        rows_per_line(columns % 4 == 0   ? 1
                      : columns % 2 == 0 ? 2
                                         : 4),
        num_lines((rows + rows_per_line - 1) / rows_per_line),
        packs_per_line(columns * rows_per_line / pack_size),
        lines_per_slab(std::max(fewest_lines, (num_lines + most_slabs - 1) / most_slabs)),
        num_slabs(std::max(std::int64_t{1}, (num_lines + lines_per_slab - 1) / lines_per_slab)) {}

  /// Rows of the matrix of partial sums.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t num_partial_rows() const { return num_slabs * rows_per_line; }
  [[nodiscard]] std::int64_t num_partial_sums() const { return num_partial_rows() * num_columns; }
};

/// Reserves the buffer of partial sums for a block. The buffer is rounded up, so that it also fits batches with somewhat more
/// rows. Call at set-up. Hosts need no buffer. `work` is a Workspace or a WorkspacePlan.
template<class Work>
void reserve_column_sums(Work& work, std::int64_t num_rows, std::int64_t num_columns) {
  if constexpr (!runs_on_host) {
    auto slabs = ColumnSlabs(num_rows, num_columns);
    slabs.num_slabs = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(slabs.num_slabs)));
    work.reserve(Slot::sums, slabs.num_partial_sums());
  }
}

namespace detail {

using SlabPolicy = Kokkos::TeamPolicy<runtime::DefaultExec>;

/// The threads of a team as a tile of `height` rows with `width` threads each; (x, y) is the position of a thread.
struct TeamTile {
  std::int64_t width, height, x, y;
  KOKKOS_FUNCTION TeamTile(typename SlabPolicy::member_type const& team, std::int64_t widest)
      : width(widest < team.team_size() ? widest : team.team_size()),
        height(team.team_size() / width),
        x(team.team_rank() % width),
        y(team.team_rank() / width) {}
};

/// partial(slab, :) := sum over its lines of terms(first element, count), which returns a pack, with zeros beyond
/// the count. A thread sums one pack of every height-th line.
template<class T, class Terms>
struct SumSlabs {
  // Two loads are in flight at once if terms only load; other terms read more than one array anyway.
  static constexpr int lines_at_once = Terms::only_loads ? 2 : 1;

  Terms terms;
  ColumnSlabs slabs;
  PackedArray<T> partial;

  KOKKOS_FUNCTION void operator()(typename SlabPolicy::member_type const& team) const {
    auto* const shared = static_cast<Pack<T>*>(team.team_shmem().get_shmem_aligned(
        static_cast<std::size_t>(team.team_size()) * sizeof(Pack<T>), alignof(Pack<T>)));
    auto const num_packs = slabs.packs_per_line;
    auto const size = slabs.num_rows * slabs.num_columns;
    auto const slab = static_cast<std::int64_t>(team.league_rank());
    auto const begin = slab * slabs.lines_per_slab;
    auto const stop = begin + slabs.lines_per_slab;
    auto const end = stop < slabs.num_lines ? stop : slabs.num_lines;
    TeamTile const tile(team, num_packs);
    for (std::int64_t left = 0; left < num_packs; left += tile.width) {
      auto const pack = left + tile.x;
      auto const is_used = tile.y < tile.height && pack < num_packs;
      Pack<T> sums{};
      if (is_used)
        for (auto line = begin + tile.y; line < end; line += lines_at_once * tile.height) {
          auto const first = (line * num_packs + pack) * pack_size;
          auto const some = terms(first, size - first);
          if constexpr (lines_at_once == 2) {
            auto const next = first + tile.height * num_packs * pack_size;
            add(sums, terms(next, line + tile.height < end ? size - next : 0));
          }
          add(sums, some);
        }
      shared[team.team_rank()] = sums;
      team.team_barrier();
      if (is_used && tile.y == 0) {
        for (std::int64_t y = 1; y < tile.height; ++y)
          add(sums, shared[y * tile.width + tile.x]);
        partial.store((slab * num_packs + pack) * pack_size, pack_size, sums);
      }
      team.team_barrier();
    }
  }
};

/// sums(j) := sum_t partial(t, j). A team sums a few columns, one memory sector per row, so that many teams share
/// the work.
template<class T>
struct SumPartialRows {
  static constexpr std::int64_t columns_per_team = 8;

  ColumnSlabs slabs;
  T const* partial;
  T* sums;

  KOKKOS_FUNCTION void operator()(typename SlabPolicy::member_type const& team) const {
    auto* const shared = static_cast<T*>(team.team_shmem().get_shmem_aligned(
        static_cast<std::size_t>(team.team_size()) * sizeof(T), alignof(Pack<T>)));
    auto const begin = static_cast<std::int64_t>(team.league_rank()) * columns_per_team;
    TeamTile const tile(team, columns_per_team);
    for (std::int64_t left = 0; left < columns_per_team; left += tile.width) {
      auto const column = begin + left + tile.x;
      auto const is_used =
          tile.y < tile.height && left + tile.x < columns_per_team && column < slabs.num_columns;
      T sum = 0;
      if (is_used)
        for (auto t = tile.y; t < slabs.num_partial_rows(); t += tile.height)
          sum += partial[t * slabs.num_columns + column];
      shared[team.team_rank()] = sum;
      team.team_barrier();
      if (is_used && tile.y == 0) {
        for (std::int64_t y = 1; y < tile.height; ++y)
          sum += shared[y * tile.width + tile.x];
        sums[column] = sum;
      }
      team.team_barrier();
    }
  }
};

/// Runs `body` on `num_teams` teams of up to `longest` threads, each thread with bytes_per_thread bytes of shared memory.
template<class Body>
void run_teams(runtime::DefaultExec const& exec, char const* label, std::int64_t num_teams, int longest,
               int bytes_per_thread, Body const& body) {
  auto const bytes = Kokkos::PerTeam(longest * bytes_per_thread + static_cast<int>(alignof(Pack<double>)));
  auto const largest = SlabPolicy(exec, static_cast<int>(num_teams), 1, 1)
                           .set_scratch_size(0, bytes)
                           .team_size_max(body, Kokkos::ParallelForTag());
  SlabPolicy policy(exec, static_cast<int>(num_teams), std::min(longest, largest), 1);
  policy.set_scratch_size(0, bytes);
  Kokkos::parallel_for(label, policy, body);
}

} // namespace detail

/// sums(j) := the sum over all rows i of term(i, j). terms(first, count) returns a pack of terms: elements first ..
/// first + count - 1 of the flat block, zeros beyond. It may also write the same elements, unless Terms::only_loads.
/// `partial` [slabs.num_partial_sums()] is scratch memory. Enqueues on exec; does not fence. Tuned for devices, but
/// works on hosts. Cost: the memory traffic of `terms` at the device's bandwidth (reading 2,450,000 x 128 floats:
/// 1.25 GB, 0.29 ms at 4.3 TB/s), and some microseconds for the partial sums.
template<class T, class Terms>
void sum_columns_in_slabs(runtime::DefaultExec const& exec, char const* label, ColumnSlabs const& slabs,
                          Terms const& terms, runtime::Vector<T> const& partial,
                          runtime::Vector<T> const& sums) {
  constexpr int threads_per_slab = 256;        // eight teams per multiprocessor
  constexpr int threads_per_column_tile = 512; // 64 rows of partial sums at once
  if (slabs.num_columns == 0) return;
  detail::run_teams(exec, label, slabs.num_slabs, threads_per_slab, static_cast<int>(sizeof(Pack<T>)),
                    detail::SumSlabs<T, Terms>{terms, slabs, PackedArray<T>(partial.data())});
  using SumPartialRows = detail::SumPartialRows<T>;
  auto const num_tiles =
      (slabs.num_columns + SumPartialRows::columns_per_team - 1) / SumPartialRows::columns_per_team;
  detail::run_teams(exec, "orthant::pmm::sum_partial_rows", num_tiles, threads_per_column_tile,
                    static_cast<int>(sizeof(T)), SumPartialRows{slabs, partial.data(), sums.data()});
}

/// z(i, j) += bias(j) for a pack of elements.
template<class T>
class AddBiasToPack {
 public:
  AddBiasToPack(runtime::Matrix<T> const& z, runtime::Vector<runtime::SumOf<T>> const& bias)
      : z_(z.data()),
        bias_(bias.data()),
        num_columns_(static_cast<std::int64_t>(z.extent(1))) {}

  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto pack = z_.load(first, count);
    add(pack, row_pack(bias_, Place(first, num_columns_).column, num_columns_.value()));
    z_.store(first, count, pack);
  }

 private:
  PackedArray<T> z_;
  PackedArray<runtime::SumOf<T> const> bias_;
  Divisor num_columns_;
};

/// The terms of a plain sum: the elements of a matrix.
template<class T>
class LoadedPack {
 public:
  static constexpr bool only_loads = true;

  explicit LoadedPack(runtime::Matrix<T> const& from) : from_(from.data()) {}
  KOKKOS_FUNCTION Pack<runtime::SumOf<T>> operator()(std::int64_t first, std::int64_t count) const {
    return from_.load(first, count);
  }

 private:
  PackedArray<T const> from_;
};

} // namespace orthant::pmm

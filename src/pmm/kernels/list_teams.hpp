#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Loops of a device over the rows of a row-major block, and over the lists (rows or columns) of a sparse block, whose lengths vary.

#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <cstdint>

namespace orthant::pmm {

using RowTeamPolicy = Kokkos::TeamPolicy<runtime::DefaultExec>;
using RowTeam = typename RowTeamPolicy::member_type;

// Rows of a row-major block. One thread processes a row, and its vector lanes share the columns, so that neighboring lanes read
// neighboring numbers and a sum over the row takes a few register exchanges. A row that is read again within one body is in the L1 cache.

/// Calls body(team, row) for the rows of a team, one thread with all its lanes per row.
template<class Body>
struct EachRow {
  Body body;
  std::int64_t num_rows;
  std::int64_t rows_per_team;

  KOKKOS_FUNCTION void operator()(RowTeam const& team) const {
    auto const begin = static_cast<std::int64_t>(team.league_rank()) * rows_per_team;
    auto const count = num_rows - begin < rows_per_team ? num_rows - begin : rows_per_team;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, static_cast<int>(count)),
                         [&](int i) { body(team, begin + i); });
  }
};

/// Calls body(team, row) for every row. `num_items`: number of items of a row that the lanes of its thread share; there are as many
/// lanes, rounded up to a power of two, at most a warp. Enqueues on exec; does not fence.
template<class Body>
void for_each_row(runtime::DefaultExec const& exec, char const* label, std::int64_t num_rows,
                  std::int64_t num_items, Body const& body) {
  constexpr int longest_vector = 32;
  constexpr int lanes_per_team = 256; // eight warps
  constexpr int rows_per_thread = 4;  // so that a team takes longer to run than to start
  if (num_rows == 0) return;
  int num_lanes = 1;
  while (num_lanes < longest_vector && num_lanes < num_items)
    num_lanes *= 2;
  EachRow<Body> rows{body, num_rows, 1};
  auto const most_threads =
      RowTeamPolicy(exec, 1, 1, num_lanes).team_size_max(rows, Kokkos::ParallelForTag());
  auto const num_threads = std::min(lanes_per_team / num_lanes, most_threads);
  rows.rows_per_team = num_threads * rows_per_thread;
  auto const num_teams = (num_rows + rows.rows_per_team - 1) / rows.rows_per_team;
  Kokkos::parallel_for(label, RowTeamPolicy(exec, static_cast<int>(num_teams), num_threads, num_lanes), rows);
}

// Lists of a sparse block, whose lengths vary from zero to a hundred thousand. Two launches process lists of three sizes:
//
//   up to longest_of_thread   first launch: one thread per list and head, whose vector lanes share what is contiguous in memory
//   up to longest_of_team     first launch: all threads of this small team
//   longer                    second launch: a large team, which searches its offsets for such lists
//
//   partial(p, h) := sum of the terms of part p          sum(h) := partial(0, h) + partial(1, h) + ..
//
// A team takes as long as its slowest thread, so the work is divided evenly among threads. Nothing is kept between calls. The order of
// additions depends only on the lengths and on the team size, which is constant on a device, so every run gives the same bits.

inline constexpr std::int64_t longest_of_thread = 128;

struct Lists {
  runtime::Offset const* offsets = nullptr; // [count + 1]
  std::int64_t count = 0;
  std::int64_t num_heads = 1;
  std::int64_t longest = longest_of_thread; // tests use other values

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t longest_of_team() const { return 16 * longest; }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t length(std::int64_t list) const {
    return offsets[list + 1] - offsets[list];
  }
};

namespace detail {

/// One thread's part of a list: entries begin .. end - 1.
struct ListPart {
  std::int64_t list;
  std::int64_t head;
  runtime::Offset begin;
  runtime::Offset end;
};

/// A list that the threads of a team share. Body has
///
///   numbers()                                          count of partial sums per list and head
///   to_memory(team, part, numbers)                     writes the partial sums of a part to `numbers`
///   finish(team, list, head, partial, count, stride)   writes the result from the partial sums of `count` parts, `stride` apart
///   whole(team, part)                                  computes and writes the result of a whole list
template<class T, class Body>
struct SharedList {
  /// Called by all threads of the team. `scratch` has body.numbers() numbers per thread.
  static KOKKOS_FUNCTION void run(Body const& body, Lists const& lists, RowTeam const& team,
                                  std::int64_t list, T* scratch) {
    auto const begin = lists.offsets[list];
    auto const length = lists.length(list);
    for (std::int64_t first = 0; first < lists.num_heads; first += team.team_size()) {
      auto const left = lists.num_heads - first;
      auto const num_heads = left < team.team_size() ? left : team.team_size();
      auto const num_parts = team.team_size() / num_heads;
      auto const head = first + team.team_rank() % num_heads;
      auto const part = team.team_rank() / num_heads;
      auto* const numbers = scratch + team.team_rank() * body.numbers();
      if (part < num_parts)
        body.to_memory(
            team, {list, head, begin + length * part / num_parts, begin + length * (part + 1) / num_parts},
            numbers);
      team.team_barrier();
      if (part == 0)
        body.finish(team, list, head, numbers, static_cast<int>(num_parts), num_heads * body.numbers());
      team.team_barrier();
    }
  }
  static KOKKOS_FUNCTION T* scratch(Body const& body, RowTeam const& team) {
    return static_cast<T*>(team.team_shmem().get_shmem_aligned(
        static_cast<std::size_t>(team.team_size() * body.numbers()) * sizeof(T), 16));
  }
};

/// Functor of the first launch.
template<class T, class Body>
struct EachList {
  Body body;
  Lists lists;
  std::int64_t lists_per_team;

  KOKKOS_FUNCTION void operator()(RowTeam const& team) const {
    auto const first = static_cast<std::int64_t>(team.league_rank()) * lists_per_team;
    auto const left = lists.count - first;
    auto const count = static_cast<int>(left < lists_per_team ? left : lists_per_team);
    auto const num_heads = static_cast<int>(lists.num_heads);
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count * num_heads), [&](int i) {
      auto const list = first + i / num_heads;
      ListPart const part{list, i % num_heads, lists.offsets[list], lists.offsets[list + 1]};
      if (part.end - part.begin <= lists.longest) body.whole(team, part);
    });
    auto* const scratch = SharedList<T, Body>::scratch(body, team);
    for (auto list = first; list < first + count; ++list) {
      auto const length = lists.length(list);
      if (length > lists.longest && length <= lists.longest_of_team())
        SharedList<T, Body>::run(body, lists, team, list, scratch);
    }
  }
};

/// Functor of the second launch.
template<class T, class Body>
struct EachLongList {
  static constexpr std::int64_t lists_per_team = 1024;
  Body body;
  Lists lists;

  KOKKOS_FUNCTION void operator()(RowTeam const& team) const {
    auto const first = static_cast<std::int64_t>(team.league_rank()) * lists_per_team;
    auto const end = first + lists_per_team < lists.count ? first + lists_per_team : lists.count;
    auto* const scratch = SharedList<T, Body>::scratch(body, team);
    for (auto begin = first; begin < end; begin += team.team_size()) {
      // The threads check one list each: is any of them long?
      auto const list = begin + team.team_rank();
      int is_long = list < end && lists.length(list) > lists.longest_of_team() ? 1 : 0;
      team.team_reduce(Kokkos::Max<int>(is_long));
      team.team_barrier(); // old releases of Kokkos have no barrier after the reduction
      if (is_long == 0) continue;
      auto const stop = begin + team.team_size() < end ? begin + team.team_size() : end;
      for (auto k = begin; k < stop; ++k)
        if (lists.length(k) > lists.longest_of_team())
          SharedList<T, Body>::run(body, lists, team, k, scratch);
    }
  }
};

/// Bytes of shared memory for the partial sums of one thread. A team must not use more than most_scratch.
template<class T, class Body>
std::int64_t scratch_of_thread(Body const& body) {
  return std::max<std::int64_t>(1, body.numbers()) * static_cast<std::int64_t>(sizeof(T));
}
inline constexpr std::int64_t most_scratch = 32 * 1024;

/// Policy with as many threads per team as `lanes_per_team` and the scratch memory allow. If the partial sums of one thread do not fit,
/// the team gets no scratch memory and must not share lists.
template<class T, class Body, class Functor>
RowTeamPolicy list_policy(runtime::DefaultExec const& exec, Body const& body, Functor const& functor,
                          std::int64_t num_teams, int num_lanes, int lanes_per_team) {
  auto const of_thread = scratch_of_thread<T>(body);
  auto const bytes = of_thread <= most_scratch ? of_thread : 0;
  auto const wanted = bytes == 0
                          ? lanes_per_team / num_lanes
                          : std::clamp<std::int64_t>(most_scratch / bytes, 1, lanes_per_team / num_lanes);
  auto const scratch = [&](std::int64_t threads) {
    return Kokkos::PerTeam(static_cast<int>(threads * bytes) + 16);
  };
  auto const most = RowTeamPolicy(exec, 1, 1, num_lanes)
                        .set_scratch_size(0, scratch(wanted))
                        .team_size_max(functor, Kokkos::ParallelForTag());
  auto const num_threads = std::min<std::int64_t>(wanted, most);
  RowTeamPolicy policy(exec, static_cast<int>(num_teams), static_cast<int>(num_threads), num_lanes);
  policy.set_scratch_size(0, scratch(num_threads));
  return policy;
}

template<class T, class Body>
void run_lists(runtime::DefaultExec const& exec, char const* label, Lists lists, int num_lanes,
               Body const& body) {
  if (lists.count * lists.num_heads == 0) return;
  auto const shares = scratch_of_thread<T>(body) <= most_scratch;
  if (!shares) lists.longest = std::int64_t{1} << 48; // a single thread processes lists of any length
  constexpr int of_small_teams = 128;
  constexpr int of_large_teams = 1024;
  EachList<T, Body> each{body, lists, 1};
  each.lists_per_team = std::max<std::int64_t>(1, of_small_teams / num_lanes / lists.num_heads);
  auto const num_teams = (lists.count + each.lists_per_team - 1) / each.lists_per_team;
  Kokkos::parallel_for(label, list_policy<T>(exec, body, each, num_teams, num_lanes, of_small_teams), each);
  if (!shares) return;
  using Long = EachLongList<T, Body>;
  Long const longer{body, lists};
  auto const num_chunks = (lists.count + Long::lists_per_team - 1) / Long::lists_per_team;
  Kokkos::parallel_for(label, list_policy<T>(exec, body, longer, num_chunks, num_lanes, of_large_teams),
                       longer);
}

/// Number of lanes: `num_items` rounded up to a power of two, at most a warp.
inline int num_lanes_for(std::int64_t num_items) {
  int lanes = 1;
  while (lanes < 32 && lanes < num_items)
    lanes *= 2;
  return lanes;
}

template<class T, class Terms>
struct ScalarBody {
  Terms terms;

  KOKKOS_FUNCTION static T join(T x, T y) {
    if constexpr (requires { Terms::join(x, y); })
      return Terms::join(x, y);
    else
      return x + y;
  }
  KOKKOS_FUNCTION void finish(std::int64_t list, std::int64_t head, T total) const {
    if constexpr (requires { terms.finish(list, head, total); }) terms.finish(list, head, total);
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t numbers() const { return 1; }
  KOKKOS_FUNCTION void whole(RowTeam const& team, ListPart const& part) const {
    auto const total = terms.sum(team, part);
    Kokkos::single(Kokkos::PerThread(team), [&] { finish(part.list, part.head, total); });
  }
  KOKKOS_FUNCTION void to_memory(RowTeam const& team, ListPart const& part, T* numbers) const {
    auto const total = terms.sum(team, part);
    Kokkos::single(Kokkos::PerThread(team), [&] { *numbers = total; });
  }
  KOKKOS_FUNCTION void finish(RowTeam const& team, std::int64_t list, std::int64_t head, T const* partial,
                              int count, std::int64_t stride) const {
    Kokkos::single(Kokkos::PerThread(team), [&] {
      auto total = partial[0];
      for (int p = 1; p < count; ++p)
        total = join(total, partial[p * stride]);
      finish(list, head, total);
    });
  }
};

template<class T, class Terms, int pack>
struct RowBody {
  Terms terms;
  std::int64_t width;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t numbers() const { return Terms::outputs * width; }
  /// Calls visit(output, column, sum) for all outputs and columns of the part.
  template<class Visit>
  KOKKOS_FUNCTION void for_each_sum(RowTeam const& team, ListPart const& part, Visit const& visit) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, static_cast<int>(width) / pack), [&](int lane) {
      T sums[Terms::outputs][pack] = {};
      terms.add(part, lane * pack, sums);
      for (int o = 0; o < Terms::outputs; ++o)
        for (int i = 0; i < pack; ++i)
          visit(o, lane * pack + i, sums[o][i]);
    });
  }
  KOKKOS_FUNCTION void whole(RowTeam const& team, ListPart const& part) const {
    for_each_sum(team, part,
                 [&](int o, std::int64_t c, T sum) { terms.finish(o, part.list, part.head, c, sum); });
  }
  KOKKOS_FUNCTION void to_memory(RowTeam const& team, ListPart const& part, T* numbers) const {
    for_each_sum(team, part, [&](int o, std::int64_t c, T sum) { numbers[o * width + c] = sum; });
  }
  KOKKOS_FUNCTION void finish(RowTeam const& team, std::int64_t list, std::int64_t head, T const* partial,
                              int count, std::int64_t stride) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, static_cast<int>(numbers())), [&](int k) {
      auto total = partial[k];
      for (int p = 1; p < count; ++p)
        total += partial[p * stride + k];
      terms.finish(k / static_cast<int>(width), list, head, k % width, total);
    });
  }
};

} // namespace detail

/// Computes one number per list and head. `num_items`: number of items that the lanes of a thread share. Enqueues on exec; does not
/// fence. Terms has
///
///   T sum(team, part)           sum over the entries of a part, returned on every lane
///   T join(T, T)                combines the sums of two parts; optional, the default is addition
///   finish(list, head, total)   stores the result; optional if sum() stores what is needed
template<class T, class Terms>
void sum_lists(runtime::DefaultExec const& exec, char const* label, Lists const& lists,
               std::int64_t num_items, Terms const& terms) {
  detail::run_lists<T>(exec, label, lists, detail::num_lanes_for(num_items),
                       detail::ScalarBody<T, Terms>{terms});
}

/// Computes `Terms::outputs` rows of `width` numbers per list and head. Enqueues on exec; does not fence. Terms has
///
///   add(part, column, sums)                     adds the terms of a part in columns column, column + 1, .. to sums[output][..]
///   finish(output, list, head, column, total)   stores a result
///   is_aligned()                                true if 16 bytes may be read at once when they divide the width
template<class T, class Terms>
void sum_list_rows(runtime::DefaultExec const& exec, char const* label, Lists const& lists,
                   std::int64_t width, Terms const& terms) {
  constexpr int pack = 16 / static_cast<int>(sizeof(T));
  if (width % pack == 0 && terms.is_aligned())
    detail::run_lists<T>(exec, label, lists, detail::num_lanes_for(width / pack),
                         detail::RowBody<T, Terms, pack>{terms, width});
  else
    detail::run_lists<T>(exec, label, lists, detail::num_lanes_for(width),
                         detail::RowBody<T, Terms, 1>{terms, width});
}

} // namespace orthant::pmm

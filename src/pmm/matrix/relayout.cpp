// SPDX-License-Identifier: Apache-2.0
#include "pmm/matrix/relayout.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/list_teams.hpp"
#include "pmm/kernels/packs.hpp"
#include "pmm/matrix/relayout_moves.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

using detail::MovesByRank;
using detail::Runs;
using Counts = std::vector<std::int64_t>;

struct HostRuns {
  Counts sources;
  Counts targets;
  Counts lengths;

  void add(std::int64_t source, std::int64_t target, std::int64_t length) {
    auto const continues = !lengths.empty() && sources.back() + lengths.back() == source &&
                           targets.back() + lengths.back() == target &&
                           lengths.back() + length <= longest_run;
    if (continues) {
      lengths.back() += length;
      return;
    }
    for (std::int64_t done = 0; done < length; done += longest_run) {
      sources.push_back(source + done);
      targets.push_back(target + done);
      lengths.push_back(std::min(longest_run, length - done));
    }
  }
};

Vector<std::int64_t> to_device(Counts const& values) {
  Vector<std::int64_t> view(
      Kokkos::view_alloc(std::string("orthant::pmm::relayout"), Kokkos::WithoutInitializing), values.size());
  Kokkos::deep_copy(view, Kokkos::View<std::int64_t const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              values.data(), values.size()));
  return view;
}

Runs to_device(HostRuns const& runs) {
  return {to_device(runs.sources), to_device(runs.targets), to_device(runs.lengths)};
}

/// Offset of an element with these global indices in the memory of a piece.
std::int64_t place_of(Block const& block, std::int64_t row, std::int64_t column) {
  return (row - block.rows.begin) * block.columns.size() + column - block.columns.begin - block.first;
}

/// One thread copies a run, and its vector lanes copy neighboring numbers. Rows of a few hundred numbers keep a
/// whole team busy.
template<class T>
struct CopyRuns {
  Runs runs;
  PackedArray<T const> source;
  PackedArray<T> target;

  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t i) const {
    auto const run = static_cast<std::size_t>(i);
    auto const from = runs.sources(run);
    auto const to = runs.targets(run);
    auto const length = runs.lengths(run);
    if (from % pack_size == 0 && to % pack_size == 0) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, (length + pack_size - 1) / pack_size),
                           [&](std::int64_t pack) {
                             auto const k = pack * pack_size;
                             target.store(to + k, length - k, source.load(from + k, length - k));
                           });
      return;
    }
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, length),
                         [&](std::int64_t k) { target[to + k] = source[from + k]; });
  }
};

/// Copies on host processors, with one team per run.
template<class T>
struct CopyRunsOnHost {
  using TeamPolicy = Kokkos::TeamPolicy<DefaultExec>;

  Runs runs;
  Vector<T> source;
  Vector<T> target;

  KOKKOS_FUNCTION void operator()(typename TeamPolicy::member_type const& team) const {
    auto const run = static_cast<std::size_t>(team.league_rank());
    T const* const from = source.data() + runs.sources(run);
    T* const to = target.data() + runs.targets(run);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, runs.lengths(run)),
                         [&](std::int64_t i) { to[i] = from[i]; });
  }
};

/// Copies all runs, and counts them as one pass. `num_elements`: elements of all runs together.
template<class T>
void copy(DefaultExec const& exec, runtime::PassLedger& passes, std::string_view name, Runs const& runs,
          std::int64_t num_elements, Vector<T> const& source, Vector<T> const& target) {
  constexpr auto label = "orthant::pmm::relayout";
  auto const num_runs = runs.lengths.extent(0);
  if (num_runs == 0) return;
  auto const bytes = num_elements * static_cast<std::int64_t>(sizeof(T));
  passes.add({name, bytes + runtime::array_bytes(runs.sources, runs.targets, runs.lengths), bytes});
  if constexpr (runs_on_host) {
    Kokkos::parallel_for(
        label, typename CopyRunsOnHost<T>::TeamPolicy(exec, static_cast<int>(num_runs), Kokkos::AUTO, 32),
        CopyRunsOnHost<T>{runs, source, target});
  } else {
    for_each_row(exec, label, static_cast<std::int64_t>(num_runs), 32,
                 CopyRuns<T>{runs, PackedArray<T const>(source.data()), PackedArray<T>(target.data())});
  }
}

void require_same_matrix(Placement const& from, Placement const& to, bool has_row_map) {
  auto const is_same = from.extents == to.extents && from.layout.column_order == to.layout.column_order &&
                       (has_row_map || from.layout.row_order == to.layout.row_order);
  ORTHANT_REQUIRE(is_same, "relayout changes axes and storage", has_row_map ? " and the order of rows" : "",
                  ", nothing else; from ", from.to_string(), " to ", to.to_string());
}

void require_balanced(Placement const& from, Placement const& to) {
  ORTHANT_REQUIRE(!from.own_rows && !to.own_rows && !from.own_columns && !to.own_columns,
                  "where sampled rows lie is not known from their placements; from ", from.to_string(),
                  " to ", to.to_string());
}

} // namespace

template<class T>
Relayout<T>::Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to)
    : grid_(&grid),
      from_(from),
      to_(to),
      is_local_(detail::moves_nothing(grid.shape(), from.layout, to.layout)) {
  require_same_matrix(from, to, false);
  require_balanced(from, to);
  auto const moves = detail::intersecting_moves(grid, from, to);
  plan(moves.sends, moves.receives);
}

template<class T>
Relayout<T>::Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to,
                      std::vector<std::int64_t> const& source_rows)
    : grid_(&grid),
      from_(from),
      to_(to),
      is_local_(grid.shape().size(group_axes) == 1) {
  require_same_matrix(from, to, true);
  ORTHANT_REQUIRE(from.layout.storage != Storage::flat_sharded && to.layout.storage != Storage::flat_sharded,
                  "rows of flat shards are not reordered; from ", from.to_string(), " to ", to.to_string());
  require_balanced(from, to);
  auto const moves = detail::requested_moves(grid, from, to, source_rows);
  plan(moves.sends, moves.receives);
}

template<class T>
Relayout<T>::Relayout(ProcessGrid const& grid, Placement const& from, Placement const& to,
                      SampledRows const& rows)
    : grid_(&grid),
      from_(from),
      to_(to),
      is_local_(grid.shape().size(group_axes) == 1 ||
                (from.layout.row_order == to.layout.row_order &&
                 detail::moves_nothing(grid.shape(), from.layout, to.layout))) {
  require_same_matrix(from, to, true);
  auto const moves = detail::sampled_moves(grid, from, to, rows);
  plan(moves.sends, moves.receives);
}

template<class T>
void Relayout<T>::plan(MovesByRank const& sends, MovesByRank const& receives) {
  auto const source = block_of(*grid_, from_);
  auto const target = block_of(*grid_, to_);
  auto const me = static_cast<std::size_t>(rank_within(grid_->shape(), grid_->coordinates(), group_axes));
  HostRuns kept;
  HostRuns packed;
  HostRuns unpacked;
  std::int64_t num_sent = 0;
  std::int64_t num_received = 0;
  for (std::size_t rank = 0; rank < sends.size(); ++rank) {
    send_counts_.push_back(0);
    receive_counts_.push_back(0);
    if (rank == me) {
      for (auto const& move : receives[rank])
        for (std::int64_t i = 0; i < move.num_rows; ++i)
          kept.add(place_of(source, move.source_row + i, move.columns.begin),
                   place_of(target, move.target_row + i, move.columns.begin), move.columns.size());
      continue;
    }
    auto const send_begin = num_sent;
    for (auto const& move : sends[rank])
      for (std::int64_t i = 0; i < move.num_rows; ++i, num_sent += move.columns.size())
        packed.add(place_of(source, move.source_row + i, move.columns.begin), num_sent, move.columns.size());
    send_counts_.back() = num_sent - send_begin;
    auto const receive_begin = num_received;
    for (auto const& move : receives[rank])
      for (std::int64_t i = 0; i < move.num_rows; ++i, num_received += move.columns.size())
        unpacked.add(num_received, place_of(target, move.target_row + i, move.columns.begin),
                     move.columns.size());
    receive_counts_.back() = num_received - receive_begin;
  }
  kept_ = to_device(kept);
  num_kept_ = std::accumulate(kept.lengths.begin(), kept.lengths.end(), std::int64_t{0});
  packed_ = to_device(packed);
  unpacked_ = to_device(unpacked);
  send_ = Vector<T>("orthant::pmm::relayout/send", static_cast<std::size_t>(num_sent));
  receive_ = Vector<T>("orthant::pmm::relayout/receive", static_cast<std::size_t>(num_received));
}

template<class T>
template<class Number>
void Relayout<T>::run(DefaultExec const& exec, DistMatrix<Number> const& from,
                      DistMatrix<Number> const& to) const {
  static_assert(sizeof(Number) <= sizeof(T));
  ORTHANT_REQUIRE(from.placement() == from_ && to.placement() == to_, "relayout from ",
                  from.placement().to_string(), " to ", to.placement().to_string(), "; planned was from ",
                  from_.to_string(), " to ", to_.to_string());
  auto& passes = grid_->passes();
  auto const sizes = this->sizes();
  Vector<Number> const sent(reinterpret_cast<Number*>(send_.data()), send_.extent(0));
  Vector<Number> const received(reinterpret_cast<Number*>(receive_.data()), receive_.extent(0));
  copy(exec, passes, "relayout/pack", packed_, sizes.num_sent, from.storage(), sent);
  copy(exec, passes, "relayout/keep", kept_, sizes.num_kept, from.storage(), to.storage());
  if (is_local_) return;
  runtime::all_to_allv(exec, grid_->group(), as_message(sent), message_counts<Number>(send_counts_),
                       as_message(received), message_counts<Number>(receive_counts_));
  copy(exec, passes, "relayout/unpack", unpacked_, sizes.num_received, received, to.storage());
}

template<class T>
RelayoutSizes Relayout<T>::sizes() const {
  auto const length = [](auto const& array) { return static_cast<std::int64_t>(array.extent(0)); };
  return {length(kept_.lengths),
          length(packed_.lengths),
          length(unpacked_.lengths),
          num_kept_,
          length(send_),
          length(receive_),
          !is_local_};
}

template<class T>
std::vector<PlannedCall> Relayout<T>::calls() const {
  StepPlan step(grid_->shape(), grid_->coordinates(), sizeof(T));
  plan_relayout(step, sizes());
  return calls_of(step);
}

template class Relayout<float>;
template class Relayout<double>;
#define ORTHANT_INSTANTIATE(T, Number)                                                                       \
  template void Relayout<T>::run(DefaultExec const&, DistMatrix<Number> const&, DistMatrix<Number> const&)   \
      const;
ORTHANT_INSTANTIATE(float, float)
ORTHANT_INSTANTIATE(double, double)
ORTHANT_INSTANTIATE(float, runtime::Bf16Number)
ORTHANT_INSTANTIATE(float, runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm

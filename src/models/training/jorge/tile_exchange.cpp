// SPDX-License-Identifier: Apache-2.0
#include "models/training/jorge/tile_exchange.hpp"

#include "models/parameters/device_copy.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace orthant::models {
namespace {

using detail::CopiedPart;
using detail::CopiedParts;
using runtime::DefaultExec;
using runtime::Vector;

template<class T>
struct CopyParts {
  using Team = Kokkos::TeamPolicy<DefaultExec>::member_type;
  Vector<CopiedPart<T>> parts;
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    auto const part = parts(static_cast<std::size_t>(team.league_rank()));
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, part.num_rows), [&](std::int64_t row) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, part.num_columns), [&](std::int64_t column) {
        part.to[row * part.to_stride + column] = part.from[row * part.from_stride + column];
      });
    });
  }
};

runtime::LocalPass pass_of_copy(std::int64_t bytes) {
  return {"copy_tiles", bytes, bytes};
}

template<class T>
void copy(DefaultExec const& exec, runtime::PassLedger& passes, CopiedParts<T> const& parts) {
  constexpr auto label = "orthant::models::copy_tiles";
  passes.add(pass_of_copy(parts.num_numbers * static_cast<std::int64_t>(sizeof(T))));
  if constexpr (pmm::runs_on_host) {
    for (auto const& part : parts.on_host)
      pmm::for_each_part(exec, label, part.num_rows, [=](std::int64_t begin, std::int64_t end) {
        for (auto row = begin; row < end; ++row)
          std::copy_n(part.from + row * part.from_stride, part.num_columns, part.to + row * part.to_stride);
      });
  } else {
    auto const num_parts = static_cast<int>(parts.on_device.extent(0));
    if (num_parts == 0) return;
    Kokkos::parallel_for(label, Kokkos::TeamPolicy<DefaultExec>(exec, num_parts, Kokkos::AUTO, 32),
                         CopyParts<T>{parts.on_device});
  }
}

/// Matrices as each rank of the group stores them; without extents if none has them. Collective over the group.
template<class T>
std::vector<std::vector<TiledMatrix>> pieces_of_all(pmm::ProcessGrid const& grid,
                                                    std::vector<Parameter<T>> const& matrices) {
  std::vector<std::int64_t> own;
  for (auto const& parameter : matrices) {
    auto const& block = parameter.matrix.block();
    for (auto const number :
         {block.rows.begin, block.rows.end, block.columns.begin, block.columns.end, block.first,
          block.num_stored, std::int64_t{parameter.matrix.is_first_replica() ? 1 : 0}})
      own.push_back(number);
  }
  std::vector<std::vector<TiledMatrix>> pieces(static_cast<std::size_t>(grid.size(pmm::group_axes)));
  auto all = own;
  if (pieces.size() > 1 && !own.empty()) {
    all.resize(own.size() * pieces.size());
    runtime::all_gather(runtime::host, grid.group(), std::span<std::int64_t const>(own),
                        std::span<std::int64_t>(all));
  }
  auto const* next = all.data();
  for (auto& of_rank : pieces)
    for (std::size_t p = 0; p < matrices.size(); ++p, next += 7) {
      auto const& placement = matrices[p].matrix.placement();
      pmm::Block const piece{{next[0], next[1]}, {next[2], next[3]}, {}, next[4], next[5], next[5]};
      of_rank.push_back({p, placement.extents, piece, next[6] == 1});
      if (placement.layout.storage == pmm::Storage::replicated)
        of_rank.back().num_copies = grid.size(placement.layout.third());
    }
  for (std::size_t p = 0; p < matrices.size(); ++p) {
    auto const is_here =
        std::ranges::any_of(pieces, [&](auto const& of_rank) { return of_rank[p].piece.num_stored > 0; });
    for (auto& of_rank : pieces)
      if (!is_here) of_rank[p].extents = {};
  }
  return pieces;
}

/// Where a part of a tile begins, in a piece, in a tile, or in a message.
template<class T>
struct Place {
  T* numbers;
  std::int64_t stride;
};

/// The next part of a message, whose rows lie one after the other. `count`: numbers of this rank in the message so far.
template<class T>
Place<T> take(T*& next, std::int64_t& count, TilePart const& part) {
  Place<T> const place{next, part.columns.size()};
  next += part.size();
  count += part.size();
  return place;
}

template<class T>
Place<T> place_in(pmm::Block const& piece, T* gradient, TilePart const& part) {
  auto const width = piece.columns.size();
  return {gradient + (part.rows.begin - piece.rows.begin) * width + part.columns.begin - piece.columns.begin -
              piece.first,
          width};
}
template<class T>
Place<T> place_in(Tile const& tile, T* numbers, TilePart const& part) {
  auto const width = tile.columns.size();
  return {numbers + (part.rows.begin - tile.rows.begin) * width + part.columns.begin - tile.columns.begin,
          width};
}

template<class T>
void add(CopiedParts<T>& list, TilePart const& part, Place<T> const& from, Place<T> const& to) {
  list.add(part, {from.numbers, to.numbers, from.stride, to.stride});
}

} // namespace

void plan_tile_arrays(pmm::StepPlan& step, TileSizes const& sizes) {
  step.add_array("orthant::models::tiles", step.scalar_bytes(sizes.num_owned));
  step.add_array("orthant::models::tiles_at_pieces", step.scalar_bytes(sizes.num_foreign));
  step.add_array("orthant::models::tiles_at_owners", step.scalar_bytes(sizes.num_returned));
}

void plan_to_owners(pmm::StepPlan& step, TileSizes const& sizes) {
  step.add_pass(pass_of_copy(step.scalar_bytes(sizes.num_given + sizes.num_in_own)));
  step.add_call(runtime::Operation::all_to_all, pmm::group_axes, step.scalar_bytes(sizes.num_given),
                step.scalar_bytes(sizes.num_taken));
  step.add_pass(pass_of_copy(step.scalar_bytes(sizes.num_taken)));
}

void plan_from_owners(pmm::StepPlan& step, TileSizes const& sizes) {
  step.add_pass(pass_of_copy(step.scalar_bytes(sizes.num_returned + sizes.num_kept)));
  step.add_call(runtime::Operation::all_to_all, pmm::group_axes, step.scalar_bytes(sizes.num_returned),
                step.scalar_bytes(sizes.num_foreign));
  step.add_pass(pass_of_copy(step.scalar_bytes(sizes.num_foreign)));
}

template<class T>
TileExchange<T>::TileExchange(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& matrices,
                              std::int64_t side)
    : grid_(&grid) {
  auto const pieces = pieces_of_all(grid, matrices);
  auto const own_rank = grid.coordinate(pmm::group_axes);
  auto const& own = pieces[static_cast<std::size_t>(own_rank)];
  tiles_ = deal_tiles(own, side, grid.size(pmm::group_axes));
  for (auto const& tile : tiles_)
    if (tile.owner == own_rank) own_tiles_.push_back(tile);
  sizes_ = sizes_of(own, tiles_, own_rank);
  numbers_ = Vector<T>("orthant::models::tiles", static_cast<std::size_t>(sizes_.num_owned));
  at_pieces_ = Vector<T>("orthant::models::tiles_at_pieces", static_cast<std::size_t>(sizes_.num_foreign));
  at_owners_ = Vector<T>("orthant::models::tiles_at_owners", static_cast<std::size_t>(sizes_.num_returned));
  list_copies(matrices, pieces);
}

/// Both sides of a message list its parts by tile and part of the piece.
template<class T>
void TileExchange<T>::list_copies(std::vector<Parameter<T>> const& matrices,
                                  std::vector<Pieces> const& pieces) {
  for (auto* const counts : {&of_gradients_, &of_results_}) {
    counts->sent.resize(pieces.size());
    counts->received.resize(pieces.size());
  }
  auto const own_rank = static_cast<std::size_t>(grid_->coordinate(pmm::group_axes));
  auto const in_own_piece = [&](Tile const& tile, TilePart const& part) {
    return place_in(pieces[own_rank][tile.matrix].piece, matrices[tile.matrix].gradient().data(), part);
  };
  auto* given = at_pieces_.data();
  auto* foreign = at_pieces_.data();
  auto* taken = at_owners_.data();
  auto* returned = at_owners_.data();
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    auto* numbers = numbers_.data();
    for (auto const& tile : own_tiles_) {
      auto const& [p, extents, piece, is_first_copy, num_copies] = pieces[rank][tile.matrix];
      for (auto const& part : parts_of(piece, tile)) {
        auto const in_tile = place_in(tile, numbers, part);
        auto const is_own = rank == own_rank;
        if (is_first_copy)
          add(is_own ? packed_ : unpacked_, part,
              is_own ? in_own_piece(tile, part) : take(taken, of_gradients_.received[rank], part), in_tile);
        add(packed_back_, part, in_tile,
            is_own ? in_own_piece(tile, part) : take(returned, of_results_.sent[rank], part));
      }
      numbers += tile.size();
    }
    for (auto const& tile : tiles_) {
      if (rank == own_rank || tile.owner != static_cast<int>(rank)) continue;
      auto const& matrix = pieces[own_rank][tile.matrix];
      for (auto const& part : parts_of(matrix.piece, tile)) {
        auto const in_piece = in_own_piece(tile, part);
        if (matrix.is_first_copy) add(packed_, part, in_piece, take(given, of_gradients_.sent[rank], part));
        add(unpacked_back_, part, take(foreign, of_results_.received[rank], part), in_piece);
      }
    }
  }
  if constexpr (!pmm::runs_on_host)
    for (auto* const list : {&packed_, &unpacked_, &packed_back_, &unpacked_back_})
      list->on_device = to_vector<CopiedPart<T>>("orthant::models::copied_parts", list->on_host);
}

template<class T>
void TileExchange<T>::to_owners(DefaultExec const& exec) const {
  if (tiles_.empty()) return;
  copy(exec, grid_->passes(), packed_);
  if (grid_->size(pmm::group_axes) > 1)
    runtime::all_to_allv(exec, grid_->group(), runtime::part_of(at_pieces_, 0, sizes_.num_given),
                         of_gradients_.sent, runtime::part_of(at_owners_, 0, sizes_.num_taken),
                         of_gradients_.received);
  copy(exec, grid_->passes(), unpacked_);
}

template<class T>
void TileExchange<T>::from_owners(DefaultExec const& exec) const {
  if (tiles_.empty()) return;
  copy(exec, grid_->passes(), packed_back_);
  if (grid_->size(pmm::group_axes) > 1)
    runtime::all_to_allv(exec, grid_->group(), at_owners_, of_results_.sent, at_pieces_,
                         of_results_.received);
  copy(exec, grid_->passes(), unpacked_back_);
}

template class TileExchange<float>;
template class TileExchange<double>;

} // namespace orthant::models

// SPDX-License-Identifier: Apache-2.0
#include "models/training/gradient_shards.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Vector;

enum class Move : std::uint8_t { set, add, take_back };

/// The elements of a matrix that a bucket holds: `count` of each owner.
template<class T>
struct BucketPiece {
  T* matrix;
  std::int64_t length;      // of the matrix
  std::int64_t part_length; // from one owner's part to the next
  T* bucket;
  std::int64_t range; // from one owner's range in the bucket to the next
  std::int64_t count;

  template<Move move>
  KOKKOS_FUNCTION void work_on(std::int64_t owner, std::int64_t i) const {
    auto const from = owner * part_length + i;
    auto& in_bucket = bucket[owner * range + i];
    if constexpr (move == Move::take_back) {
      if (from < length) matrix[from] = in_bucket;
    } else {
      auto const number = from < length ? matrix[from] : T{0};
      in_bucket = move == Move::add ? in_bucket + number : number;
    }
  }
};

template<class T, Move move>
struct MovePiece {
  BucketPiece<T> piece;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    piece.template work_on<move>(i / piece.count, i % piece.count);
  }
};

template<Move move, class T>
void move_piece(DefaultExec const& exec, char const* label, BucketPiece<T> const& piece,
                std::int64_t num_owners) {
  if constexpr (pmm::runs_on_host) {
    for (std::int64_t owner = 0; owner < num_owners; ++owner) // contiguous elements, without divisions
      pmm::for_each_part(exec, label, piece.count, [=](std::int64_t begin, std::int64_t end) {
        for (auto i = begin; i < end; ++i)
          piece.template work_on<move>(owner, i);
      });
  } else {
    Kokkos::parallel_for(label,
                         Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_owners * piece.count),
                         MovePiece<T, move>{piece});
  }
}

/// to := from, or to += from.
template<class T>
void add_numbers(DefaultExec const& exec, char const* label, Vector<T> const& from, Vector<T> const& to,
                 bool is_first) {
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<DefaultExec, std::size_t>(exec, 0, from.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) { to(i) = is_first ? from(i) : to(i) + from(i); });
}

template<class T>
Vector<T> slice_of(Vector<T> const& array, std::int64_t begin, std::int64_t length) {
  return Vector<T>(Kokkos::subview(
      array, std::pair(static_cast<std::size_t>(begin), static_cast<std::size_t>(begin + length))));
}

} // namespace

namespace detail {

template<class T>
ShardedMatrices<T>::ShardedMatrices(pmm::ProcessGrid const& grid, pmm::AxisSet axes,
                                    std::vector<Parameter<T>> matrices, ShardSettings const& settings)
    : grid_(&grid),
      axes_(axes),
      matrices_(std::move(matrices)) {
  std::vector<std::int64_t> lengths;
  for (auto const& matrix : matrices_)
    lengths.push_back(matrix.matrix.block().num_stored);
  parts_ = ShardParts(std::move(lengths), grid.size(axes), sizeof(T), settings);
  auto const slots = static_cast<std::size_t>(parts_.slots_length());
  if (slots == 0) return;
  owned_ = runtime::make_zeros<T>("orthant::models::owned_gradients",
                                  static_cast<std::size_t>(parts_.owned_length()));
  buckets_ = runtime::make_zeros<T>("orthant::models::gradient_buckets",
                                    slots * static_cast<std::size_t>(parts_.num_owners()));
  if (parts_.keeps_received())
    received_ = runtime::make_zeros<T>("orthant::models::received_gradients", slots);
}

template<class T>
Parameter<T> ShardedMatrices<T>::own_part(std::size_t p) const {
  auto const part = parts_.part(p, grid_->coordinate(axes_));
  auto own = matrices_[p];
  auto placement = own.matrix.placement();
  auto const first = own.matrix.block().first;
  placement.own_piece = pmm::Range{first + part.begin, first + part.end};
  own.matrix = {*grid_, placement, slice_of(own.matrix.storage(), part.begin, part.size())};
  own.matrix_gradient = {*grid_, placement, slice_of(owned_, parts_.place(p), part.size())};
  own.is_part_of_batches = true;
  return own;
}

template<class T>
Vector<T> ShardedMatrices<T>::slot(std::int64_t j) const {
  auto const place = j % parts_.num_slots() * parts_.bucket(0).size();
  return slice_of(buckets_, place * parts_.num_owners(), parts_.bucket(j).size() * parts_.num_owners());
}
template<class T>
Vector<T> ShardedMatrices<T>::owned(std::int64_t j) const {
  return slice_of(owned_, parts_.bucket(j).begin, parts_.bucket(j).size());
}
template<class T>
Vector<T> ShardedMatrices<T>::received(std::int64_t j) const {
  return slice_of(received_, j % parts_.num_slots() * parts_.bucket(0).size(), parts_.bucket(j).size());
}

/// Calls work(j, piece) for each bucket j that holds elements of matrix p, with its elements in `numbers`.
template<class T>
template<class Work>
void ShardedMatrices<T>::for_each_bucket(std::size_t p, Vector<T> const& numbers, Work const& work) const {
  auto const begin = parts_.place(p);
  auto const end = begin + parts_.part_length(p);
  if (begin == end) return;
  for (auto j = begin / parts_.bucket(0).size(); j < parts_.num_buckets() && parts_.bucket(j).begin < end;
       ++j) {
    auto const bucket = parts_.bucket(j);
    auto const first = std::max(begin, bucket.begin);
    auto const last = std::min(end, bucket.end);
    work(j, BucketPiece<T>{numbers.data() + (first - begin), parts_.length(p) - (first - begin),
                           parts_.part_length(p), slot(j).data() + (first - bucket.begin), bucket.size(),
                           last - first});
  }
}

/// Sums bucket j of batch k over the ranks. Without accumulated sums of its own, the result is this rank's sum.
template<class T>
void ShardedMatrices<T>::scatter(DefaultExec const& exec, std::int64_t k, std::int64_t j,
                                 bool is_asynchronous) {
  complete(exec, k, j - max_open_sums + 1);
  auto const to = parts_.settings().stage > 1 && k > 0 ? received(j) : owned(j);
  auto const& comm = grid_->over(axes_);
  if (is_asynchronous) {
    started_.push_back(runtime::start_reduce_scatter(exec, comm, slot(j), to));
  } else {
    runtime::reduce_scatter(exec, comm, slot(j), to);
    started_.emplace_back();
  }
}

/// Waits for the sums of the buckets before `end`, and adds them to those of earlier batches.
template<class T>
void ShardedMatrices<T>::complete(DefaultExec const& exec, std::int64_t k, std::int64_t end) {
  for (; num_completed_ < end; ++num_completed_) {
    started_[static_cast<std::size_t>(num_completed_)].wait();
    if (parts_.settings().stage > 1 && k > 0)
      add_numbers(exec, "orthant::models::GradientShards/sum", received(num_completed_),
                  owned(num_completed_), false);
  }
}

template<class T>
void ShardedMatrices<T>::take(DefaultExec const& exec, std::int64_t k, std::size_t num_complete,
                              bool starts_sums) {
  auto const is_last = k + 1 == parts_.settings().num_accumulated;
  auto const scatters = parts_.settings().stage > 1 || (starts_sums && is_last);
  constexpr auto label = "orthant::models::GradientShards/add";
  for (; num_taken_ < num_complete; ++num_taken_) {
    auto const& gradient = matrices_[num_taken_].matrix_gradient.storage();
    auto const end = parts_.place(num_taken_ + 1);
    for_each_bucket(num_taken_, gradient, [&](std::int64_t j, BucketPiece<T> const& piece) {
      if (parts_.settings().stage > 1) complete(exec, k, j - parts_.num_slots() + 1);
      if (parts_.adds_in_buckets(k))
        move_piece<Move::add>(exec, label, piece, parts_.num_owners());
      else
        move_piece<Move::set>(exec, label, piece, parts_.num_owners());
      if (scatters && parts_.bucket(j).end <= end) scatter(exec, k, j, starts_sums);
    });
  }
}

template<class T>
void ShardedMatrices<T>::end_batch(DefaultExec const& exec, std::int64_t k) {
  num_taken_ = 0;
  if (parts_.owned_length() == 0) return;
  grid_->passes().add(parts_.pass_of_adding(k));
  if (parts_.settings().stage == 1) return;
  end_sums(exec, k);
  if (k > 0) grid_->passes().add(parts_.pass_of_summing());
}

template<class T>
void ShardedMatrices<T>::end_sums(DefaultExec const& exec, std::int64_t k) {
  for (auto j = std::ssize(started_); j < parts_.num_buckets(); ++j)
    scatter(exec, k, j, false);
  complete(exec, k, parts_.num_buckets());
  started_.clear();
  num_completed_ = 0;
}

template<class T>
void ShardedMatrices<T>::finish(DefaultExec const& exec) {
  if (parts_.settings().stage == 1) end_sums(exec, parts_.settings().num_accumulated - 1);
}

template<class T>
void ShardedMatrices<T>::gather(DefaultExec const& exec) {
  if (parts_.owned_length() == 0) return;
  auto const own = grid_->coordinate(axes_);
  for (std::size_t p = 0; p < matrices_.size(); ++p) {
    auto const part = parts_.part(p, own);
    add_numbers(exec, "orthant::models::GradientShards/own_values",
                slice_of(matrices_[p].matrix.storage(), part.begin, part.size()),
                slice_of(owned_, parts_.place(p), part.size()), true);
  }
  std::int64_t num_gathered = 0;
  for (std::size_t p = 0; p < matrices_.size(); ++p)
    for_each_bucket(p, matrices_[p].matrix.storage(), [&](std::int64_t j, BucketPiece<T> const& piece) {
      for (; num_gathered <= j; ++num_gathered)
        runtime::all_gather(exec, grid_->over(axes_), owned(num_gathered), slot(num_gathered));
      move_piece<Move::take_back>(exec, "orthant::models::GradientShards/values", piece, parts_.num_owners());
    });
  grid_->passes().add(parts_.pass_of_own_values());
  grid_->passes().add(parts_.pass_of_values());
}

template class ShardedMatrices<float>;
template class ShardedMatrices<double>;

} // namespace detail

template<class T>
GradientShards<T>::GradientShards(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                                  std::vector<std::size_t> const& order, ShardSettings const& settings)
    : stage_(settings.stage),
      parameters_(parameters),
      places_(parameters.size()),
      num_complete_{{}} {
  ORTHANT_REQUIRE(stage_ == 1 || stage_ == 2, "states are sharded at stages 1 and 2, not ", stage_);
  std::array<std::vector<Parameter<T>>, 2> matrices; // weights; weights of experts
  for (auto const p : order) {
    auto const& parameter = parameters[p];
    auto const section = parameter.is_of_expert ? std::size_t{1} : std::size_t{0};
    if (!parameter.is_vector() && is_sharded(grid.shape(), parameter.role, parameter.matrix.placement(),
                                             parameter.is_frozen, parameter.is_of_expert)) {
      places_[p] = {static_cast<int>(section), matrices[section].size()};
      matrices[section].push_back(parameter);
    }
    num_complete_.push_back({matrices[0].size(), matrices[1].size()});
  }
  for (auto const is_of_expert : {false, true})
    sections_.emplace_back(grid, summed_axes(grid.shape(), is_of_expert),
                           std::move(matrices[is_of_expert ? 1 : 0]), settings);
}

template<class T>
Parameter<T> GradientShards<T>::own_part(std::size_t p) const {
  auto const& [section, matrix] = places_[p];
  return section < 0 ? parameters_[p] : sections_[static_cast<std::size_t>(section)].own_part(matrix);
}

template<class T>
void GradientShards<T>::take(DefaultExec const& exec, std::int64_t k, std::size_t num_complete,
                             bool starts_sums) {
  for (std::size_t s = 0; s < sections_.size(); ++s)
    sections_[s].take(exec, k, num_complete_[num_complete][s], starts_sums);
}

template<class T>
void GradientShards<T>::end_batch(DefaultExec const& exec, std::int64_t k) {
  for (auto& section : sections_)
    section.end_batch(exec, k);
}

template<class T>
void GradientShards<T>::finish(DefaultExec const& exec) {
  for (auto& section : sections_)
    section.finish(exec);
}

template<class T>
void GradientShards<T>::gather(DefaultExec const& exec) {
  for (auto& section : sections_)
    section.gather(exec);
}

template class GradientShards<float>;
template class GradientShards<double>;

} // namespace orthant::models

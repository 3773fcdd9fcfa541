// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampling_keys.hpp"

#include "runtime/collectives.hpp"
#include "runtime/together.hpp"

#include <bit>

namespace orthant::sampling {
namespace {

std::size_t word_of(std::int64_t vertex) {
  return static_cast<std::size_t>(vertex / 64);
}
std::uint64_t bit_of(std::int64_t vertex) {
  return std::uint64_t{1} << (vertex % 64);
}

} // namespace

SamplingKeys::SamplingKeys(runtime::Communicator const& comm, graph::GraphStore const& store,
                           std::size_t num_strata)
    : stratum_1_begin_(store.facts().num_vertices) {
  ORTHANT_REQUIRE(num_strata == 1 || num_strata == 2, num_strata, " strata");
  if (num_strata == 1) return;
  auto const num_vertices = store.facts().num_vertices;
  train_bits_.resize(word_of(num_vertices - 1) + 1);
  runtime::together(comm, [&] {
    auto const share = runtime::balanced_range(num_vertices, comm.size(), comm.rank());
    auto const ids = store.read_original_ids(graph::Order::p1, share);
    auto const mask = store.read_mask(graph::Split::train, graph::Order::p1, share);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (mask[i] != 0) train_bits_[word_of(ids[i])] |= static_cast<std::int64_t>(bit_of(ids[i]));
  });
  // No bit is set by two ranks: the sum is the union.
  runtime::all_reduce(runtime::host, comm, train_bits_);

  trains_before_.reserve(train_bits_.size());
  std::int64_t num_trains = 0;
  for (auto const word : train_bits_) {
    trains_before_.push_back(num_trains);
    num_trains += std::popcount(static_cast<std::uint64_t>(word));
  }
  stratum_1_begin_ = num_trains;
}

std::vector<std::int64_t> SamplingKeys::of(std::vector<std::int64_t> const& original_ids) const {
  if (train_bits_.empty()) return original_ids;
  std::vector<std::int64_t> keys;
  keys.reserve(original_ids.size());
  for (auto const id : original_ids) {
    auto const word = static_cast<std::uint64_t>(train_bits_[word_of(id)]);
    auto const num_before = trains_before_[word_of(id)] + std::popcount(word & (bit_of(id) - 1));
    keys.push_back((word & bit_of(id)) != 0 ? num_before : stratum_1_begin_ + id - num_before);
  }
  return keys;
}

} // namespace orthant::sampling

// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.hpp"

#include "runtime/error.hpp"

#include <limits>
#include <numeric>
#include <span>

namespace orthant::sampling {

using runtime::throw_user;

std::int64_t BatchKeys::size() const {
  return std::reduce(stratum_sizes.begin(), stratum_sizes.end());
}

Sampler::Sampler(std::int64_t num_groups, std::int64_t num_accumulated)
    : num_groups_(num_groups),
      num_accumulated_(num_accumulated) {
  ORTHANT_REQUIRE(num_groups_ >= 1 && num_accumulated_ >= 1, num_groups_, " groups, ", num_accumulated_,
                  " batches each");
  // If Gd K overflows, use a number that is larger than any graph and is therefore refused later.
  constexpr auto most = std::numeric_limits<std::int64_t>::max() / 2;
  step_batches_ = num_accumulated_ > most / num_groups_ ? most : num_groups_ * num_accumulated_;
}

void Sampler::describe(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const {
  ORTHANT_REQUIRE(epoch >= 0 && 0 <= batch && batch < num_batches(), "batch ", batch, " of epoch ", epoch);
  batch_keys.parts.clear();
  batch_keys.keys.clear();
  batch_keys.stratum_sizes.clear();
  batch_keys.factors.clear();
  batch_keys.loss_weights.clear();
  describe_batch(epoch, batch, batch_keys);
}

void Sampler::draw(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const {
  describe(epoch, batch, batch_keys);
  auto& keys = batch_keys.keys;
  keys.resize(static_cast<std::size_t>(batch_keys.size()));
  auto next = keys.begin();
  for (auto const& part : batch_keys.parts) {
    std::span const drawn(next, static_cast<std::size_t>(part.places.size()));
    if (part.order)
      part.order->images(static_cast<std::uint64_t>(part.places.begin), drawn);
    else
      std::iota(drawn.begin(), drawn.end(), part.places.begin);
    for (auto& key : drawn)
      key += part.keys.begin;
    next += part.places.size();
  }
}

std::int64_t Sampler::count_batches(std::int64_t num_wanted, std::int64_t batch_size, std::int64_t num_shared,
                                    std::string_view what) const {
  if (num_wanted < num_groups_)
    throw_user("batches of {} vertices make {} an epoch, so that some of the {} data groups have no work; "
               "give fewer groups or smaller batches",
               batch_size, num_wanted, num_groups_);
  auto const num_batches = divided_up(num_wanted, step_batches_) * step_batches_;
  if (num_batches > num_shared)
    throw_user("{} groups times --accumulate {} make {} batches an epoch, but there are {} {} to share "
               "out; give larger batches, fewer groups or accumulate less",
               num_groups_, num_accumulated_, num_batches, num_shared, what);
  return num_batches;
}

double edge_factor(std::int64_t num_vertices, std::int64_t num_sampled, bool is_same_stratum) {
  auto const self = is_same_stratum ? 1 : 0; // i itself is in the batch and is not its own neighbor
  if (num_sampled <= self) return 0;
  return static_cast<double>(num_vertices - self) / static_cast<double>(num_sampled - self);
}

void require_batch_size(std::int64_t batch_size, std::int64_t num_vertices, std::int64_t num_train) {
  if (batch_size < 2) throw_user("a batch needs at least 2 vertices, not {} (--batch)", batch_size);
  if (batch_size > num_vertices)
    throw_user("a batch of {} vertices, but the graph has {}; give --batch {} or less", batch_size,
               num_vertices, num_vertices);
  if (num_train < 1) throw_user("the graph has no training vertices, so that no batch has a loss");
}

} // namespace orthant::sampling

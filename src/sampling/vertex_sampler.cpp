// SPDX-License-Identifier: Apache-2.0
#include "sampling/vertex_sampler.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orthant::sampling {
namespace {

using runtime::throw_user;

std::int64_t divided_up(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

/// m(a, b). A factor that no edge of the batch has is 0.
double factor(std::int64_t num_vertices, std::int64_t num_sampled, bool is_same_stratum) {
  auto const self = is_same_stratum ? 1 : 0; // i itself is in the batch and no neighbour of its own
  if (num_sampled <= self) return 0;
  return static_cast<double>(num_vertices - self) / static_cast<double>(num_sampled - self);
}

} // namespace

VertexSampler::VertexSampler(VertexSamplerOptions const& options, std::int64_t num_vertices,
                             std::int64_t num_train)
    : seed_(options.seed),
      num_groups_(options.num_groups),
      num_accumulated_(options.num_accumulated),
      stratum_sizes_{num_vertices} {
  ORTHANT_REQUIRE(num_groups_ >= 1 && num_accumulated_ >= 1, num_groups_, " groups, ", num_accumulated_,
                  " batches each");
  auto const batch_size = options.batch_size;
  if (batch_size < 2) throw_user("a batch needs at least 2 vertices, not {} (--batch)", batch_size);
  if (batch_size > num_vertices)
    throw_user("a batch of {} vertices, but the graph has {}; give --batch {} or less", batch_size,
               num_vertices, num_vertices);
  if (num_train < 1) throw_user("the graph has no training vertices, so that no batch has a loss");

  // Where Gd K is more than can be counted, any number that no graph has vertices for is refused below.
  constexpr auto most = std::numeric_limits<std::int64_t>::max() / 2;
  step_batches_ = num_accumulated_ > most / num_groups_ ? most : num_groups_ * num_accumulated_;

  auto num_wanted = divided_up(num_vertices, batch_size);
  if (options.train_fraction) {
    choose_strata(options, num_train);
    num_wanted = divided_up(num_train, batch_size - num_others_a_batch_);
  }
  if (num_wanted < num_groups_)
    throw_user("batches of {} vertices make {} an epoch, so that some of the {} data groups have no work; "
               "give fewer groups or smaller batches",
               batch_size, num_wanted, num_groups_);
  num_batches_ = divided_up(num_wanted, step_batches_) * step_batches_;
  if (num_batches_ > stratum_sizes_[0])
    throw_user(
        "{} groups times --accumulate {} make {} batches an epoch, but there are {} vertices{} to share "
        "out; give larger batches, fewer groups or accumulate less",
        num_groups_, num_accumulated_, num_batches_, stratum_sizes_[0],
        options.train_fraction ? " that train" : "");
}

void VertexSampler::choose_strata(VertexSamplerOptions const& options, std::int64_t num_train) {
  auto const fraction = *options.train_fraction;
  auto const batch_size = options.batch_size;
  auto const num_others = stratum_sizes_[0] - num_train;
  if (!(fraction > 0 && fraction < 1))
    throw_user("--batch-train-fraction is between 0 and 1, not {}", fraction);
  // At least one vertex of each kind: a fraction that rounds to all or none would be no stratification.
  auto const rounded = std::llround(fraction * static_cast<double>(batch_size));
  auto const num_trained = std::clamp<std::int64_t>(rounded, 1, batch_size - 1);
  num_others_a_batch_ = batch_size - num_trained;
  if (num_trained > num_train)
    throw_user("--batch-train-fraction {} wants {} training vertices a batch of {}, but the graph has {}; "
               "give a smaller fraction or batch",
               fraction, num_trained, batch_size, num_train);
  if (num_others_a_batch_ > num_others)
    throw_user("--batch-train-fraction {} wants {} vertices that do not train a batch of {}, but the graph "
               "has {}; give a larger fraction or a smaller batch",
               fraction, num_others_a_batch_, batch_size, num_others);
  stratum_sizes_ = {num_train, num_others};
  // Whole steps, so that the groups of a step have no vertex in common where that is possible.
  auto const num_served = num_others / num_others_a_batch_;
  num_batches_a_round_ = num_served < step_batches_ ? num_served : num_served / step_batches_ * step_batches_;
}

runtime::KeyedBijection VertexSampler::order_of(std::size_t stratum, std::int64_t epoch,
                                                std::int64_t round) const {
  auto const layer = static_cast<std::uint32_t>(2 * round + static_cast<std::int64_t>(stratum));
  auto const stream =
      runtime::RandomStream(seed_, runtime::Purpose::sampling, static_cast<std::uint64_t>(epoch), layer);
  return {static_cast<std::uint64_t>(stratum_sizes_[stratum]), stream.key()};
}

std::int64_t VertexSampler::batch_of(std::int64_t step, std::int64_t group, std::int64_t accumulated) const {
  return (step * num_accumulated_ + accumulated) * num_groups_ + group;
}

void VertexSampler::draw(std::int64_t epoch, std::int64_t batch, BatchKeys& keys) const {
  ORTHANT_REQUIRE(epoch >= 0 && 0 <= batch && batch < num_batches_, "batch ", batch, " of epoch ", epoch);
  keys.keys.clear();
  keys.stratum_sizes.clear();
  auto const append = [&](std::size_t stratum, std::int64_t round, runtime::Range places) {
    auto const order = order_of(stratum, epoch, round);
    auto const first_key = stratum == 0 ? 0 : stratum_sizes_[0];
    for (auto place = places.begin; place < places.end; ++place)
      keys.keys.push_back(first_key + static_cast<std::int64_t>(order(static_cast<std::uint64_t>(place))));
    keys.stratum_sizes.push_back(places.size());
  };

  append(0, 0, runtime::balanced_range(stratum_sizes_[0], num_batches_, batch));
  if (stratum_sizes_.size() == 2) {
    auto const begin = batch % num_batches_a_round_ * num_others_a_batch_;
    append(1, batch / num_batches_a_round_, {begin, begin + num_others_a_batch_});
  }

  keys.factors.clear();
  for (std::size_t a = 0; a < stratum_sizes_.size(); ++a)
    for (std::size_t b = 0; b < stratum_sizes_.size(); ++b)
      keys.factors.push_back(factor(stratum_sizes_[b], keys.stratum_sizes[b], a == b));
}

} // namespace orthant::sampling

// SPDX-License-Identifier: Apache-2.0
#include "sampling/vertex_sampler.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orthant::sampling {
namespace {

using runtime::throw_user;

} // namespace

VertexSampler::VertexSampler(VertexSamplerOptions const& options, std::int64_t num_vertices,
                             std::int64_t num_train)
    : Sampler(options.num_groups, options.num_accumulated),
      seed_(options.seed),
      stratum_sizes_{num_vertices} {
  auto const batch_size = options.batch_size;
  require_batch_size(batch_size, num_vertices, num_train);

  auto num_wanted = divided_up(num_vertices, batch_size);
  if (options.train_fraction) {
    choose_strata(options, num_train);
    num_wanted = divided_up(num_train, batch_size - num_others_a_batch_);
  }
  num_batches_ = count_batches(num_wanted, batch_size, stratum_sizes_[0],
                               options.train_fraction ? "vertices that train" : "vertices");
}

void VertexSampler::choose_strata(VertexSamplerOptions const& options, std::int64_t num_train) {
  auto const fraction = *options.train_fraction;
  auto const batch_size = options.batch_size;
  auto const num_others = stratum_sizes_[0] - num_train;
  if (!(fraction > 0 && fraction < 1))
    throw_user("--batch-train-fraction is between 0 and 1, not {}", fraction);
  // At least one vertex of each kind: without one kind, there would be no stratification.
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
  // Rounded to whole steps, so that the groups of a step have no vertex in common if possible.
  auto const num_served = num_others / num_others_a_batch_;
  num_batches_a_round_ =
      num_served < step_batches() ? num_served : num_served / step_batches() * step_batches();
}

runtime::KeyedBijection VertexSampler::order_of(std::size_t stratum, std::int64_t epoch,
                                                std::int64_t round) const {
  auto const layer = static_cast<std::uint32_t>(2 * round + static_cast<std::int64_t>(stratum));
  auto const stream =
      runtime::RandomStream(seed_, runtime::Purpose::sampling, static_cast<std::uint64_t>(epoch), layer);
  return {static_cast<std::uint64_t>(stratum_sizes_[stratum]), stream.key()};
}

void VertexSampler::describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const {
  auto const add = [&](std::size_t stratum, std::int64_t round, runtime::Range places) {
    auto const first_key = stratum == 0 ? 0 : stratum_sizes_[0];
    batch_keys.parts.push_back(
        {{first_key, first_key + stratum_sizes_[stratum]}, places, order_of(stratum, epoch, round)});
    batch_keys.stratum_sizes.push_back(places.size());
  };
  add(0, 0, runtime::balanced_range(stratum_sizes_[0], num_batches_, batch));
  if (stratum_sizes_.size() == 2) {
    auto const begin = batch % num_batches_a_round_ * num_others_a_batch_;
    add(1, batch / num_batches_a_round_, {begin, begin + num_others_a_batch_});
  }
  for (std::size_t a = 0; a < stratum_sizes_.size(); ++a)
    for (std::size_t b = 0; b < stratum_sizes_.size(); ++b)
      batch_keys.factors.push_back(edge_factor(stratum_sizes_[b], batch_keys.stratum_sizes[b], a == b));
}

ClusterSampler::ClusterSampler(ClusterSamplerOptions const& options, std::vector<std::int64_t> cluster_sizes,
                               std::int64_t num_train)
    : Sampler(options.num_groups, options.num_accumulated),
      seed_(options.seed),
      edges_(options.edges),
      cluster_sizes_(std::move(cluster_sizes)) {
  std::int64_t num_vertices = 0;
  for (auto const size : cluster_sizes_) {
    if (size > 0) cluster_keys_.push_back({num_vertices, num_vertices + size});
    num_vertices += size;
  }
  require_batch_size(options.batch_size, num_vertices, num_train);
  auto const num_clusters = static_cast<std::int64_t>(cluster_keys_.size());
  auto const num_wanted = divided_up(num_vertices, options.batch_size);
  if (num_wanted > num_clusters)
    throw_user(
        "batches of {} vertices make {} an epoch, but the store has {} clusters; give larger batches, or "
        "partition the graph with --clusters {} or more",
        options.batch_size, num_wanted, num_clusters, 2 * num_wanted);
  num_batches_ = count_batches(num_wanted, options.batch_size, num_clusters, "clusters");
  if (edges_ != BatchEdges::rescale || num_clusters == 1) return;
  if (num_clusters / num_batches_ < 2)
    throw_user("some batches are one cluster, whose edges to others cannot be rescaled; give larger batches, "
               "--batch-edges renormalize, or partition the graph with --clusters {} or more",
               2 * num_batches_);
  if (divided_up(num_clusters, num_batches_) > most_rescaled_clusters)
    throw_user(
        "batches have {} clusters, but --batch-edges rescale takes at most {}; give smaller batches or "
        "--batch-edges renormalize",
        divided_up(num_clusters, num_batches_), most_rescaled_clusters);
}

void ClusterSampler::describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const {
  auto const num_clusters = static_cast<std::int64_t>(cluster_keys_.size());
  auto const stream =
      runtime::RandomStream(seed_, runtime::Purpose::sampling, static_cast<std::uint64_t>(epoch), 0);
  runtime::KeyedBijection const order(static_cast<std::uint64_t>(num_clusters), stream.key());
  auto const places = runtime::balanced_range(num_clusters, num_batches_, batch);
  for (auto place = places.begin; place < places.end; ++place) {
    auto const cluster = cluster_keys_[order(static_cast<std::uint64_t>(place))];
    batch_keys.parts.push_back({cluster, {0, cluster.size()}, std::nullopt});
    batch_keys.stratum_sizes.push_back(cluster.size());
  }
  if (edges_ != BatchEdges::rescale) {
    batch_keys.stratum_sizes.assign(1, batch_keys.size());
    batch_keys.factors.assign(1, 1.0);
    return;
  }
  auto const num_groups = batch_keys.num_strata();
  batch_keys.factors.assign(num_groups * num_groups,
                            edge_factor(num_clusters, static_cast<std::int64_t>(num_groups), true));
  for (std::size_t group = 0; group < num_groups; ++group)
    batch_keys.factors[group * (num_groups + 1)] = 1;
}

} // namespace orthant::sampling

// SPDX-License-Identifier: Apache-2.0
#include "sampling/cluster_sampler.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/bijection.hpp"
#include "runtime/numbers/random.hpp"

#include <utility>

namespace orthant::sampling {

using runtime::throw_user;

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
  if (edges_ == BatchEdges::renormalize || num_clusters == 1) return;
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

void ClusterSampler::draw(std::int64_t epoch, std::int64_t batch, BatchKeys& keys) const {
  ORTHANT_REQUIRE(epoch >= 0 && 0 <= batch && batch < num_batches_, "batch ", batch, " of epoch ", epoch);
  auto const num_clusters = static_cast<std::int64_t>(cluster_keys_.size());
  auto const stream =
      runtime::RandomStream(seed_, runtime::Purpose::sampling, static_cast<std::uint64_t>(epoch), 0);
  runtime::KeyedBijection const order(static_cast<std::uint64_t>(num_clusters), stream.key());
  auto const places = runtime::balanced_range(num_clusters, num_batches_, batch);
  keys.keys.clear();
  keys.stratum_sizes.clear();
  keys.loss_weights.clear();
  for (auto place = places.begin; place < places.end; ++place) {
    auto const cluster = cluster_keys_[order(static_cast<std::uint64_t>(place))];
    for (auto key = cluster.begin; key < cluster.end; ++key)
      keys.keys.push_back(key);
    keys.stratum_sizes.push_back(cluster.size());
  }
  if (edges_ == BatchEdges::renormalize) {
    keys.stratum_sizes.assign(1, keys.size());
    keys.factors.assign(1, 1.0);
    return;
  }
  auto const num_groups = keys.num_strata();
  keys.factors.assign(num_groups * num_groups,
                      edge_factor(num_clusters, static_cast<std::int64_t>(num_groups), true));
  for (std::size_t group = 0; group < num_groups; ++group)
    keys.factors[group * (num_groups + 1)] = 1;
}

} // namespace orthant::sampling

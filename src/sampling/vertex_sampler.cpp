// SPDX-License-Identifier: Apache-2.0
#include "sampling/vertex_sampler.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
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

namespace {

constexpr std::size_t num_classes = 64;
constexpr std::int64_t least_drawn = 2; // with one vertex, edges within its stratum cannot be rescaled

std::size_t class_of(std::int64_t degree) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(degree)));
}
std::int64_t class_begin(std::size_t c) {
  return c == 0 ? 0 : std::int64_t{1} << (c - 1);
}

/// b_s: B distributed by weight, where no stratum gives more vertices than it has.
std::vector<std::int64_t> share_out(std::int64_t batch_size, std::vector<std::int64_t> const& sizes,
                                    std::vector<std::int64_t> const& weights) {
  auto drawn = std::vector<std::int64_t>(sizes.size(), -1);
  auto rest = static_cast<double>(batch_size);
  auto weight = std::accumulate(weights.begin(), weights.end(), 0.0);
  auto const share = [&](std::size_t s) { return rest * (static_cast<double>(weights[s]) / weight); };
  for (bool is_settled = false; !is_settled;) {
    is_settled = true;
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      if (drawn[s] >= 0 || share(s) < static_cast<double>(sizes[s])) continue;
      drawn[s] = sizes[s];
      rest -= static_cast<double>(sizes[s]);
      weight -= static_cast<double>(weights[s]);
      is_settled = false;
    }
  }
  for (std::size_t s = 0; s < sizes.size(); ++s)
    if (drawn[s] < 0)
      drawn[s] = std::clamp(static_cast<std::int64_t>(share(s)), std::min(least_drawn, sizes[s]), sizes[s]);
  return drawn;
}

} // namespace

DegreeClasses count_degrees(runtime::Communicator const& comm, graph::GraphStore const& store) {
  auto sums = runtime::together(comm, [&] {
    std::vector<std::int64_t> mine(2 * num_classes);
    auto const share = runtime::balanced_range(store.facts().num_vertices, comm.size(), comm.rank());
    for (auto const degree : store.read_degrees(graph::Order::p1, share)) {
      ++mine[class_of(degree)];
      mine[num_classes + class_of(degree)] += degree + 1;
    }
    return mine;
  });
  runtime::all_reduce(runtime::host, comm, std::span(sums));
  auto const middle = sums.begin() + static_cast<std::ptrdiff_t>(num_classes);
  return {{sums.begin(), middle}, {middle, sums.end()}};
}

DegreeSampler::DegreeSampler(DegreeSamplerOptions const& options, DegreeClasses const& classes,
                             std::int64_t num_train)
    : Sampler(options.num_groups, options.num_accumulated),
      seed_(options.seed) {
  auto const num_vertices = std::accumulate(classes.counts.begin(), classes.counts.end(), std::int64_t{0});
  auto const total = std::accumulate(classes.weights.begin(), classes.weights.end(), 0.0);
  require_batch_size(options.batch_size, num_vertices, num_train);
  num_batches_ = count_batches(divided_up(num_vertices, options.batch_size), options.batch_size, num_vertices,
                               "vertices");
  // Adds classes, from the smallest degree on, to a stratum until a batch has some vertices of it. If the last classes do not suffice, they
  // join the stratum before.
  std::vector<std::int64_t> weights;
  bool is_full = true;
  for (std::size_t c = 0; c < classes.counts.size(); ++c) {
    if (classes.counts[c] == 0) continue;
    if (is_full) {
      bounds_.push_back(bounds_.empty() ? 0 : class_begin(c));
      sizes_.push_back(0);
      weights.push_back(0);
    }
    sizes_.back() += classes.counts[c];
    weights.back() += classes.weights[c];
    auto const share =
        static_cast<double>(options.batch_size) * (static_cast<double>(weights.back()) / total);
    is_full = share >= static_cast<double>(least_drawn);
  }
  if (!is_full && sizes_.size() > 1) {
    sizes_[sizes_.size() - 2] += sizes_.back();
    weights[weights.size() - 2] += weights.back();
    sizes_.pop_back();
    weights.pop_back();
    bounds_.pop_back();
  }
  bounds_.push_back(std::numeric_limits<std::int64_t>::max());

  num_drawn_ = share_out(options.batch_size, sizes_, weights);
  auto const batch_size = std::accumulate(num_drawn_.begin(), num_drawn_.end(), std::int64_t{0});
  for (std::size_t a = 0; a < sizes_.size(); ++a) {
    auto const num_served = std::max<std::int64_t>(1, sizes_[a] / num_drawn_[a]);
    // Rounded to whole steps, so that the groups of a step have no vertex in common if possible.
    num_batches_a_round_.push_back(
        num_served < step_batches() ? num_served : num_served / step_batches() * step_batches());
    loss_weights_.push_back(static_cast<double>(sizes_[a]) / static_cast<double>(num_drawn_[a]) *
                            (static_cast<double>(batch_size) / static_cast<double>(num_vertices)));
    for (std::size_t b = 0; b < sizes_.size(); ++b)
      factors_.push_back(edge_factor(sizes_[b], num_drawn_[b], a == b));
  }
}

void DegreeSampler::describe_batch(std::int64_t epoch, std::int64_t batch, BatchKeys& batch_keys) const {
  std::int64_t first_key = 0;
  for (std::size_t s = 0; s < sizes_.size(); ++s) {
    auto const round = batch / num_batches_a_round_[s];
    auto const layer = static_cast<std::uint32_t>(round * static_cast<std::int64_t>(sizes_.size()) +
                                                  static_cast<std::int64_t>(s));
    auto const stream =
        runtime::RandomStream(seed_, runtime::Purpose::sampling, static_cast<std::uint64_t>(epoch), layer);
    auto const begin = batch % num_batches_a_round_[s] * num_drawn_[s];
    batch_keys.parts.push_back(
        {{first_key, first_key + sizes_[s]},
         {begin, begin + num_drawn_[s]},
         runtime::KeyedBijection(static_cast<std::uint64_t>(sizes_[s]), stream.key())});
    first_key += sizes_[s];
  }
  batch_keys.stratum_sizes = num_drawn_;
  batch_keys.factors = factors_;
  batch_keys.loss_weights = loss_weights_;
}

} // namespace orthant::sampling

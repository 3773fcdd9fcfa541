// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/make_sampler.hpp"

#include "runtime/error.hpp"
#include "sampling/degree_sampler.hpp"
#include "sampling/sampling_keys.hpp"
#include "sampling/vertex_sampler.hpp"

namespace orthant::models {
namespace {

using runtime::throw_user;

void require_fitting(graph::GraphStore const& store, SamplerSettings const& settings) {
  if (settings.kind == SamplerKind::uniform) return;
  if (settings.train_fraction)
    throw_user("--batch-train-fraction works with --sampler uniform only; leave one of them out");
  if (settings.kind == SamplerKind::clusters && store.facts().num_clusters == 0)
    throw_user(
        "{} has no clusters for --sampler clusters; partition the graph with --clusters K, such as 2 for "
        "each batch of an epoch",
        store.name());
}

} // namespace

SamplerKind parse_sampler(std::string_view word) {
  if (word == "uniform") return SamplerKind::uniform;
  if (word == "degree") return SamplerKind::degree;
  if (word == "clusters") return SamplerKind::clusters;
  throw_user("unknown sampler '{}': it is one of uniform, degree, clusters", word);
}

sampling::BatchEdges parse_batch_edges(std::string_view word) {
  if (word == "rescale") return sampling::BatchEdges::rescale;
  if (word == "renormalize") return sampling::BatchEdges::renormalize;
  throw_user("unknown weight of edges in a batch '{}': it is one of rescale, renormalize", word);
}

std::unique_ptr<sampling::Sampler const> make_sampler(pmm::ProcessGrid const& grid,
                                                      graph::GraphStore const& store,
                                                      SamplerSettings const& settings, std::uint64_t seed) {
  require_fitting(store, settings);
  auto const& facts = store.facts();
  auto const num_groups = std::int64_t{grid.size(pmm::Axis::data)};
  auto const num_train = facts.split_sizes[0];
  if (settings.kind == SamplerKind::degree)
    return std::make_unique<sampling::DegreeSampler>(
        sampling::DegreeSamplerOptions{seed, settings.batch_size, num_groups, settings.num_accumulated},
        sampling::count_degrees(grid.world(), store), num_train);
  if (settings.kind == SamplerKind::clusters)
    return std::make_unique<sampling::ClusterSampler>(
        sampling::ClusterSamplerOptions{seed, settings.batch_size, num_groups, settings.num_accumulated,
                                        settings.edges},
        sampling::count_strata(grid.world(), store, {sampling::Strata::By::cluster, {}},
                               static_cast<std::size_t>(facts.num_clusters)),
        num_train);
  return std::make_unique<sampling::VertexSampler>(
      sampling::VertexSamplerOptions{seed, settings.batch_size, num_groups, settings.num_accumulated,
                                     settings.train_fraction},
      facts.num_vertices, num_train);
}

} // namespace orthant::models

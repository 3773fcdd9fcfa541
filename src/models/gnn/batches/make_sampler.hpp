#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Ways of drawing batches, by name.

#include "graph/store/store_reader.hpp"
#include "pmm/grid/process_grid.hpp"
#include "sampling/sampler.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace orthant::models {

/// uniform: each vertex equally often. degree: with probability by degree. clusters: whole clusters of the store.
enum class SamplerKind : std::uint8_t { uniform, degree, clusters };

/// "uniform", "degree" or "clusters"; "rescale" or "renormalize". UserError on another.
[[nodiscard]] SamplerKind parse_sampler(std::string_view word);
[[nodiscard]] sampling::BatchEdges parse_batch_edges(std::string_view word);

struct SamplerSettings {
  SamplerKind kind = SamplerKind::uniform;
  sampling::BatchEdges edges = sampling::BatchEdges::rescale;
  std::int64_t batch_size = 1024;       // B, of a group
  std::int64_t num_accumulated = 1;     // K
  std::optional<double> train_fraction; // of training vertices in a batch; none: as chance has it

  /// Whether vertices are of several kinds, of which a batch has fixed numbers.
  [[nodiscard]] bool has_strata() const { return kind == SamplerKind::degree || train_fraction.has_value(); }
};

/// Throws UserError if the settings and the store do not go together. Collective over the grid's world.
[[nodiscard]] std::unique_ptr<sampling::Sampler const> make_sampler(pmm::ProcessGrid const& grid,
                                                                    graph::GraphStore const& store,
                                                                    SamplerSettings const& settings,
                                                                    std::uint64_t seed);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which rows of each F_l a training step of the schedule rows needs: those that a training vertex depends on.
// With T_l the rows that are kept of F_l, and F_L the logits or what the head reads:
//
//   T_L = labelled training vertices
//   T_l = columns that rows T_{l+1} of A^ touch, and T_{l+1} itself if layer l is residual
//
// No other row reaches the loss, so loss and gradients are those of all rows. Owners stay, cells shrink from
// layer to layer (pmm/aggregate/needed_rows.hpp). Features that are trained are parameters: of those all are
// kept, and the gradient of a row that nothing depends on is 0. Evaluation needs all rows.

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "pmm/aggregate/needed_rows.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant::models {

/// Whether a training step leaves out what no training vertex depends on.
enum class Prune : std::uint8_t { off, on, automatic };

/// "off", "on" or "auto". Throws UserError for another word.
[[nodiscard]] Prune parse_prune(std::string_view word);

/// Prune::automatic leaves rows out if that leaves at most this share of the rows of all layers' outputs
/// together, and of their non-zeros. A pruned training has a block per layer and its transpose where one
/// block may serve all, and an evaluation beside it has arrays of its own: a small gain is not worth them.
inline constexpr double most_kept = 0.75;

/// Of one layer, on all ranks together.
struct LayerCounts {
  std::int64_t num_rows = 0;     // of its output
  std::int64_t num_nonzeros = 0; // of A^ in these rows
};

struct PrunedRows {
  OwnedBlock block;                         // of the whole graph
  std::vector<pmm::KeptRows> kept;          // [layers + 1] of F_0 to F_L
  std::vector<std::int64_t> local_nonzeros; // [layers] of this rank's block
  std::vector<LayerCounts> layers;          // [layers]
  LayerCounts whole;                        // of a layer that keeps everything

  [[nodiscard]] bool is_whole(std::size_t l) const { return kept[l].num_global == whole.num_rows; }
  /// Whether layer l runs on the block of the whole graph.
  [[nodiscard]] bool has_whole_block(std::size_t l) const { return is_whole(l) && is_whole(l + 1); }
  /// The larger of the shares of rows and non-zeros that are kept.
  [[nodiscard]] double share() const;
};

/// For a network between owners (Error) on the whole graph. Reads this rank's block. Collective over the
/// grid's group.
[[nodiscard]] PrunedRows find_pruned_rows(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                          NetworkPlan const& plan);

/// The plan of that network on what this rank keeps: weights lie as they do in `plan`. All rows move between
/// owners.
[[nodiscard]] NetworkPlan pruned_plan(pmm::ProcessGrid const& grid, NetworkPlan plan, PrunedRows const& rows);

/// What layer l keeps of the block of the whole graph.
[[nodiscard]] OwnedBlock kept_block(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                    PrunedRows const& rows, std::size_t l);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rows of each F_l that a training step of the schedule `rows` needs because a training vertex depends on them. T_l: kept rows of
// F_l; F_L: the logits, or the input of the head:
//
//   T_L = labeled training vertices
//   T_l = columns with an entry of A^ in rows T_{l+1}, and T_{l+1} itself if layer l reads rows of the vertex itself: a residual, a
//         self weight or scale, H0, scores of attention; with relations, roots of its type. A dense layer has the same rows before and after.
//
// No other row affects the loss, so loss and gradients are those of all rows. Owners do not change; cells shrink from layer to
// layer (pmm/aggregate/needed_rows.hpp). Trained features are parameters: all of them are kept, and rows on which nothing depends
// have the gradient 0. Evaluation needs all rows. BatchNorm takes means over all rows, so such networks are not pruned.

#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/network_settings.hpp"
#include "pmm/aggregate/needed_rows.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant::models {

/// Whether training steps leave out rows on which no training vertex depends.
enum class Prune : std::uint8_t { off, on, automatic };

/// Accepts "off", "on" or "auto". Throws UserError for other words.
[[nodiscard]] Prune parse_prune(std::string_view word);

/// Prune::automatic prunes if at most this fraction of the rows of all layers' outputs, and of their non-zeros, is kept. A pruned
/// training has one block and its transpose per layer instead of possibly one block for all, and an evaluation has additional
/// arrays, so a small gain does not pay.
inline constexpr double most_kept = 0.75;

/// Sizes of one layer, over all ranks.
struct LayerCounts {
  std::int64_t num_rows = 0;     // of its output
  std::int64_t num_nonzeros = 0; // of A^ in these rows
};

struct PrunedRows {
  OwnedBlock block;                // of the whole graph; with relations, entries include self relations
  std::vector<pmm::KeptRows> kept; // [layers + 1] for F_0 to F_L
  std::vector<std::int64_t> local_nonzeros; // [layers] in this rank's block
  /// [layers] pairs of relations in this rank's block (pmm/relations/relation_block.hpp), and their self relations.
  struct Pairs {
    std::int64_t all = 0, selves = 0, roots = 0;
    std::int64_t sources = 0; // pairs of a relation and a column, for attention
  };
  std::vector<Pairs> local_pairs;
  std::vector<LayerCounts> layers; // [layers]; a dense layer has no non-zeros
  LayerCounts whole;               // of a layer that keeps all rows
  std::vector<bool> aggregates;    // [layers] false: dense
  std::vector<bool> keeps_rows;    // [layers] F_l and F_{l+1} have the same rows on all ranks

  [[nodiscard]] bool is_whole(std::size_t l) const { return kept[l].num_global == whole.num_rows; }
  /// Whether layer l, or any layer, uses the block of the whole graph, and whether it uses the same kept block as layer l - 1.
  [[nodiscard]] bool has_whole_block(std::size_t l) const {
    return aggregates[l] && is_whole(l) && is_whole(l + 1);
  }
  [[nodiscard]] bool needs_whole_block() const {
    auto needs = false;
    for (std::size_t l = 0; l < layers.size(); ++l)
      needs = needs || has_whole_block(l);
    return needs;
  }
  [[nodiscard]] bool shares_block(std::size_t l) const {
    return l > 0 && aggregates[l] && aggregates[l - 1] && keeps_rows[l] && keeps_rows[l - 1];
  }
  /// The larger of the kept fractions of rows and of non-zeros.
  [[nodiscard]] double share() const;
};

/// Whether rows can be left out: in the schedule `rows`, if a row of a layer's output depends only on the neighbors in A^ and on the vertex
/// itself. Powers of A^ and registered convolutions also read other rows. Not prunable yet: attention by dot products, which computes
/// queries and self terms of all rows.
[[nodiscard]] bool is_prunable(NetworkPlan const& plan);

/// Finds the rows that a network on the whole graph needs. The plan must be prunable; otherwise throws Error. Reads this
/// rank's block. Collective over the grid's group.
[[nodiscard]] PrunedRows find_pruned_rows(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                          NetworkPlan const& plan);

/// Plan of the same network on the rows that this rank keeps. Weights lie as in `plan`. All kept rows are exchanged.
[[nodiscard]] NetworkPlan pruned_plan(pmm::ProcessGrid const& grid, NetworkPlan plan, PrunedRows const& rows);

/// The part of the whole graph's block that layer l keeps.
[[nodiscard]] OwnedBlock kept_block(pmm::ProcessGrid const& grid, pmm::Roles const& roles,
                                    PrunedRows const& rows, std::size_t l);

} // namespace orthant::models

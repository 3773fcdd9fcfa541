#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the matrices of a transformer lie (AxoNN, arXiv 2502.08145; its axes R and C are x and y here). Products
// alternate, so that nothing is redistributed between them:
//
//   normal        Z[z,x] := sum_y X[z,y] W[y,x]          queries, keys and values; up; head
//   transposed    X[z,y] := sum_x Z[z,x] W[x,y]          projection; down
//
// Rows are tokens in granules of whole sequences. Columns of Z are in granules of whole heads:
//
//   queries, keys and values    per key-value head [its query heads | its key | its value]
//   up, SwiGLU                  per number [gate | up]
//
// so a contiguous part over x has all that it needs, and the order of the columns does not depend on the grid. With fewer
// key-value heads than ranks along x, several ranks share a head: each has query heads of it, and the last one its key and
// value, too (layers/shared_key_values.hpp).

#include "models/lm/plan/expert_plan.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace orthant::models {

/// One product with its weight: result := input weight.
struct LinearPlan3d {
  pmm::Placement input, weight, output;
};

struct TransformerPlan {
  TransformerSettings settings;
  std::int64_t num_sequences = 0; // of a pass, over all data groups
  std::int64_t sequence = 0;      // tokens
  pmm::Range sequences;           // of this rank, counted over all data groups
  pmm::Placement stream;          // [z,y] tokens of the data group x hidden
  pmm::Placement logits;          // [z,x] x vocabulary
  pmm::Placement table;           // [x,y] vocabulary x hidden, of the embedding and of the head
  pmm::Placement positions;       // [-,y] max_sequence x hidden, replicated
  LinearPlan3d qkv, projection, up, down;
  ExpertPlan experts;                  // in place of up and down in some layers
  LinearPlan3d shared_up, shared_down; // of all shared experts of such a layer side by side, if there are any
  int ranks_per_group = 1;             // along x, that share a key-value head

  [[nodiscard]] bool shares_heads() const { return ranks_per_group > 1; }
  /// Query heads of one key-value head on one rank.
  [[nodiscard]] std::int64_t local_heads_per_group() const { return heads_per_group() / ranks_per_group; }

  /// Query heads that share one key-value head.
  [[nodiscard]] std::int64_t heads_per_group() const { return settings.num_heads / settings.num_kv_heads; }
  /// Columns of queries, keys and values that belong to one key-value head.
  [[nodiscard]] std::int64_t group_width() const { return (heads_per_group() + 2) * settings.head_dim(); }
};

/// The grid that --grid asks for, not "auto", with the expert axis as a factor of its data axis. Throws UserError if it is no grid of that
/// many ranks, or if the expert axis does not divide data.
[[nodiscard]] pmm::GridShape parse_grid(std::string_view text, int num_ranks, int expert_axis);
/// The inverse: the grid as --grid takes it, whose data axis includes the expert axis. Messages, logs and records name a grid so.
[[nodiscard]] std::string grid_text(pmm::GridShape shape);

/// Whether x divides the key-value heads, or is a multiple of them that divides the heads.
[[nodiscard]] bool can_cut_heads(pmm::GridShape const& shape, TransformerSettings const& settings);

/// For the rank at `coordinates`. Throws UserError if the settings are not valid, or cannot be cut over the grid:
/// can_cut_heads(), a sequence is not longer than max_sequence, and each part of {data, z} needs a sequence.
[[nodiscard]] TransformerPlan plan_transformer(pmm::GridShape const& shape,
                                               pmm::Coordinates const& coordinates,
                                               TransformerSettings const& settings,
                                               std::int64_t num_sequences, std::int64_t sequence);

} // namespace orthant::models

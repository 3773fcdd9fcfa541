#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Placement of the matrices of a transformer (AxoNN, arXiv 2502.08145, whose axes R and C are x and y here). Two kinds of
// products alternate, so that no matrix is redistributed between them:
//
//   normal        Z[z,x] := sum_y X[z,y] W[y,x]          queries, keys and values; up; head
//   transposed    X[z,y] := sum_x Z[z,x] W[x,y]          projection; down
//
// Rows are tokens, split in granules of the tokens that a rank has of a sequence. Columns of Z are split in granules:
//
//   queries, keys and values    per key-value head [its query heads | its key | its value]
//   up, SwiGLU                  per pair [gate | up]
//
// The tokens of a sequence are split over context in parts of two chunks (pmm::SequencePart).
//
// A contiguous part over x therefore has all columns that it needs, and the order of the columns does not depend on the grid. If
// there are fewer key-value heads than ranks along x, several ranks share a head: each has some of its query heads, and the last
// one also its key and value (models/lm/transformer/shared_key_values.hpp).

#include "models/lm/plan/expert_plan.hpp"
#include "models/lm/plan/pipeline_plan.hpp"
#include "models/lm/plan/transformer_settings.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace orthant::models {

/// Placements of one product: output := input weight.
struct LinearPlan3d {
  pmm::Placement input, weight, output;
  runtime::Wire wire = runtime::Wire::native; // of activations, their gradients and weights in messages
};

struct TransformerPlan {
  TransformerSettings settings;
  std::int64_t num_sequences = 0; // sequences per pass, over all data groups
  std::int64_t sequence = 0;      // tokens of each sequence on this rank
  std::int64_t num_parts = 1;     // ranks along context, which share each sequence
  std::int64_t part = 0;          // of this rank
  pmm::Range sequences;           // sequences of this rank, counted over all data groups
  StagePlan stage;                // of a pipeline
  pmm::Placement stream;          // [z,y] tokens of the data group x hidden
  pmm::Placement logits;          // [z,x] tokens of the data group x vocabulary
  pmm::Placement table;           // [x,y] vocabulary x hidden; for the embedding and for the head
  pmm::Placement positions;       // [-,y] max_sequence x hidden, replicated
  LinearPlan3d qkv, projection, up, down;
  pmm::Placement query_scale; // [-,-] 1 x numbers per head; with a norm of all heads [-,x] 1 x all queries
  pmm::Placement key_scale;   // the same of keys
  ExpertPlan experts;         // replaces up and down in layers with experts
  LinearPlan3d shared_up, shared_down; // all shared experts of a layer side by side; empty if there are none
  int ranks_per_group = 1;             // ranks along x that share one key-value head

  /// Tokens of each sequence that this rank has.
  [[nodiscard]] pmm::SequencePart tokens() const { return {sequence, num_parts, part}; }
  [[nodiscard]] std::int64_t whole_sequence() const { return sequence * num_parts; }
  /// Whether the position of each row is listed, because it does not follow from the number of the row.
  [[nodiscard]] bool lists_positions() const { return settings.masks_documents || num_parts > 1; }
  /// Whether this rank has the table of the embedding. With a tied head, the first and the last stage of a pipeline have it.
  [[nodiscard]] bool has_table() const {
    return stage.has_embedding() || (settings.tied_head && stage.has_head());
  }
  /// Whether this rank adds the gradient of the embedding to that of a tied head before the sum over z.
  [[nodiscard]] bool adds_to_head_gradient() const {
    return settings.tied_head && stage.has_embedding() && stage.has_head();
  }
  /// Whether this rank has a block whose feed-forward part has experts, or has none.
  [[nodiscard]] bool has_block(bool with_experts) const {
    for (auto l = stage.layers.begin; l < stage.layers.end; ++l)
      if (settings.experts.has_layer(l) == with_experts) return true;
    return false;
  }
  [[nodiscard]] bool shares_heads() const { return ranks_per_group > 1; }
  /// How this rank's queries meet the tokens of other ranks along context.
  [[nodiscard]] bool exchanges_heads() const {
    return num_parts > 1 && settings.context_exchange == ContextExchange::heads;
  }
  [[nodiscard]] bool gathers_key_values() const { return num_parts > 1 && !exchanges_heads(); }
  /// Number of query heads of one key-value head on this rank.
  [[nodiscard]] std::int64_t local_heads_per_group() const { return heads_per_group() / ranks_per_group; }

  /// Number of query heads per key-value head.
  [[nodiscard]] std::int64_t heads_per_group() const { return settings.num_heads / settings.num_kv_heads; }
  /// Number of columns per key-value head in the matrix of queries, keys and values.
  [[nodiscard]] std::int64_t group_width() const { return (heads_per_group() + 2) * settings.head_dim(); }
};

/// Sizes of the axes that --grid does not name. They are factors of its data axis.
struct InnerAxes {
  int expert = 1;
  int context = 1;

  [[nodiscard]] std::int64_t size() const { return std::int64_t{expert} * context; }
};

/// Parses the value of --grid, which must not be "auto", for each of the `pipeline` stages. Throws UserError if `text` is not a grid of
/// `num_ranks` / `pipeline` ranks, or if the inner axes do not divide the data axis.
[[nodiscard]] pmm::GridShape parse_grid(std::string_view text, int num_ranks, InnerAxes const& inner = {},
                                        int pipeline = 1);
/// Throws UserError unless a job of `num_ranks` ranks has equally many for each of the `pipeline` stages.
void require_even_stages(int num_ranks, int pipeline);
/// Inverse of parse_grid(): the grid of a stage in the format of --grid, whose data axis includes the inner axes. Messages, logs and
/// records use this format.
[[nodiscard]] std::string grid_text(pmm::GridShape shape);

/// The grid of ZeRO stage 3 over the data axis: ranks along data move to z, along which weights, gradients and moments are sharded.
/// `ranks_per_node`: moves only as many that the ranks that share weights fill a node, or an equal part of one; 0: all of them. Without an
/// expert axis every rank keeps its x, y and sequences.
[[nodiscard]] pmm::GridShape with_data_along_z(pmm::GridShape shape, int ranks_per_node = 0);

/// True if the grid can split the heads: x divides the number of key-value heads, or is a multiple of it that divides the number
/// of query heads.
[[nodiscard]] bool can_cut_heads(pmm::GridShape const& shape, TransformerSettings const& settings);
/// True if ranks along context can exchange heads: context divides the number of key-value heads of a rank, and no ranks share one.
[[nodiscard]] bool can_exchange_heads(pmm::GridShape const& shape, TransformerSettings const& settings);

/// Plan of the rank at `coordinates` for passes over `num_sequences` sequences of `sequence` tokens. Throws UserError if the
/// settings are not valid, if can_cut_heads() is false, or can_exchange_heads() although they ask for it, if `sequence` exceeds max_sequence or the context axis cannot split it, if there are
/// fewer sequences than ranks along data, expert and z, or if the expert axis does not divide the experts. With a context axis, also if
/// the settings of the experts compare tokens of one sequence, or order the tokens of all ranks. Also throws
/// as plan_stage() does. `num_passes`: passes of a step; a stage of a pipeline keeps the activations of no more passes.
[[nodiscard]] TransformerPlan plan_transformer(pmm::GridShape const& shape,
                                               pmm::Coordinates const& coordinates,
                                               TransformerSettings const& settings,
                                               std::int64_t num_sequences, std::int64_t sequence,
                                               std::int64_t num_passes = 1);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Plan of the layers with experts: which rank has which experts, where their matrices lie, and how many rows a rank moves. The
// experts are distributed over the ranks along the expert axis. Each is the feed-forward part of a block without biases, and is
// split over x and y in the same way. For each of its two products, a rank keeps all its experts one after the other in one
// array, which is flat-sharded over z as a whole: a product needs one all_gather, its gradient one reduce_scatter.
//
//   router   [y,-]   hidden x experts, replicated
//   up       [y,x]   hidden x width of one expert, for SwiGLU twice the width
//   down     [x,y]   width x hidden

#include "models/lm/plan/transformer_settings.hpp"
#include "pmm/experts/dispatch_lists.hpp"
#include "pmm/vendor/vendor_attention.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::models {

// Placement of experts by load: which rank along the expert axis has which experts, given how often they were chosen before.
// Every rank has the same number of experts. Experts are taken in order of decreasing load, and each goes to the rank with the
// least load so far that has room (longest processing time first). Because ranks fill up, the result may be worse than the order
// by number, which is then kept. The placement changes neither the choices of tokens nor the results.
//
// Source: Graham, Bounds on multiprocessing timing anomalies (1969); for experts MoETuner (arXiv 2502.06643).

/// Place of each expert. Each rank has the same number of consecutive places, in the order of the ranks. Expert e is at place e
/// unless another order lowers the load of the fullest rank. `loads` [experts]; of experts with equal loads the lower number
/// comes first. Experts of one rank are ordered by number. `num_ranks` must divide the number of experts; otherwise throws Error.
[[nodiscard]] std::vector<std::int64_t> balanced_places(std::span<std::int64_t const> loads, int num_ranks);

/// Load of the fullest rank over the mean load of the ranks; 1 if all loads are 0. If `places` is empty, expert e is at place e.
[[nodiscard]] double imbalance_of_ranks(std::span<std::int64_t const> loads,
                                        std::span<std::int64_t const> places, int num_ranks);

struct ExpertPlan {
  ExpertSettings settings;
  FeedForward activation = FeedForward::gelu;
  pmm::DispatchAxes axes;
  pmm::AxisSet token_axes;      // axes over which tokens are split, in the order of the tokens
  std::int64_t num_tokens = 0;  // tokens of a pass over all ranks
  pmm::SequencePart tokens{1};  // tokens of each sequence on this rank
  std::int64_t first_token = 0; // global number of the first token of this rank's first sequence
  pmm::AxisSet counted_axes;    // axes over which choices are counted for the capacity: token_axes, or z
  std::int64_t num_counted = 0; // tokens of a pass over counted_axes
  pmm::Range own;               // places of this rank's experts
  pmm::Placement stream;        // [z,y] tokens of the batch x hidden
  pmm::Placement router;
  pmm::Placement up, down; // of one expert
  /// [layers with experts] Numbers of rows that this rank moves in a pass, if they are known. If empty, sizes_of() uses
  /// assumed_imbalance().
  std::vector<pmm::DispatchSizes> loads;
  /// [layers with experts][experts] Place of each expert. Each rank along the expert axis has the same number of consecutive
  /// places. If empty, expert e is at place e.
  std::vector<std::vector<std::int64_t>> places;

  /// Number of layers with experts before `layer`.
  [[nodiscard]] std::size_t place_of(std::int64_t layer) const {
    return static_cast<std::size_t>(settings.num_layers_before(layer));
  }
  [[nodiscard]] std::int64_t place_of_expert(std::int64_t layer, std::int64_t expert) const {
    return places.empty() ? expert : places[place_of(layer)][static_cast<std::size_t>(expert)];
  }
};

/// Places of the experts of the rank at `coordinates`. Throws UserError if the expert axis does not divide the number of experts.
[[nodiscard]] pmm::Range own_experts(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                     ExpertSettings const& settings);

/// Array that holds the matrices of all experts of a rank for one product.
struct ExpertArray {
  ExpertArray(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, ExpertPlan const& plan,
              pmm::Placement const& of_expert);

  /// Elements of the block of the expert at `place` that this rank stores; empty if the expert belongs to another rank.
  [[nodiscard]] pmm::Range own_piece(std::int64_t place) const;
  /// Start of the elements own_piece(place) in this rank's piece of the array.
  [[nodiscard]] std::int64_t begin_of(std::int64_t place) const;

  pmm::Range own;                // places of experts
  std::int64_t num_rows = 0;     // rows of an expert's block
  std::int64_t num_columns = 0;  // columns of an expert's block
  std::int64_t num_gathered = 0; // elements of the array, with padding
  pmm::Range piece;              // elements of this rank along z; may extend into the padding

  [[nodiscard]] std::int64_t block_size() const { return num_rows * num_columns; }
};

/// Placement of the matrix of the expert at `place`, of which this rank stores a part or nothing. `of_expert`: placement of a
/// whole expert.
[[nodiscard]] pmm::Placement placement_of(ExpertArray const& array, pmm::Placement of_expert,
                                          std::int64_t place);

/// Largest possible load of one of `num_owners` ranks over the mean load: the load if all tokens choose its experts.
[[nodiscard]] double largest_imbalance(ExpertSettings const& settings, int num_owners);

/// Load of the fullest of `num_owners` ranks over the mean load, as plans assume it: planned_imbalance (default 1), but at most
/// largest_imbalance(), and in training at most the capacity. Evaluations have no capacity.
[[nodiscard]] double assumed_imbalance(ExpertSettings const& settings, int num_owners, bool is_training);

/// Numbers of rows that this rank moves in `layer`: the entry of plan.loads if loads are known, otherwise the numbers of the
/// fullest rank at assumed_imbalance(). An imbalance of 1 means that all experts are chosen equally often.
[[nodiscard]] pmm::DispatchSizes sizes_of(pmm::StepPlan const& step, ExpertPlan const& plan,
                                          std::int64_t layer, bool is_training);

/// Plan for predictions of memory. If no planned_imbalance is given, sets it to the middle of 1 and largest_imbalance(). Without
/// a capacity memory is linear in the imbalance, so for any loads of the fullest step the prediction is off by at most half of
/// the possible range.
[[nodiscard]] ExpertPlan plan_for_memory(ExpertPlan plan, pmm::GridShape const& shape);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where the matrices of a layer of experts lie. The experts are dealt to the ranks along the expert axis; each is the
// feed-forward part of a block without biases, on x and y as that is. A rank's experts lie one after the other in one array
// for each product, flat-sharded over z as a whole: one gather, one reduce_scatter.
//
//   router   [y,-]   hidden x experts, replicated
//   up       [y,x]   hidden x width of the pairs or numbers, of one expert
//   down     [x,y]   width x hidden

#include "models/lm/plan/transformer_settings.hpp"
#include "pmm/experts/dispatch_lists.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace orthant::models {

// Which rank along the expert axis has which experts, by how often they were chosen before. Every rank has equally many. The experts are
// taken from the most chosen to the least, each by the rank with the least load so far that has room (longest processing time first).
// As ranks fill up, that may end worse than in order; experts then stay in order. Nothing but the place of an expert changes: what tokens
// choose, and what is computed, does not.
//
// Source: Graham, Bounds on multiprocessing timing anomalies (1969); for experts MoETuner (arXiv 2502.06643).

/// The place of each expert, if the ranks take places one after the other: in order, unless another order lowers the load of the
/// fullest rank. `loads` [experts]; of equal ones the expert with the lower number comes first. Experts of a rank lie in the order of their
/// numbers. Throws Error if the ranks do not divide the experts.
[[nodiscard]] std::vector<std::int64_t> balanced_places(std::span<std::int64_t const> loads, int num_ranks);

/// The load of the fullest rank over the mean; `places` may be empty: experts are dealt in order. 1 if no expert has any load.
[[nodiscard]] double imbalance_of_ranks(std::span<std::int64_t const> loads,
                                        std::span<std::int64_t const> places, int num_ranks);

struct ExpertPlan {
  ExpertSettings settings;
  FeedForward activation = FeedForward::gelu;
  pmm::DispatchAxes axes;
  pmm::AxisSet token_axes;      // along which tokens differ, in their order
  std::int64_t num_tokens = 0;  // of a pass, over all ranks
  std::int64_t first_token = 0; // of this rank
  pmm::AxisSet counted_axes;    // of them, those along which a capacity is counted: all, or z
  std::int64_t num_counted = 0; // tokens of a pass over these
  pmm::Range own;               // places of this rank's experts
  pmm::Placement stream;        // [z,y] tokens of the batch x hidden
  pmm::Placement router;
  pmm::Placement up, down; // of one expert
  /// What the layers with experts move in a pass, if it is known; else lists assume assumed_imbalance().
  std::vector<pmm::DispatchSizes> loads;
  /// By layers with experts: the place of each expert when the ranks along the expert axis take them one after the other, equally many each.
  /// Empty: that of its number.
  std::vector<std::vector<std::int64_t>> places;

  /// Layers with experts before this layer.
  [[nodiscard]] std::size_t place_of(std::int64_t layer) const {
    return static_cast<std::size_t>(layer / settings.every);
  }
  [[nodiscard]] std::int64_t place_of_expert(std::int64_t layer, std::int64_t expert) const {
    return places.empty() ? expert : places[place_of(layer)][static_cast<std::size_t>(expert)];
  }
};

/// The places of the experts of the rank at `coordinates`. Throws UserError if the expert axis does not divide them.
[[nodiscard]] pmm::Range own_experts(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                     ExpertSettings const& settings);

/// The array of all experts of a rank for one product.
struct ExpertArray {
  ExpertArray(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, ExpertPlan const& plan,
              pmm::Placement const& of_expert);

  /// Of the block of the expert at that place, what this rank stores: nothing of those of others.
  [[nodiscard]] pmm::Range own_piece(std::int64_t place) const;
  /// Where that begins in this rank's piece of the array.
  [[nodiscard]] std::int64_t begin_of(std::int64_t place) const;

  pmm::Range own;                // places of experts
  std::int64_t num_rows = 0;     // of an expert's block
  std::int64_t num_columns = 0;  //
  std::int64_t num_gathered = 0; // numbers of the array, with padding
  pmm::Range piece;              // of this rank along z; it may reach into the padding

  [[nodiscard]] std::int64_t block_size() const { return num_rows * num_columns; }
};

/// The placement of the matrix of the expert at that place, of which this rank stores a part or nothing.
[[nodiscard]] pmm::Placement placement_of(ExpertArray const& array, pmm::Placement of_expert,
                                          std::int64_t place);

/// How full one rank of `num_owners` is over the mean if all tokens choose its experts.
[[nodiscard]] double largest_imbalance(ExpertSettings const& settings, int num_owners);

/// How full the fullest rank of `num_owners` is assumed to be, over the mean: planned_imbalance or else 1, as far as tokens can choose so,
/// and training passes by the capacity, which evaluations do not have.
[[nodiscard]] double assumed_imbalance(ExpertSettings const& settings, int num_owners, bool is_training);

/// What this rank moves in a layer: as the plan knows it; or if it is the fullest rank at assumed_imbalance(), with 1 if experts are
/// chosen equally often.
[[nodiscard]] pmm::DispatchSizes sizes_of(pmm::StepPlan const& step, ExpertPlan const& plan,
                                          std::int64_t layer, bool is_training);

/// The plan that memory is predicted by if neither loads nor an imbalance are known: for the middle of 1 and largest_imbalance(). Memory is
/// linear in the imbalance without a capacity, so whatever the loads of the fullest step turn out to be, that errs by half of what is
/// possible at most.
[[nodiscard]] ExpertPlan plan_for_memory(ExpertPlan plan, pmm::GridShape const& shape);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Pruned training (SAMO): from a step on, only a part of the entries of weights is trained, and all others are 0. Products stay dense, and
// so do the weights; gradients after their products, sums over batches and moments of the optimizer have the kept entries alone, in the order
// of their places. With N entries in all weights that are pruned, f = 1 - S of them kept, and 32-bit numbers:
//
//   threshold     t := the |w| of rank floor(S N) of all N, counted from 0 in ascending order
//   kept          { i : |w_i| >= t and w_i != 0 }              entries that equal the threshold are all kept
//   bytes         4 N weights + 4 N f (gradients + places + two moments) + dense gradients of one layer
//
// The bits of |w| as an integer have the order of |w|, so histograms of their digits, summed over all ranks, find the threshold exactly:
// what is kept does not depend on the grid. Ranks with copies of a piece keep the same entries of it, so their sums need no places.
//
// What is pruned: matrices of the blocks of a transformer (Parameter::is_prunable). Tables, heads, routers, biases and norms are not.
//
// Source: Singh & Bhatele (arXiv 2302.05045), section III.

#include "models/parameters/parameter.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

struct PruneSettings {
  double share = 0;           // S, of the weights that become 0; 0: nothing is pruned
  std::int64_t num_steps = 0; // before the weights are pruned

  [[nodiscard]] bool is_on() const { return share > 0; }
  [[nodiscard]] bool is_pruned_after(std::int64_t steps) const { return is_on() && steps > num_steps; }
  /// Number of entries that are kept of `num_entries`, at least one.
  [[nodiscard]] std::int64_t num_kept(std::int64_t num_entries) const;
};

/// Places of the kept entries in this rank's piece of a weight, ascending.
using KeptPlaces = runtime::Vector<std::int32_t>;

template<class T>
class PrunedWeights {
 public:
  /// Of the prunable ones among the parameters, whose memory must not move. `grid` must outlive this object. Not collective. Throws Error if
  /// a piece has 2^31 entries or more.
  PrunedWeights(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& parameters,
                PruneSettings const& settings);

  [[nodiscard]] PruneSettings const& settings() const { return settings_; }
  /// Whether parameter p is pruned, now or later.
  [[nodiscard]] bool has(std::size_t p) const { return parameters_[p].is_prunable; }
  /// Whether the kept entries are known.
  [[nodiscard]] bool are_chosen() const { return are_chosen_; }
  /// The entries of parameter p that are trained: nullopt for all of them. Before they are known, none if no step comes before.
  [[nodiscard]] std::optional<KeptPlaces> kept(std::size_t p) const;

  /// Chooses the kept entries by magnitude, and sets all others to 0. Collective over the grid's world. Fences.
  void choose(runtime::DefaultExec const& exec);
  /// Keeps those entries of parameter p for which is_kept is true; called for each parameter that has(p), after others are 0.
  void keep(std::size_t p, std::vector<bool> const& is_kept);

 private:
  [[nodiscard]] std::uint64_t find_threshold(runtime::DefaultExec const& exec) const;

  pmm::ProcessGrid const& grid_;
  std::vector<Parameter<T>> parameters_;
  PruneSettings settings_;
  std::vector<KeptPlaces> kept_; // by parameter
  bool are_chosen_ = false;
};

extern template class PrunedWeights<float>;
extern template class PrunedWeights<double>;

} // namespace orthant::models

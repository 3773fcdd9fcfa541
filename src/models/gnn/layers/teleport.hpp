#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// H0, which every aggregating layer adds to its result (equations: models/layers/propagation_terms.hpp). In the schedule `pmm3d` results
// have several placements, which are the sites of TeleportPlan. H0 is sent to each site once per pass, and the gradients, summed per site,
// are sent back once. In the schedule `rows` the only site is the placement of H0 itself, unless layers keep fewer rows than H0: then there
// is a site for each number of rows, with a selection of the rows of H0.

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/aggregation/self_term.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/propagation_terms.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

using runtime::GrowingVector;

/// Memory per site: H0 at the site, if the site differs from the placement of H0, and its gradient. Also memory for the input of the first
/// layer if dropout applies to it.
template<class T>
struct TeleportMemory {
  std::vector<GrowingVector<T>> brought;   // [sites]
  std::vector<GrowingVector<T>> gradients; // [sites]
  GrowingVector<T> dropped{"orthant::models::dropped_start"};
};
/// Lists the memory, and the arrays of the moves. `drops_out`: whether training uses dropout.
void plan_teleport_arrays(pmm::StepPlan& step, NetworkPlan const& plan, bool drops_out);
void plan_teleport_path_arrays(pmm::StepPlan& step, NetworkPlan const& plan,
                               NetworkEpochTraits const& traits);

/// T: the scalar type of training; plan_network() rejects 16-bit activations.
template<class T>
class Teleport {
 public:
  /// The teleport on one graph or batch, in borrowed memory, which must outlive it. `paths`: [sites] moves between H0 and each
  /// site. `keys`: keys of H0 for the dropout of the first layer's input, or nullopt. `returned`: borrowed memory with the length
  /// of H0, used only in finish_backward(). `grid` must outlive this object. Not collective.
  Teleport(pmm::ProcessGrid const& grid, NetworkPlan const& plan, double alpha,
           std::vector<ResidualPath<T>> paths, std::optional<BlockKeys> keys, TeleportMemory<T>& memory,
           runtime::Vector<T> returned);

  /// Sends H0 to all sites, and prepares input(). Collective over the group. Enqueues on exec.
  void start(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& start, Dropout const& dropout);
  /// Input of the first layer: H0, or dropout(H0) if the plan says so.
  [[nodiscard]] pmm::DistMatrix<T> const& input() const { return input_; }
  /// sum := (1 - alpha) sum + alpha H0 at the site.
  void add(runtime::DefaultExec const& exec, std::size_t site, pmm::DistMatrix<T> const& sum) const;
  /// gradient := (1 - alpha) gradient. Adds alpha times the old gradient to the gradient of H0 at the site.
  void split(runtime::DefaultExec const& exec, std::size_t site, pmm::DistMatrix<T> const& gradient);
  /// gradient := the gradient of H0, in place, from the gradient of input() and the gradients of all sites. Collective over the group.
  void finish_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                       Dropout const& dropout) const;

 private:
  [[nodiscard]] bool drops(Dropout const& dropout) const { return drops_start_ && dropout.probability > 0; }

  double alpha_;
  bool drops_start_;
  std::vector<ResidualPath<T>> paths_;
  BlockKeys keys_;
  pmm::DistMatrix<T> input_, dropped_;
  std::vector<pmm::DistMatrix<T>> brought_;   // [sites]
  std::vector<pmm::DistMatrix<T>> gradients_; // [sites]
  std::vector<bool> has_gradient_;            // [sites] whether this backward pass has reached the site
  pmm::DistMatrix<T> returned_;
};

/// Adds the teleport at a site to the aggregation `of_neighbours`. Runs are collective over the grid's group.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_teleport_aggregation(std::unique_ptr<Aggregation<T>> of_neighbours,
                          std::shared_ptr<Teleport<T>> teleport, std::size_t site);

extern template class Teleport<float>;
extern template class Teleport<double>;

} // namespace orthant::models

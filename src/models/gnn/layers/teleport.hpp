#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// H0, which every layer that aggregates adds to its result (layers/propagation_terms.hpp has the equations). In the schedule
// pmm3d results lie at several places, the sites of TeleportPlan: H0 goes to each of them once in a pass, and what they leave of
// its gradient, summed by site, goes back once. In the schedule rows there is one site, where H0 lies.

#include "models/gnn/layers/aggregation.hpp"
#include "models/gnn/layers/self_term.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/propagation_terms.hpp"
#include "runtime/arrays/allocation.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace orthant::models {

using runtime::GrowingVector;

/// Memory of each site: H0 there, if it lies elsewhere, and its gradient; and of what the first layer reads, if that is dropped
/// out.
template<class T>
struct TeleportMemory {
  std::vector<GrowingVector<T>> brought;   // [sites]
  std::vector<GrowingVector<T>> gradients; // [sites]
  GrowingVector<T> dropped{"orthant::models::dropped_start"};
};
/// Lists it, with the arrays of the ways. `drops_out`: whether anything is dropped out.
void plan_teleport_arrays(pmm::StepPlan& step, NetworkPlan const& plan, bool drops_out);
void plan_teleport_path_arrays(pmm::StepPlan& step, NetworkPlan const& plan,
                               NetworkEpochTraits const& traits);

/// T: the scalar of training; 16-bit activations are refused by plan_network().
template<class T>
class Teleport {
 public:
  /// On one graph or batch, in lent memory. `paths`: [sites] from H0 to each, and back; `keys`: of H0, if anything is dropped
  /// out of what the first layer reads, else none. `returned`: lent, as long as H0, in the backward pass of the first layer
  /// after its products. `grid` must outlive it. Not collective.
  Teleport(pmm::ProcessGrid const& grid, NetworkPlan const& plan, double alpha,
           std::vector<ResidualPath<T>> paths, std::optional<BlockKeys> keys, TeleportMemory<T>& memory,
           runtime::Vector<T> returned);

  /// Brings H0 to all sites, and prepares input(). Collective over the group. Enqueues on exec.
  void start(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& start, Dropout const& dropout);
  /// What the first layer reads: H0, or dropout(H0) if the plan says so.
  [[nodiscard]] pmm::DistMatrix<T> const& input() const { return input_; }
  /// sum := (1 - alpha) sum + alpha H0, at that site.
  void add(runtime::DefaultExec const& exec, std::size_t site, pmm::DistMatrix<T> const& sum) const;
  /// gradient := (1 - alpha) gradient; the rest is H0's.
  void split(runtime::DefaultExec const& exec, std::size_t site, pmm::DistMatrix<T> const& gradient);
  /// gradient := that of H0, from that of input(), in place, and those of all sites. Collective over the group.
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
  std::vector<bool> has_gradient_;            // [sites] in this backward pass
  pmm::DistMatrix<T> returned_;
};

/// `of_neighbours` with the teleport at that site. Collective as `of_neighbours`.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_teleport_aggregation(std::unique_ptr<Aggregation<T>> of_neighbours,
                          std::shared_ptr<Teleport<T>> teleport, std::size_t site);

extern template class Teleport<float>;
extern template class Teleport<double>;

} // namespace orthant::models

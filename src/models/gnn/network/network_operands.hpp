#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Everything of a graph, or of a batch of its vertices, that a GCN runs on. A plain struct: whoever samples a
// batch fills it in.

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/aggregation/residual.hpp"
#include "models/gnn/network/network_input.hpp"
#include "models/gnn/plan/network_settings.hpp"

#include <optional>
#include <vector>

namespace orthant::models {

/// Copies share the numbers.
template<class T>
struct NetworkOperands {
  NetworkPlan plan; // of this graph's or batch's extents; weights lie as the parameters do
  std::vector<Adjacency<T>>
      adjacency; // [layers] with what the adjoint needs: A^ of plan.layers[l], if it aggregates
  std::vector<runtime::Vector<std::int64_t>>
      column_ids; // [layers] original ids by which ties of maxima are broken, or none: between owners edges have them
  InputFeatures<T> features;                   // of plan.features()
  std::vector<ResidualPath<T>> residuals;      // [layers], or none where no layer is residual
  std::vector<ResidualPath<T>> self_paths;     // [layers], or none where no layer has a self weight
  std::vector<ResidualPath<T>> teleport_paths; // [sites of plan.teleport]
  // [layers] of the rows of plan.layers[l].output; empty where nothing is dropped
  std::vector<BlockKeys> output_keys;
  std::vector<pmm::DroppedBlock<T>>
      dropped; // what fills the values of `adjacency` in each pass; none: they are fixed

  [[nodiscard]] runtime::Vector<std::int64_t> column_ids_of(std::size_t l) const {
    return column_ids.empty() ? runtime::Vector<std::int64_t>{} : column_ids[l];
  }
  [[nodiscard]] ResidualPath<T> residual(std::size_t l) const {
    return residuals.empty() ? ResidualPath<T>{} : residuals[l];
  }
  [[nodiscard]] ResidualPath<T> self_path(std::size_t l) const {
    return self_paths.empty() ? ResidualPath<T>{} : self_paths[l];
  }
};

/// Whether the rows of layer l's output need the ids that dropout is keyed by.
[[nodiscard]] bool has_output_keys(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l);

/// Those of the whole graph. Reads this rank's blocks: collective over the grid's group.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                         NetworkPlan const& plan, NetworkSettings const& settings);
/// The same with features that have been read, and the block of owners, if it has been.
template<class T>
[[nodiscard]] NetworkOperands<T>
make_full_graph_operands(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                         NetworkPlan const& plan, NetworkSettings const& settings, InputFeatures<T> features,
                         std::optional<OwnedAdjacency<T>> owned);

/// Whether layers ask for the original ids of the columns of their own blocks.
[[nodiscard]] inline bool needs_column_ids(NetworkLayerPlan const& layer) {
  return layer.takes_maximum && !layer.owners;
}

/// Lists the blocks of A^ of all layers.
void plan_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                    NetworkEpochTraits const& traits);

/// Lists what their products keep beside them.
void plan_adjacency_products(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                             NetworkEpochTraits const& traits);

/// Lists the arrays of make_full_graph_operands(), with dense features that are held so long.
void plan_operands(pmm::StepPlan& step, graph::StoreFacts const& facts, NetworkPlan const& plan,
                   NetworkSettings const& settings, NetworkEpochTraits const& traits, pmm::Lifetime features);

} // namespace orthant::models

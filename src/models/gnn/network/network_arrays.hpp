#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The memory of a network on one graph or batch, listed from its plan.

#include "models/gnn/layers/network_layer.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/gnn/plan/epoch_traits.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// What its layers use in turn.
[[nodiscard]] NetworkScratchPlan scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                            NetworkSettings const& settings);

/// [layers] numbers in the memory of each layer for outputs of hidden layers, if they share it (gnn/plan/network_settings); else
/// empty.
[[nodiscard]] std::vector<std::int64_t>
shared_output_lengths(pmm::StepPlan const& step, NetworkPlan const& plan, NetworkSettings const& settings);

/// Features of which A^ F0 alone is kept (keeps_first_aggregate(), without dropout) need no memory once it is there: they lie in that
/// of H of the first later layer that is large enough, which is written after A^ F0. None: there is no such layer, or layer 0
/// reads the features themselves, too.
[[nodiscard]] std::optional<std::size_t>
layer_with_features(pmm::StepPlan const& step, NetworkPlan const& plan, NetworkSettings const& settings);

/// Whether what layer l gets from above lies in `middle` of the scratch, not in `gradient`. In a layer with a perceptron, X and Y
/// the two: dC in X, dQ in Y, dH in X, dF in Y. So every such layer swaps them for the one below it.
[[nodiscard]] bool gets_gradient_in_middle(NetworkPlan const& plan, std::size_t l);

/// Where a layer's output and gradients lie. `scratch` and `memory` have their full size already.
template<class T>
[[nodiscard]] NetworkLayerPlaces<T> places_of(NetworkPlan const& plan, bool shares_outputs, std::size_t l,
                                              NetworkScratch<T>& scratch,
                                              std::vector<NetworkLayerMemory<T>>& memory);

/// As many numbers in that memory as features have, or none.
template<class T>
[[nodiscard]] runtime::Vector<T> room_for_features(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                                   NetworkSettings const& settings,
                                                   std::vector<NetworkLayerMemory<T>>& memory);

/// How long the dense features of a full graph are held. `may_move`: InputFeatures::may_move.
[[nodiscard]] pmm::Lifetime lifetime_of_features(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                 NetworkSettings const& settings,
                                                 NetworkEpochTraits const& traits, bool may_move);

/// Lists the arrays of a network, without its parameters and operands. `num_edges`: of this rank's block, if layers read them.
void plan_network_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                         std::optional<std::int64_t> num_feature_nonzeros, std::int64_t num_edges = 0);

/// Bytes of the largest copy that a thread of a host keeps of an operand of the network's sparse products, if no other memory is free
/// for it meanwhile (pmm/kernels/host_parts.hpp).
[[nodiscard]] std::int64_t operand_copy_bytes(pmm::StepPlan const& step, NetworkPlan const& plan,
                                              NetworkSettings const& settings,
                                              NetworkEpochTraits const& traits);

} // namespace orthant::models

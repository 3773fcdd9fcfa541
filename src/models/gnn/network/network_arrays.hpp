#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Lists the memory of a network on one graph or batch, from its plan.

#include "models/gnn/layers/network_layer.hpp"
#include "models/gnn/network/network_operands.hpp"
#include "models/gnn/plan/epoch_traits.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

/// Sizes of the arrays that layers share.
[[nodiscard]] NetworkScratchPlan scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                            NetworkSettings const& settings);

/// [layers] lengths of each layer's memory for outputs of hidden layers if outputs share memory
/// (gnn/plan/network_settings.hpp); else empty.
[[nodiscard]] std::vector<std::int64_t>
shared_output_lengths(pmm::StepPlan const& step, NetworkPlan const& plan, NetworkSettings const& settings);

/// Layer whose memory of H holds the dense features until A^ F0 is computed (keeps_first_aggregate(), without dropout): the first later
/// layer with enough memory, which is written after A^ F0. nullopt if no layer has enough, or if layer 0 also reads the features.
[[nodiscard]] std::optional<std::size_t>
layer_with_features(pmm::StepPlan const& step, NetworkPlan const& plan, NetworkSettings const& settings);

/// Whether layer l receives its gradient in `middle` of the scratch instead of `gradient`. A layer with a perceptron uses both in turn, X
/// and Y: dC in X, dQ in Y, dH in X, dF in Y. So each such layer swaps them for the layer below.
[[nodiscard]] bool gets_gradient_in_middle(NetworkPlan const& plan, std::size_t l);

/// Places of a layer's output and gradients. `scratch` and `memory` must have their full size.
template<class T>
[[nodiscard]] NetworkLayerPlaces<T> places_of(NetworkPlan const& plan, bool shares_outputs, std::size_t l,
                                              NetworkScratch<T>& scratch,
                                              std::vector<NetworkLayerMemory<T>>& memory);

/// Memory for the dense features within layer_with_features(), or an empty vector.
template<class T>
[[nodiscard]] runtime::Vector<T> room_for_features(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                                   NetworkSettings const& settings,
                                                   std::vector<NetworkLayerMemory<T>>& memory);

/// Lifetime of the dense features of a full graph. `may_move`: see InputFeatures::may_move.
[[nodiscard]] pmm::Lifetime lifetime_of_features(pmm::StepPlan const& step, NetworkPlan const& plan,
                                                 NetworkSettings const& settings,
                                                 NetworkEpochTraits const& traits, bool may_move);

/// Lists the arrays of a network, without its parameters and operands. `num_edges`: edges of this rank's block, if layers read them;
/// `relation_edges`: with attention within relations.
void plan_network_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkSettings const& settings,
                         std::optional<std::int64_t> num_feature_nonzeros, std::int64_t num_edges = 0,
                         pmm::RelationEdgeCounts const& relation_edges = {});

/// Bytes of the largest copy that a host thread makes of an operand of the network's sparse products, if no other memory is free for
/// it (pmm/kernels/host_parts.hpp).
[[nodiscard]] std::int64_t operand_copy_bytes(pmm::StepPlan const& step, NetworkPlan const& plan,
                                              NetworkSettings const& settings,
                                              NetworkEpochTraits const& traits);

/// Lists the blocks of all layers with relations.
void plan_relation_operands(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits);

} // namespace orthant::models

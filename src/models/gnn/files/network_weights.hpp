#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a weights file (models/parameters/weights_file.hpp) says of a graph network: layer0.weight, layer0.bias, layer1.weight,
// ..; layerN.self_weight of GraphSAGE; layerN.epsilon, layerN.second.weight and layerN.second.bias of GIN; layerN.attention of GAT; layerN.norm, .norm_shift, .norm_mean and .norm_variance, input.weight, input.bias, head.weight, head.bias, decoder.weight, decoder.bias, decoder.second.weight, decoder.second.bias and features if the model has them.

#include "models/gnn/plan/network_settings.hpp"
#include "models/parameters/weights_file.hpp"

#include <optional>

namespace orthant::models {

/// The parts that must be those of the model: model, aggregator of GraphSAGE, propagation_steps, teleport and theta, layers, norm, activation, residual, input_projection, head, bias,
/// trained_features, and task, decoder and decoder_hidden if links are predicted.
[[nodiscard]] Architecture architecture_of(NetworkSettings const& settings);
/// What a file records: the same, feature_norm, and the operator if it is known; of a training on a store also the order of the rows of
/// trained features.
[[nodiscard]] Architecture record_of(NetworkSettings const& settings);
[[nodiscard]] Architecture record_of(NetworkSettings const& settings, graph::StoreFacts const& facts);
/// Of that record what a training must share with the file that it starts from: the order of the rows of trained
/// features, which depends on the schedule if the store has two orders.
[[nodiscard]] Architecture order_of_features(NetworkSettings const& settings, graph::StoreFacts const& facts);

/// The architecture that a weights file holds.
struct WeightsFacts {
  /// If the file does not say: sage if layers have self weights, gin if they have an epsilon, gat or gatv2 if attention.
  Model model = Model::gcn;
  Aggregator aggregator = Aggregator::mean;
  std::int64_t num_propagations = 10;               // of SGC and APPNP
  double teleport = 0.1;                            // of APPNP and GCNII
  double theta = 0.5;                               // of GCNII
  std::int64_t num_heads = 8, num_output_heads = 1; // of attention
  std::vector<std::int64_t> widths; // [layers + 1] of layer 0's input, and of the layers' outputs
  std::optional<std::int64_t> projected_features; // where there is an input projection
  std::optional<std::int64_t> head_classes;       // where there is a head
  bool has_bias = false;
  bool has_residuals = false;
  bool predicts_links = false;    // its outputs are embeddings
  std::int64_t decoder_width = 0; // of the perceptron that scores links; 0: dot products
  bool has_features = false;      // trained ones, in the order of rows of the store that they were trained on
  Norm norm = Norm::none;
  Activation activation = Activation::relu;
  std::optional<FeatureNorm> feature_norm;
  std::optional<graph::Normalization> normalization;
  std::optional<graph::SelfLoops> self_loops;

  [[nodiscard]] std::int64_t num_features() const { return projected_features.value_or(widths.front()); }
  [[nodiscard]] std::int64_t num_classes() const { return head_classes.value_or(widths.back()); }
};

/// The model of such a file, without dropout.
[[nodiscard]] NetworkSettings settings_of(WeightsFacts const& facts);

/// The number of its last layer, of which propagations are some, or of its head.
[[nodiscard]] std::int64_t last_layer_of(WeightsFacts const& facts);

/// A pattern of --init-skip for the weights that go by the classes: "head.*" or "layer2.*"; none if there are no others.
[[nodiscard]] std::optional<std::string> weights_of_classes(WeightsFacts const& facts);

/// Collective over `comm`. Throws UserError where the file is no weights file.
[[nodiscard]] WeightsFacts read_weights_facts(runtime::Communicator const& comm,
                                              std::filesystem::path const& path);

} // namespace orthant::models

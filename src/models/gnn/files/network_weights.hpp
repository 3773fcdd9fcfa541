#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Parameters and architecture of a graph network in a weights file (models/parameters/weights_file.hpp). Names of the parameters;
// those that the model does not have are absent:
//
//   layerN.weight, layerN.bias
//   layerN.norm, layerN.norm_shift, layerN.norm_mean, layerN.norm_variance
//   layerN.self_weight                                           GraphSAGE
//   layerN.epsilon, layerN.second.weight, layerN.second.bias     GIN
//   layerN.attention                                             GAT
//   layerN.edge_weight, layerN.edge_attention                    GAT with features of edges; GATv2 has only the first
//   input.weight, input.bias, head.weight, head.bias, features
//   decoder.weight, decoder.bias, decoder.second.weight, decoder.second.bias

#include "models/gnn/plan/network_settings.hpp"
#include "models/parameters/weights_file.hpp"

#include <array>
#include <optional>

namespace orthant::models {

/// Properties that a file and a network must share: model, aggregator of GraphSAGE, propagation_steps, teleport, theta, bases, blocks, edge_features, layers, norm,
/// activation, residual, input_projection, head, bias, trained_features; and task, decoder and decoder_hidden if links are predicted.
[[nodiscard]] Architecture architecture_of(NetworkSettings const& settings);
/// Properties that a file records: those of architecture_of(), feature_norm, and the operator if it is known.
[[nodiscard]] Architecture record_of(NetworkSettings const& settings);
/// As above, and unless links are predicted: labels (the kind of the graph's), and class_names as JSON if classes have names whose JSON has
/// at most 32 KiB.
[[nodiscard]] Architecture record_of(NetworkSettings const& settings, graph::StoreFacts const& facts);

/// Properties that a file records and its tensors do not tell: safetensors files have them as metadata.
inline constexpr std::array unseen_parts{"aggregator",      "activation",    "residual",
                                         "feature_norm",    "normalization", "self_loops",
                                         "dense_libraries", "labels",        "class_names"};

/// Architecture of the network in a weights file.
struct WeightsFacts {
  /// If the file does not record the model, it is deduced from the arrays: sage has self weights, gin epsilon, gat and gatv2 attention.
  Model model = Model::gcn;
  Aggregator aggregator = Aggregator::mean;
  std::int64_t num_propagations = 10;               // SGC and APPNP
  double teleport = 0.1;                            // APPNP and GCNII
  double theta = 0.5;                               // GCNII only
  std::int64_t num_heads = 8, num_output_heads = 1; // heads of attention
  std::int64_t num_edge_features = 0;               // that attention reads
  std::int64_t num_bases = 0, num_blocks = 0;       // R-GCN
  std::int64_t num_roots = 0;                       // of relations or types; rgcn, rsage and rgat
  bool has_target_weights = false;                  // rgat
  std::vector<std::int64_t> widths;                 // [layers + 1] layer 0's input, then the layers' outputs
  std::optional<std::int64_t> projected_features;   // nullopt without an input projection
  std::optional<std::int64_t> head_classes;         // nullopt without a head
  bool has_bias = false;
  bool has_residuals = false, projects_residuals = false;
  JumpKind jump = JumpKind::none;
  bool predicts_links = false;    // outputs are embeddings
  std::int64_t decoder_width = 0; // hidden layer of the perceptron that scores links; 0: dot products
  bool has_features = false;      // trained features, in the order of rows of the store of that training
  Norm norm = Norm::none;
  Activation activation = Activation::relu;
  std::optional<FeatureNorm> feature_norm;
  std::optional<graph::Normalization> normalization;
  std::optional<graph::SelfLoops> self_loops;
  std::string label_kind;               // attribute labels; empty: not recorded
  std::vector<std::string> class_names; // empty: not recorded

  [[nodiscard]] std::int64_t num_features() const { return projected_features.value_or(widths.front()); }
  [[nodiscard]] std::int64_t num_classes() const { return head_classes.value_or(widths.back()); }
};

/// "no", "yes" or "project", as files record residuals.
[[nodiscard]] std::string_view name_of_residuals(bool has_residuals, bool projects_residuals);

/// Settings of the network in a weights file, without dropout.
[[nodiscard]] NetworkSettings settings_of(WeightsFacts const& facts);

/// Number of the last layer or head. Propagations count as layers.
[[nodiscard]] std::int64_t last_layer_of(WeightsFacts const& facts);

/// Pattern for --init-skip that matches the weights whose shape depends on the number of classes, such as "head.*" or "layer2.*"; nullopt
/// if no weight or every weight depends on it.
[[nodiscard]] std::optional<std::string> weights_of_classes(WeightsFacts const& facts);

/// The model that a file records, or nullopt. Throws UserError if it is of a language model or of a convolution that this program does not
/// have. Not collective.
[[nodiscard]] std::optional<Model> recorded_model(runtime::Hdf5File const& file,
                                                  std::filesystem::path const& path);

/// The number in an attribute of the file, or `otherwise` if there is no such attribute. Throws UserError if it is no number.
/// Number: std::int64_t or double. Not collective.
template<class Number>
[[nodiscard]] Number recorded_number(runtime::Hdf5File const& file, std::filesystem::path const& path,
                                     char const* name, Number otherwise);

/// Reads the architecture. Collective over `comm`. Throws UserError if the file is not a weights file.
[[nodiscard]] WeightsFacts read_weights_facts(runtime::Communicator const& comm,
                                              std::filesystem::path const& path);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the user asks of a GCN.

#include "models/gnn/operands/graph_operands.hpp"
#include "models/gnn/plan/gnn_model.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/layers/activation_step.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::models {

struct NetworkSettings {
  Model model = Model::gcn;
  Aggregator aggregator = Aggregator::mean;          // of GraphSAGE
  std::int64_t num_propagations = 10;                // K of SGC and APPNP
  double teleport = 0.1;                             // alpha of APPNP and GCNII
  double theta = 0.5;                                // of GCNII
  std::vector<std::int64_t> hidden_widths{128, 128}; // one fewer than layers; as many where there is a head
  std::int64_t projected_width = 0;                  // of layer 0's input X W_in; 0: layer 0 reads X itself
  bool has_head = false;                             // logits = F_L W_out, else the last layer's
  std::int64_t embedding_width = 0; // of the outputs, by which links are predicted; 0: classes
  std::int64_t decoder_width = 0;   // of the hidden layer of a perceptron that scores links; 0: dot products
  bool has_residuals = false;       // where a layer's input and output are equally wide
  Norm norm = Norm::none;
  Activation activation = Activation::relu; // of hidden layers
  double dropout = 0.5;
  std::int64_t num_heads = 8;        // of attention: of hidden layers, side by side
  std::int64_t num_output_heads = 1; // of the layer that makes the logits: their mean
  double attention_dropout = 0;      // of its coefficients
  double edge_dropout = 0;           // of A^'s entries off the diagonal (pmm/neighbors/edge_dropout.hpp)
  bool has_bias = true;
  bool trains_features = false;
  FeatureNorm feature_norm = FeatureNorm::none;
  std::optional<graph::Normalization> normalization{}; // none: that of the store
  std::optional<graph::SelfLoops> self_loops{};        // none: the usual ones, or those of the store
  ProductOrder order = ProductOrder::automatic;
  Schedule schedule = Schedule::pmm3d;
  pmm::Gather gather = pmm::Gather::all; // in the schedule rows
  bool overlaps = true;                  // reductions of products run while others are computed
  /// In the schedule rows: whose messages travel while products are computed. It pays where processors do not
  /// move the data themselves.
  pmm::AxisSet hidden_axes{};
  runtime::Wire wire = runtime::Wire::native;
  /// What activations, their gradients and operands of products are held in. 16 bits: fp32 training, host.
  runtime::Wire operand_format = runtime::Wire::native;
  bool keeps_outputs = false; // of all hidden layers until the next pass, for whoever reads them
  std::uint64_t seed = 0;

  [[nodiscard]] NumberFormats formats() const { return {wire, operand_format}; }

  /// Without propagations, and the dense layers around those of GCNII.
  [[nodiscard]] std::int64_t num_layers() const {
    return static_cast<std::int64_t>(hidden_widths.size()) + (has_head ? 0 : 1);
  }
  /// Layers of equal width; with or without a head as has_head says.
  void set_layers(std::int64_t num_layers, std::int64_t hidden) {
    hidden_widths.assign(static_cast<std::size_t>(num_layers - (has_head ? 0 : 1)), hidden);
  }
  /// Dropout of X itself: a projection reads X as it is (ScaleGNN, arXiv 2604.02651).
  [[nodiscard]] double input_dropout() const { return projected_width > 0 ? 0.0 : dropout; }
  /// Of the same network where it is only evaluated: it has no memory for what is dropped out.
  [[nodiscard]] NetworkSettings without_dropout() const {
    auto same = *this;
    same.dropout = 0;
    return same;
  }
};

/// Makes it a network of that model, with its operator, with a head if the model has one, and in the schedule rows if it weighs
/// neighbours; before set_layers(). Throws UserError if the settings ask for another operator.
void set_model(NetworkSettings& settings, Model model, Aggregator aggregator = Aggregator::mean);

/// Whether its outputs are embeddings of vertices, by which links are predicted.
[[nodiscard]] inline bool predicts_links(NetworkSettings const& settings) {
  return settings.embedding_width > 0;
}

/// Whether its layers weigh neighbours by attention.
[[nodiscard]] bool weighs_neighbours(NetworkSettings const& settings);

/// Whether its layers read single edges, by attention, which is of the schedule rows, or for a maximum.
[[nodiscard]] bool reads_edges(NetworkSettings const& settings);
/// Whether these edges need the original ids of their ends: to drop coefficients, or to break ties.
[[nodiscard]] bool needs_edge_ids(NetworkSettings const& settings);

/// What --normalize and --self-loops ask for: their words, or "auto", which leaves a part open. Throws UserError for other
/// words.
void choose_operator(NetworkSettings& settings, std::string_view normalize, std::string_view self_loops);
/// The store gives the operator of `settings` from now on; what they leave open is that of the store, and they have it
/// afterwards. Throws UserError as GraphStore::set_operator().
void use_operator(graph::GraphStore& store, NetworkSettings& settings);

/// Whether layer l's output is normalised.
[[nodiscard]] bool is_normalised(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l);

/// Whether outputs of hidden layers share memory, because the backward pass reads bits in their place (layers/activation_step.hpp).
/// On host processors, in the schedule rows, of graph convolutions with ReLU and nothing beside them, where no message
/// travels behind products. Then
///
///   Q_l    lies where Q_l+1 will, if layer l+1 aggregates first (only A^ F is read again) and is hidden
///   dQ_l   lies where Q_l lay (logits of 16-bit networks apart), and dH_l where H_l lay: dW is computed ahead of them
[[nodiscard]] bool shares_outputs(NetworkPlan const& plan, NetworkSettings const& settings);
/// The layer in whose memory the output of layer l lies then.
[[nodiscard]] std::size_t layer_of_output(NetworkPlan const& plan, std::size_t l);

[[nodiscard]] ActivationParts activation_of(NetworkPlan const& plan, NetworkSettings const& settings,
                                            std::size_t l);

/// The shape of the model that `settings` ask for on a graph of those counts.
[[nodiscard]] NetworkShape shape_of(graph::StoreFacts const& facts, NetworkSettings const& settings);

/// The model that `settings` ask for on a graph of those counts.
[[nodiscard]] NetworkPlan plan_network(graph::StoreFacts const& facts, NetworkSettings const& settings);

/// The same on the graph of a store. Throws UserError where the store has no features, or no
/// labels or held-out edges to train for, naming the partition flags that give them.
[[nodiscard]] NetworkPlan plan_network(graph::GraphStore const& store, NetworkSettings const& settings);

} // namespace orthant::models

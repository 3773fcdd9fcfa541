#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Settings of a graph network that the user chooses.

#include "models/gnn/operands/graph_operands.hpp"
#include "models/gnn/plan/gnn_model.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "models/layers/activation_step.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/formats.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::models {

struct NetworkSettings {
  Model model = Model::gcn;
  Aggregator aggregator = Aggregator::mean;          // GraphSAGE and GraphConv
  std::int64_t num_propagations = 10;                // K of SGC, APPNP and TAGConv
  double teleport = 0.1;                             // alpha of APPNP and GCNII
  double theta = 0.5;                                // GCNII only
  std::vector<std::int64_t> hidden_widths{128, 128}; // one fewer than layers; as many with a head
  std::int64_t projected_width = 0;                  // width of layer 0's input X W_in; 0: X itself
  bool has_head = false;                             // logits = F_L W_out, else the last layer's output
  std::int64_t embedding_width = 0; // width of the outputs that predict links; 0: outputs are class scores
  std::int64_t decoder_width = 0;   // hidden layer of the perceptron that scores links; 0: dot products
  bool has_residuals = false;       // for hidden layers whose input and output are equally wide
  bool projects_residuals = false;  // also for other hidden layers, with a trained map F W_r of the input
  JumpKind jump = JumpKind::none;   // what the head reads of the hidden layers; needs has_head
  Norm norm = Norm::none;
  Activation activation = Activation::relu; // of hidden layers
  double dropout = 0.5;
  std::int64_t num_heads = 8;        // attention heads of hidden layers, side by side
  std::int64_t num_output_heads = 1; // heads of the layer that makes the logits: their mean
  /// Features of edges that GAT and GATv2 read; nullopt: those of the store, which use_operator() sets.
  std::optional<std::int64_t> num_edge_features{};
  bool has_target_weights = false; // R-GAT: scores have a weight of their own for the targets of edges
  std::int64_t num_bases = 0;      // of the weights of R-GCN's relations; 0: each has its own
  std::int64_t num_blocks = 0;     // on the diagonals of these weights; 0: they are full
  double attention_dropout = 0;    // of attention coefficients
  double edge_dropout = 0;         // of off-diagonal entries of A^ (pmm/neighbors/edge_dropout.hpp)
  bool has_bias = true;
  bool trains_features = false;
  /// Rows of trained features that keep their values; the others are trained, for vertices without features. nullopt: all rows are trained.
  std::optional<std::int64_t> num_fixed_rows{};
  std::int64_t num_roots =
      0; // of relations or types, each with a W' and a bias; 0: one for all vertices; R-GAT: relations
  FeatureNorm feature_norm = FeatureNorm::none;
  std::optional<graph::Normalization> normalization{}; // nullopt: the store's
  std::optional<graph::SelfLoops> self_loops{};        // nullopt: the model's default, or the store's
  ProductOrder order = ProductOrder::automatic;
  Schedule schedule = Schedule::pmm3d;
  pmm::Gather gather = pmm::Gather::all; // in the schedule `rows`
  bool overlaps = true;                  // reductions of products overlap other products
  /// Schedule `rows`: axes whose messages overlap products. Useful if the network moves data without the processors.
  pmm::AxisSet hidden_axes{};
  runtime::Wire wire = runtime::Wire::native;
  /// Number format of activations, their gradients and operands of products. 16 bits need fp32 training on the host.
  runtime::Wire operand_format = runtime::Wire::native;
  bool keeps_outputs = false;  // keep the outputs of all hidden layers until the next pass, for callers
  bool trains_entries = false; // VertexLossSettings::trains_entries(), for plans
  std::uint64_t seed = 0;

  [[nodiscard]] NumberFormats formats() const { return {wire, operand_format}; }

  /// Number of layers, without propagations and without the dense layers before and after those of GCNII.
  [[nodiscard]] std::int64_t num_layers() const {
    return static_cast<std::int64_t>(hidden_widths.size()) + (has_head ? 0 : 1);
  }
  /// Sets `num_layers` layers of equal width. A head, if has_head, counts as a layer.
  void set_layers(std::int64_t num_layers, std::int64_t hidden) {
    hidden_widths.assign(static_cast<std::size_t>(num_layers - (has_head ? 0 : 1)), hidden);
  }
  /// Dropout of X. A projection reads X without dropout (ScaleGNN, arXiv 2604.02651).
  [[nodiscard]] double input_dropout() const { return projected_width > 0 ? 0.0 : dropout; }
  /// The same settings for a network that is only evaluated: no dropout, and no memory for it.
  [[nodiscard]] NetworkSettings without_dropout() const {
    auto same = *this;
    same.dropout = 0;
    return same;
  }
};

/// Sets the model with its operator. Adds a head if the model has one, and selects the schedule `rows` for attention. Call it before
/// set_layers(). Throws UserError if the settings already specify a different operator.
void set_model(NetworkSettings& settings, Model model, Aggregator aggregator = Aggregator::mean);

/// Whether the outputs are embeddings of vertices that predict links.
[[nodiscard]] inline bool predicts_links(NetworkSettings const& settings) {
  return settings.embedding_width > 0;
}

/// Whether layers weight neighbors by attention.
[[nodiscard]] bool weighs_neighbours(NetworkSettings const& settings);

/// Whether layers read single edges: by attention (schedule `rows` only), or for a maximum.
[[nodiscard]] bool reads_edges(NetworkSettings const& settings);
/// Whether these edges need the original ids of their ends, to drop coefficients or edges, or to break ties.
[[nodiscard]] bool needs_edge_ids(NetworkSettings const& settings);

/// Sets the operator that --normalize and --self-loops name. "auto" leaves a part open. Throws UserError for unknown words.
void choose_operator(NetworkSettings& settings, std::string_view normalize, std::string_view self_loops);
/// Sets the store's operator from `settings`, and the parts that `settings` leave open from the store. Layers that read edges ignore
/// weights, and a maximum of sparse features reads them as dense ones. Only GAT and GATv2 read features of edges. Throws UserError if the store
/// cannot have this operator, or if its edges have another number of features than the settings say.
void use_operator(graph::GraphStore& store, NetworkSettings& settings);

/// Whether layer l's output is normalized.
[[nodiscard]] bool is_normalised(NetworkPlan const& plan, NetworkSettings const& settings, std::size_t l);

/// Whether outputs of hidden layers share memory; the backward pass then reads bits instead of them (layers/activation_step.hpp).
/// True on host processors, in the schedule `rows`, for graph convolutions with ReLU alone, if no message overlaps products. Then
///
///   Q_l    shares the memory of Q_l+1 if layer l+1 is hidden and aggregates first (only A^ F is read again)
///   dQ_l   has the memory of Q_l (except logits of 16-bit networks), and dH_l the memory of H_l: dW is computed before both
[[nodiscard]] bool shares_outputs(NetworkPlan const& plan, NetworkSettings const& settings);
/// Index of the layer whose memory holds layer l's output if outputs share memory.
[[nodiscard]] std::size_t layer_of_output(NetworkPlan const& plan, std::size_t l);

[[nodiscard]] ActivationParts activation_of(NetworkPlan const& plan, NetworkSettings const& settings,
                                            std::size_t l);
/// Activation of the second layer of a perceptron.
[[nodiscard]] ActivationParts activation_of_second(NetworkSettings const& settings);

/// Shape of the model that `settings` ask for on a graph with these counts.
[[nodiscard]] NetworkShape shape_of(graph::StoreFacts const& facts, NetworkSettings const& settings);

/// Plan of the model that `settings` ask for on a graph with these counts.
[[nodiscard]] NetworkPlan plan_network(graph::StoreFacts const& facts, NetworkSettings const& settings);

/// Plan on the graph of a store. The store must have features, and labels or held-out edges to train for; otherwise throws
/// UserError, which names the partition flags that add them.
[[nodiscard]] NetworkPlan plan_network(graph::GraphStore const& store, NetworkSettings const& settings);

// Combinations of options of graph networks that are refused, and why. docs/graph_models.md, "What is refused", has the
// same table; tests/cli/combinations/refused.py compares them.

enum class Refused : std::uint8_t {
  batch_edges,
  train_fraction,
  heads,
  widths,
  sparse_features,
  fp64,
  operand_models,
  link_formats,
  link_batches
};

struct Refusal {
  std::string_view options;
  std::string_view reason;
};

/// In the order of Refused.
inline constexpr std::array<Refusal, 9> refusals{{
    {"--batch-edges renormalize needs a normalized graph",
     "it divides by the degrees within a batch in place of those of the graph"},
    {"--batch-train-fraction works with --sampler uniform only",
     "other samplers do not fix the number of training vertices of a batch"},
    {"--heads must divide --hidden", "the heads of a layer have equal shares of its columns"},
    {"--model gcnii and --jump max or mean need hidden layers of one width",
     "outputs of layers are added or compared element by element"},
    {"--trainable-features needs dense features",
     "a step of the optimizer would fill the zeros of sparse ones"},
    {"--comm-dtype and --operand-dtype other than fp32 need --compute-dtype fp32",
     "their numbers are rounded from fp32"},
    {"--operand-dtype of 16 bits goes with --model gcn without --jump",
     "only products of its layers have operands of 16 bits"},
    {"--comm-dtype and --operand-dtype other than fp32 go with --task nodes",
     "scores of links have no operands of 16 bits"},
    {"--task links is trained on the full graph", "a batch of vertices rarely holds both ends of an edge"},
}};

/// Throws UserError: the options, the reason, and what to do.
[[noreturn]] inline void refuse(Refused which, std::string_view remedy) {
  auto const& [options, reason] = refusals.at(static_cast<std::size_t>(which));
  runtime::throw_user("{}: {}; {}", options, reason, remedy);
}

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where everything of a GCN lies (docs/design.md 2.2). With role axes (a, b, c) a layer is two products and a
// rotation:
//
//   aggregate first   H[c,b] := sum_a A^[c,a] F[a,b]     Q[c,a] := sum_b H[c,b] W[b,a], W flat-sharded over c
//                     next (a,b,c) <- (c,a,b)
//   transform first   U[a,c] := sum_b F[a,b] W[b,c], W flat-sharded over a     Q[b,c] := sum_a A^[b,a] U[a,c]
//                     next (a,b,c) <- (b,c,a)
//
// Q lies as the next layer's F does, so activations are never redistributed. Rows alternate between two
// orders: even layers use A^[p1, p2], odd layers A^[p2, p1]; the features start in order p2. Source: Plexus
// (arXiv 2505.04083), sections 3.1 and 5.1; transform first is its transpose.
//
// That is the schedule pmm3d. In the schedule rows every vertex has one owner, which holds its whole rows of
// every activation, and the axes serve the aggregation alone (pmm/aggregate/aggregate.hpp); all matrices of
// vertices are F[{x,y,z},-] in order p1. Every rank reads whole weights W[-,-] and leaves an addend of their
// gradients (network_parameters.hpp gathers and sums them).
//
// A layer may be one of the two products alone (gnn_model.hpp). Rows of a dense layer stay where they are; a propagation leaves the
// columns, so that two of them lie where they began:
//
//   dense             Q[a,c] := sum_b F[a,b] W[b,c], W flat-sharded over a           next (a,b,c) <- (a,c,b)
//   propagation       Q[c,b] := sum_a A^[c,a] F[a,b]                                 next (a,b,c) <- (c,b,a)
//
// An input projection and a head are one product each, around the layers, with the roles of the first layer
// and those after the last (ScaleGNN, arXiv 2604.02651):
//
//   F_0[a,b] := sum_c X[a,c] W_in[c,b]        logits[a,c] := sum_b F_L[a,b] W_out[b,c]        W flat-sharded
//   over a

#include "pmm/aggregate/aggregate.hpp"
#include "pmm/edges/edge_block.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::models {

// A value that may be absent, as std::optional, in memory of its own: where most objects have none, they stay small.

template<class T>
class Boxed {
 public:
  Boxed() = default;
  Boxed(T value) : value_(std::make_unique<T>(std::move(value))) {} // NOLINT: as std::optional
  Boxed(Boxed const& other) : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
  Boxed(Boxed&&) noexcept = default;
  Boxed& operator=(Boxed other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Boxed() = default;

  [[nodiscard]] explicit operator bool() const { return value_ != nullptr; }
  [[nodiscard]] T& operator*() { return *value_; }
  [[nodiscard]] T const& operator*() const { return *value_; }
  [[nodiscard]] T* operator->() { return value_.get(); }
  [[nodiscard]] T const* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

// A layer of attention over neighbours before it meets a graph. With H heads of d columns, the columns of a layer's U = F W are
// those of head 0, of head 1, ..:
//
//   GAT      U = [Z_0 | Z_1 | ..]                  a_h = [a_h of the row | a_h of the column], 2 d numbers
//            score of (i, j): leaky(<a_h row, Z_ih> + <a_h column, Z_jh>)          values: Z
//   GATv2    U = [R_0 | R_1 | .. | L_0 | L_1 | ..]           a_h of d numbers
//            score of (i, j): <a_h, leaky(L_ih + R_jh)>                            values: R
//
//   Q_i = [sum_j alpha_ij0 values_j0 | ..], or their mean over the heads          alpha: softmax of the scores of row i
//
// Sources: Velickovic et al. (arXiv 1710.10903), equations 3 to 6; Brody, Alon & Yahav (arXiv 2105.14491), equation 7.

enum class AttentionKind : std::uint8_t { gat, gatv2 };

/// Of a network.
struct AttentionShape {
  AttentionKind kind = AttentionKind::gat;
  std::int64_t num_heads = 8;        // of hidden layers, side by side
  std::int64_t num_output_heads = 1; // of a layer that makes the logits: their mean
};

/// Of a layer.
struct AttentionPlan {
  AttentionKind kind = AttentionKind::gat;
  std::int64_t num_heads = 1;
  std::int64_t head_width = 1;
  bool averages_heads = false;

  [[nodiscard]] bool is_dynamic() const { return kind == AttentionKind::gatv2; }
  [[nodiscard]] pmm::Heads heads() const { return {num_heads, head_width}; }
  /// Columns of U, and of W.
  [[nodiscard]] std::int64_t num_projected() const { return (is_dynamic() ? 2 : 1) * num_heads * head_width; }
  /// Numbers of a_h, a row of the parameter "attention".
  [[nodiscard]] std::int64_t num_vector() const { return (is_dynamic() ? 1 : 2) * head_width; }
};

/// Of a layer with that many columns, which heads cut evenly (Error).
[[nodiscard]] AttentionPlan attention_of(AttentionShape const& shape, std::int64_t num_columns,
                                         bool makes_logits);

/// How the matrices of vertices are spread, and so what is communicated.
enum class Schedule : std::uint8_t { pmm3d, rows };

/// "pmm3d" or "rows". Throws UserError for another word.
[[nodiscard]] Schedule parse_schedule(std::string_view word);
[[nodiscard]] std::string_view name_of(Schedule schedule);

/// Which product comes first in every layer, or the cheaper one layer by layer.
enum class ProductOrder : std::uint8_t { automatic, aggregate_first, transform_first };

/// "auto", "aggregate" or "transform". Throws UserError for another word.
[[nodiscard]] ProductOrder parse_product_order(std::string_view word);

/// What messages carry, and what activations, their gradients and the operands of products are held in. Native: the
/// scalar of training.
struct NumberFormats {
  runtime::Wire wire = runtime::Wire::native;
  runtime::Wire operand = runtime::Wire::native;

  /// Of what a layer puts out: logits are never rounded.
  [[nodiscard]] runtime::Wire of_output(bool are_logits) const {
    return are_logits ? runtime::Wire::native : operand;
  }
};

/// Which of its two products a layer has.
enum class LayerKind : std::uint8_t { convolution, dense, propagation };

struct NetworkShape {
  std::int64_t num_vertices = 0;
  std::vector<std::int64_t> widths; // [layers + 1] of layer 0's input, and of the layers' outputs
  std::vector<LayerKind> kinds;     // [layers], or none: convolutions
  std::optional<std::int64_t> projected_features; // D where layer 0 reads X W_in
  std::optional<std::int64_t> head_classes;       // C where the logits are F_L W_out
  bool has_sparse_features = false; // the layer that reads them transforms first: A^ X would be dense
  bool features_need_gradient = false;
  bool has_self_weights = false;             // a second weight for the vertex itself (gnn_model.hpp)
  bool has_self_scales = false;              // a factor 1 + epsilon for it
  bool has_perceptrons = false;              // a second linear layer after the activation; with a head
  bool has_teleport = false;                 // layers that aggregate add what the first of them reads
  std::optional<double> theta{};             // of identity maps, which convolutions have; else none
  bool takes_maximum = false;                // of neighbours, in place of A^ F; aggregates first
  std::optional<AttentionShape> attention{}; // weighs neighbours; schedule rows
  bool has_residuals = false;     // around layers that are as wide as what they read, features left out
  bool has_input_dropout = false; // else A^ F0 is the same every epoch, unless
  bool drops_edges = false;       // edges of A^ are dropped out
  Schedule schedule = Schedule::pmm3d;
  bool is_symmetric = false;  // the pattern of A: rows go back as they came
  pmm::AxisSet hidden_axes{}; // schedule rows: whose messages travel while products are computed
};

/// The block of a layer that keeps a part of the vertices, known once it is read.
struct KeptBlock {
  pmm::CellSizes cells;
  pmm::NeededCountsOfAxes needed; // rows that move; empty: all
  std::int64_t num_nonzeros = 0;
};

/// How a layer of the schedule rows aggregates.
struct OwnerRoles {
  pmm::Roles roles;
  pmm::Flow backward = pmm::Flow::transpose;
  pmm::AxisSet hidden_axes{};
  std::optional<KeptBlock> kept{}; // else all vertices, or those of a batch
};

/// C[r,c] := sum_k A[r,k] W[k,c]: an input projection, a head, or the second layer of a perceptron.
struct LinearPlan {
  pmm::Placement input;
  pmm::Placement weight;
  pmm::Placement output;
  bool makes_logits = false;
};

struct NetworkLayerPlan {
  std::int64_t index = 0;
  LayerKind kind = LayerKind::convolution;
  bool aggregates_first = true;
  bool is_even = true;          // parity of A^
  bool is_residual = false;     // F is added to what becomes of Q
  bool has_self_weight = false; // F W' is added to Q; W' lies as W
  bool has_self_scale = false;  // (1 + epsilon) F is added to A^ F, or (1 + epsilon) U to A^ U
  bool drops_output = true;     // else nothing is dropped out of relu(Q): a perceptron or a teleport goes on
  bool is_activated = true;     // Q is normalised, activated and dropped out
  bool adds_bias = true;        // a propagation: that of layer 0
  bool makes_logits = false;    // Q are the logits
  std::optional<double> map_share{};          // beta: W stands for (1 - beta) I + beta W
  std::optional<std::size_t> teleport_site{}; // of NetworkPlan::teleport, where A^ F lies
  pmm::Placement adjacency;                   // A^
  pmm::Placement input;                       // F
  pmm::Placement middle;                      // H or U
  pmm::Placement weight;                      // W
  pmm::Placement output;                      // Q
  std::optional<OwnerRoles> owners;           // schedule rows
  Boxed<LinearPlan> second;                   // after the activation, with one of its own
  bool takes_maximum = false;                 // in place of A^ F; aggregates first
  std::int64_t least_weighted_width =
      0; // of its aggregation on a rank, for weights of non-zeros; 0: it has none
  std::optional<AttentionPlan> attention{}; // A^ is a pattern, whose entries it weighs; transforms first

  /// Whether what A^ is multiplied by, or its product, is kept for the backward pass.
  [[nodiscard]] bool keeps_middle() const {
    return keeps_aggregate() || (attention && !attention->is_dynamic());
  }

  /// Whether it reads single edges, by rows and by columns, and no product A^ F.
  [[nodiscard]] bool reads_edges() const { return takes_maximum || attention.has_value(); }
  /// Which products it has.
  [[nodiscard]] bool aggregates() const { return kind != LayerKind::dense; }
  [[nodiscard]] bool transforms() const { return kind != LayerKind::propagation; }
  /// Whether H is kept, which is not Q.
  [[nodiscard]] bool keeps_aggregate() const { return kind == LayerKind::convolution && aggregates_first; }
  /// Whether rows of the vertex itself go to where the aggregate lies.
  [[nodiscard]] bool reads_itself() const { return has_self_weight || has_self_scale; }
  /// What the next layer reads.
  [[nodiscard]] pmm::Placement const& result() const { return second ? second->output : output; }

  /// Whether products with A^ and its adjoint, with so many columns on a rank, keep weights (pmm/spmm/local_spmm.hpp).
  [[nodiscard]] bool keeps_weights(std::int64_t width) const {
    return least_weighted_width > 0 && width >= least_weighted_width;
  }

  /// What A^ is multiplied by, and the result. Rows of the vertex itself go from one place to the other.
  [[nodiscard]] pmm::Placement const& aggregated() const { return aggregates_first ? input : middle; }
  [[nodiscard]] pmm::Placement const& aggregate() const { return keeps_aggregate() ? middle : output; }
  /// Columns of what is aggregated.
  [[nodiscard]] std::int64_t aggregated_width() const {
    return (aggregates_first ? input : output).extents.columns;
  }
};

/// H0, which layers that aggregate add to their result (gnn/layers/teleport.hpp).
struct TeleportPlan {
  std::size_t first_layer = 0;       // the first that adds it: H0 is what this one reads
  bool drops_start = false;          // which reads dropout(H0)
  std::vector<pmm::Placement> sites; // the different places where it is added
};

struct NetworkPlan {
  std::optional<LinearPlan> projection;
  std::vector<NetworkLayerPlan> layers; // at least one
  std::optional<LinearPlan> head;
  std::optional<TeleportPlan> teleport;
  bool drops_edges = false; // A^ of a step is not that of another

  /// Of the features.
  [[nodiscard]] pmm::Placement const& features() const {
    return projection ? projection->input : layers.front().input;
  }
  [[nodiscard]] pmm::Placement const& logits() const { return head ? head->output : layers.back().output; }
};

/// Whether rows of the vertex itself are kept apart for the backward pass: they are elsewhere, or gone by then.
[[nodiscard]] inline bool keeps_brought(NetworkLayerPlan const& layer) {
  return !layer.owners || !layer.aggregates_first;
}

/// H0.
[[nodiscard]] inline pmm::Placement const& teleport_start(NetworkPlan const& plan) {
  return plan.layers[plan.teleport.value().first_layer].input;
}

/// Whether layer l reads dropout(H0).
[[nodiscard]] inline bool drops_start(NetworkPlan const& plan, std::size_t l) {
  return plan.teleport && plan.teleport->first_layer == l && plan.teleport->drops_start;
}

/// Whether layer l's output is normalised, activated and dropped out. Such layers come before all others.
[[nodiscard]] bool is_activated(NetworkPlan const& plan, std::size_t l);

/// Whether layer l's input has a gradient. Raw features have one if they are trained; then they are sharded,
/// like all parameters.
[[nodiscard]] bool needs_input_gradient(NetworkPlan const& plan, std::size_t l);

/// Whether H = A^ F0 of dense features may be kept from pass to pass without dropout.
[[nodiscard]] bool keeps_first_aggregate(NetworkPlan const& plan);

/// Whether layer 0 reads the features in every pass, even if H is kept: where they lie as H does, for the vertex itself.
[[nodiscard]] bool keeps_features(NetworkPlan const& plan);

/// The same plan for that many vertices, whose A^ changes: the weights of layers lie where they did.
[[nodiscard]] NetworkPlan with_num_vertices(NetworkPlan plan, std::int64_t num_vertices);

/// The same for a batch whose parts are all balanced: gradients go back by the transpose. `plan`: of the whole graph.
[[nodiscard]] NetworkPlan plan_of_batch(NetworkPlan const& plan, std::int64_t num_vertices);

/// The layers of a GCN on a grid whose layer 0 has the roles (a, b, c) = (x, y, z). The cheaper order is that
/// with fewer gathered columns: aggregating first gathers the layer's input width in both directions,
/// transforming first its output width; layer 0 needs no gradient of features that are not trained, and no
/// product where A^ F0 is kept. In the schedule rows the narrower side is aggregated.
[[nodiscard]] NetworkPlan plan_network(NetworkShape const& shape, ProductOrder order);

} // namespace orthant::models

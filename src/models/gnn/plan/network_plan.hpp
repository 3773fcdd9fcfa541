#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Placements of all matrices of a graph network (docs/design.md 2.2). With role axes (a, b, c) a convolution is two products
// and a rotation of the axes:
//
//   aggregate first   H[c,b] := sum_a A^[c,a] F[a,b]     Q[c,a] := sum_b H[c,b] W[b,a], W flat-sharded over c
//                     next (a,b,c) <- (c,a,b)
//   transform first   U[a,c] := sum_b F[a,b] W[b,c], W flat-sharded over a     Q[b,c] := sum_a A^[b,a] U[a,c]
//                     next (a,b,c) <- (b,c,a)
//
// Q has the placement of the next layer's F, so activations are never redistributed. Rows alternate between two orders: even layers use
// A^[p1, p2], odd layers A^[p2, p1]; the features start in order p2. Source: Plexus (arXiv 2505.04083), sections 3.1 and 5.1; transform
// first is its transpose.
//
// This is the schedule `pmm3d`. In the schedule `rows` each vertex has one owner, which holds the whole rows of all activations;
// only the aggregation uses the axes (pmm/aggregate/aggregate.hpp). All matrices of vertices are F[{x,y,z},-] in order p1. Every
// rank has whole weights W[-,-] and computes partial gradients (network_parameters.hpp gathers the weights and sums the gradients).
//
// A layer may have only one of the two products (gnn_model.hpp). A dense layer leaves rows in place. A propagation leaves columns
// in place, so two propagations restore the layout:
//
//   dense             Q[a,c] := sum_b F[a,b] W[b,c], W flat-sharded over a           next (a,b,c) <- (a,c,b)
//   propagation       Q[c,b] := sum_a A^[c,a] F[a,b]                                 next (a,b,c) <- (c,b,a)
//
// An input projection and a head are one product each, before and after the layers. They use the roles of the first layer and the
// roles after the last one (ScaleGNN, arXiv 2604.02651):
//
//   F_0[a,b] := sum_c X[a,c] W_in[c,b]        logits[a,c] := sum_b F_L[a,b] W_out[b,c]        W flat-sharded over a

#include "models/gnn/plan/relation_plan.hpp"
#include "models/parameters/boxed.hpp"
#include "pmm/aggregate/aggregate.hpp"
#include "pmm/edges/edge_block.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace orthant::models {

struct Convolution;

// Attention over neighbors, before a graph is known. With H heads of d columns each, the columns of U = F W are those
// of head 0, of head 1, ..:
//
//   GAT      U = [Z_0 | Z_1 | ..]                  a_h = [a_h of the row | a_h of the column], 2 d numbers
//            score of (i, j): leaky(<a_h row, Z_ih> + <a_h column, Z_jh>)          values: Z
//   GATv2    U = [R_0 | R_1 | .. | L_0 | L_1 | ..]           a_h of d numbers
//            score of (i, j): <a_h, leaky(L_ih + R_jh)>                            values: R
//
//   transformer   U = [V_0 | V_1 | .. | K_0 | K_1 | .. | Q_0 | Q_1 | .. | S]         a_h = [b_h of V | b_h of Q], 2 d numbers
//            score of (i, j): <Q_ih + b_h of Q, K_jh> / sqrt(d)                    values: V + b_h of V
//
// With features E_ij of the edges, their parameters are W_e of H d columns and, in GAT, a_h of the edge:
//
//   GAT      leaky(.. + <a_h edge, (E_ij W_e)_h>)          GATv2    <a_h, leaky(.. + (E_ij W_e)_h)>
//
//   Q_i = [sum_j alpha_ij0 values_j0 | ..], or their mean over the heads          alpha: softmax of the scores of row i
//
// The transformer adds S_i to Q_i. A bias of K would add the same number to all scores of a row. Sources: Velickovic et al. (arXiv
// 1710.10903), equations 3 to 6; Brody, Alon & Yahav (arXiv 2105.14491), equation 7; Shi et al. (arXiv 2009.03509), equations 3 and 4,
// as the TransformerConv of PyTorch Geometric.

enum class AttentionKind : std::uint8_t { gat, gatv2, transformer };

/// Attention settings of a network.
struct AttentionShape {
  AttentionKind kind = AttentionKind::gat;
  std::int64_t num_heads = 8;         // heads of hidden layers, side by side
  std::int64_t num_output_heads = 1;  // heads of the layer that makes the logits: their mean
  std::int64_t num_edge_features = 0; // that the scores read; not with dot products
};

/// Attention of one layer.
struct AttentionPlan {
  AttentionKind kind = AttentionKind::gat;
  std::int64_t num_heads = 1;
  std::int64_t head_width = 1;
  bool averages_heads = false;
  std::int64_t num_edge_features = 0;

  [[nodiscard]] bool is_dynamic() const { return kind == AttentionKind::gatv2; }
  [[nodiscard]] bool has_dots() const { return kind == AttentionKind::transformer; }
  [[nodiscard]] pmm::Heads heads() const { return {num_heads, head_width}; }
  /// Number of columns of Q.
  [[nodiscard]] std::int64_t num_outputs() const { return averages_heads ? head_width : heads().columns(); }
  /// Number of columns of U, and of W.
  [[nodiscard]] std::int64_t num_projected() const {
    return (has_dots() ? 3 : is_dynamic() ? 2 : 1) * heads().columns() + (has_dots() ? num_outputs() : 0);
  }
  /// Length of a_h, a row of the parameter "attention".
  [[nodiscard]] std::int64_t num_vector() const { return (is_dynamic() ? 1 : 2) * head_width; }
  /// The parameters of features of edges: W_e, and a'' of GAT; without rows if there are none.
  [[nodiscard]] pmm::Extents edge_weight() const {
    return {num_edge_features, num_edge_features > 0 ? heads().columns() : 0};
  }
  [[nodiscard]] pmm::Extents edge_vectors() const {
    return is_dynamic() || num_edge_features == 0 ? pmm::Extents{0, 0} : pmm::Extents{num_heads, head_width};
  }
};

/// Attention of a layer with `num_columns` output columns. The number of heads must divide them; otherwise throws Error.
[[nodiscard]] AttentionPlan attention_of(AttentionShape const& shape, std::int64_t num_columns,
                                         bool makes_logits);

/// How the matrices of vertices are distributed.
enum class Schedule : std::uint8_t { pmm3d, rows };

/// Accepts "pmm3d" or "rows". Throws UserError for other words.
[[nodiscard]] Schedule parse_schedule(std::string_view word);
[[nodiscard]] std::string_view name_of(Schedule schedule);

/// Which product comes first in every layer. automatic: the cheaper one, layer by layer.
enum class ProductOrder : std::uint8_t { automatic, aggregate_first, transform_first };

/// Accepts "auto", "aggregate" or "transform". Throws UserError for other words.
[[nodiscard]] ProductOrder parse_product_order(std::string_view word);

/// Number format of messages, and number format of activations, their gradients and the operands of products. native:
/// the scalar type of training.
struct NumberFormats {
  runtime::Wire wire = runtime::Wire::native;
  runtime::Wire operand = runtime::Wire::native;

  /// Format of a layer's output: logits are never rounded.
  [[nodiscard]] runtime::Wire of_output(bool are_logits) const {
    return are_logits ? runtime::Wire::native : operand;
  }
};

/// What the head reads of the hidden layers (gnn/layers/jump.hpp): the last one's result, or all of them, concatenated or element by
/// element their maximum or mean.
enum class JumpKind : std::uint8_t { none, cat, max, mean };

/// Accepts "none", "cat", "max" or "mean". Throws UserError for other words.
[[nodiscard]] JumpKind parse_jump(std::string_view word);
[[nodiscard]] std::string_view name_of(JumpKind kind);

/// Products of a layer: both, only F W, or only A^ F.
enum class LayerKind : std::uint8_t { convolution, dense, propagation };

struct NetworkShape {
  std::int64_t num_vertices = 0;
  std::vector<std::int64_t> widths;               // [layers + 1] layer 0's input, then the layers' outputs
  std::vector<LayerKind> kinds;                   // [layers]; empty: all are convolutions
  std::optional<std::int64_t> projected_features; // D if layer 0 reads X W_in
  std::optional<std::int64_t> head_classes;       // C if the logits are F_L W_out
  bool has_sparse_features = false; // the layer that reads X transforms first: A^ X would be dense
  bool features_need_gradient = false;
  bool has_self_weights = false;             // a second weight for the vertex itself (gnn_model.hpp)
  bool has_self_scales = false;              // a factor 1 + epsilon for the vertex itself
  bool has_perceptrons = false;              // a second linear layer after the activation; with a head
  bool has_teleport = false;                 // aggregating layers add H0, the input of the first of them
  std::optional<double> theta{};             // identity maps of convolutions; nullopt: none
  bool takes_maximum = false;                // over neighbors, in place of A^ F; aggregates first
  std::int64_t num_powers = 0;               // K of sum_k A^^k F W_k; schedule `rows`; 0: A^ F W
  std::shared_ptr<Convolution const> own{};  // a registered convolution, in place of A^ F; aggregates first
  std::optional<AttentionShape> attention{}; // weights of neighbors; schedule `rows`
  RelationShape relations{};                 // a weight for each relation; none: A^ F W
  bool has_residuals = false;      // around hidden layers whose output is as wide as their input, except X
  JumpKind jump = JumpKind::none;  // with a head
  bool projects_residuals = false; // also around the other hidden layers, by a weight of their own
  bool has_input_dropout = false;  // if false, A^ F0 is the same every epoch,
  bool drops_edges = false;        // unless edges of A^ are dropped
  Schedule schedule = Schedule::pmm3d;
  bool is_symmetric = false;  // pattern of A: the backward pass can aggregate as the forward pass
  pmm::AxisSet hidden_axes{}; // schedule `rows`: axes whose messages overlap products
};

/// Block of a layer that computes only a part of the vertices. Known after the block is read.
struct KeptBlock {
  pmm::CellSizes cells;
  pmm::NeededCountsOfAxes needed; // rows that are exchanged; empty: all
  std::int64_t num_nonzeros = 0, num_pairs = 0, num_self_pairs = 0, num_root_pairs = 0; // pairs: of relations
  pmm::RelationEdgeCounts
      relation_edges{};   // for attention within relations; at most, until the block is made
  bool is_shared = false; // this block is that of the layer before
};

/// Aggregation of a layer in the schedule `rows`.
struct OwnerRoles {
  pmm::Roles roles;
  pmm::Flow backward = pmm::Flow::transpose;
  pmm::AxisSet hidden_axes{};
  std::optional<KeptBlock> kept{}; // nullopt: all vertices, the vertices of a batch, or no block at all
};

/// C[r,c] := sum_k A[r,k] W[k,c]: an input projection, a head, the second layer of a perceptron, or the map of a residual.
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
  bool is_even = true;               // parity of A^
  bool is_residual = false;          // F is added to the result of a hidden layer
  bool has_self_weight = false;      // F W' is added to Q; W' lies as W does
  bool has_self_scale = false;       // (1 + epsilon) F is added to A^ F, or (1 + epsilon) U to A^ U
  bool drops_output = true;          // if false, relu(Q) has no dropout: a perceptron or a teleport follows
  bool is_activated = true;          // Q is normalized, activated and dropped out
  bool adds_bias = true;             // a propagation adds the bias of the dense layer before it
  bool makes_logits = false;         // Q is the matrix of logits
  std::optional<double> map_share{}; // beta: W stands for (1 - beta) I + beta W
  std::optional<std::size_t> teleport_site{}; // index into the sites of TeleportPlan: the placement of A^ F
  pmm::Placement adjacency;                   // A^
  pmm::Placement input;                       // F
  pmm::Placement middle;                      // H or U
  pmm::Placement weight;                      // W
  pmm::Placement output;                      // Q
  std::optional<OwnerRoles> owners;           // schedule `rows`
  Boxed<LinearPlan> second;                   // second layer of a perceptron, after the activation
  Boxed<LinearPlan> residual_map;             // F W_r, which a residual adds in place of F
  bool takes_maximum = false;                 // in place of A^ F; aggregates first
  std::int64_t least_weighted_width = 0; // per rank, whose aggregation keeps weights of non-zeros; 0: never
  std::optional<AttentionPlan> attention{}; // weights the entries of A^, a pattern; transforms first
  std::int64_t num_powers = 0; // U = [F W_0 | .. | F W_K] and Q = sum_k A^^k U_k; transforms first
  std::shared_ptr<Convolution const> own{}; // a registered convolution, in place of A^ F; aggregates first
  Boxed<RelationPlan> relations;            // sum_r A_r F W_r in place of A^ F W

  /// Number of matrices that lie side by side in W.
  [[nodiscard]] std::int64_t num_weights() const {
    return attention ? attention->num_projected() / attention->heads().columns() : 1 + num_powers;
  }

  /// Whether the operand of A^, or the product with it, is kept for the backward pass.
  [[nodiscard]] bool keeps_middle() const {
    return keeps_aggregate() || (attention && attention->kind == AttentionKind::gat);
  }

  /// Whether the layer reads single edges, by rows and by columns, instead of computing a product A^ F.
  [[nodiscard]] bool reads_edges() const { return takes_maximum || attention.has_value(); }
  [[nodiscard]] auto num_edge_features() const { return attention ? attention->num_edge_features : 0; }
  /// Whether the layer has the product A^ F, and the product F W.
  [[nodiscard]] bool aggregates() const { return kind != LayerKind::dense; }
  [[nodiscard]] bool transforms() const { return kind != LayerKind::propagation; }
  /// Whether H is kept in an array besides Q.
  [[nodiscard]] bool keeps_aggregate() const {
    return kind == LayerKind::convolution && aggregates_first && !relations;
  }
  /// Whether the layer computes a product A^ F, as the products of network_products.hpp or an aggregation.
  [[nodiscard]] bool multiplies_adjacency() const { return aggregates() && !reads_edges() && !relations; }
  /// Whether rows of the vertex itself are moved to where the aggregate lies.
  [[nodiscard]] bool reads_itself() const { return has_self_weight || has_self_scale; }
  /// Whether any term of the layer reads rows of the vertex itself, including scores of attention.
  [[nodiscard]] bool brings_itself() const {
    return reads_itself() || attention || (relations && relations->attention);
  }
  /// Whether a row of the output depends on the same row of the input besides A^.
  [[nodiscard]] bool needs_own_rows() const { return is_residual || brings_itself() || teleport_site; }
  /// The matrix that the next layer reads.
  [[nodiscard]] pmm::Placement const& result() const { return second ? second->output : output; }
  /// The matrix that a residual adds to the result, before it is moved there: F or F W_r.
  [[nodiscard]] pmm::Placement const& residual_source() const {
    return residual_map ? residual_map->output : input;
  }
  /// Whether products with A^ keep weights of non-zeros, with `width` columns on this rank (pmm/spmm/local_spmm.hpp).
  [[nodiscard]] bool keeps_weights(std::int64_t width) const {
    return least_weighted_width > 0 && width >= least_weighted_width;
  }

  /// The operand of A^, and the product with it. The self term moves rows from the first placement to the second.
  [[nodiscard]] pmm::Placement const& aggregated() const { return aggregates_first ? input : middle; }
  [[nodiscard]] pmm::Placement const& aggregate() const {
    return keeps_aggregate() || relations ? middle : output;
  }
  /// Number of columns of the operand of A^.
  [[nodiscard]] std::int64_t aggregated_width() const {
    return (aggregates_first ? input : output).extents.columns;
  }
};

/// H0, which layers that aggregate add to their result (gnn/layers/teleport.hpp).
struct TeleportPlan {
  std::size_t first_layer = 0;       // the first layer that adds H0; H0 is its input
  bool drops_start = false;          // whether that layer reads dropout(H0)
  std::vector<pmm::Placement> sites; // distinct placements at which H0 is added
};

/// Features that are trained: a parameter of the whole graph.
struct TrainedFeatures {
  pmm::Placement shards;       // flat-sharded over the third axis
  bool picks_rows = false;     // a batch: the network reads a copy of some rows
  bool has_fixed_rows = false; // some rows keep their values: only vertices without features are trained
};

/// Jumping knowledge. The last layer's result is read by the head itself.
struct JumpPlan {
  JumpKind kind = JumpKind::cat;
  std::vector<std::size_t> layers; // hidden layers before the last one
  std::vector<LinearPlan> maps;    // cat: F_l W_l, for each of them

  /// Index of layer l in `layers`; nullopt if the head does not read it.
  [[nodiscard]] std::optional<std::size_t> number_of(std::size_t l) const;
};

struct NetworkPlan {
  std::optional<LinearPlan> projection;
  std::vector<NetworkLayerPlan> layers; // at least one
  std::optional<LinearPlan> head;
  std::optional<TeleportPlan> teleport;
  Boxed<TrainedFeatures> trained_features;
  Boxed<JumpPlan> jump;
  bool drops_edges = false; // A^ differs from step to step

  /// Placement of the features as the network reads them.
  [[nodiscard]] pmm::Placement const& features() const {
    return projection ? projection->input : layers.front().input;
  }
  [[nodiscard]] pmm::Placement& features() { return projection ? projection->input : layers.front().input; }
  /// Placement of the features of the whole graph in memory.
  [[nodiscard]] pmm::Placement const& stored_features() const {
    return trained_features ? trained_features->shards : features();
  }
  [[nodiscard]] pmm::Placement const& logits() const { return head ? head->output : layers.back().output; }

  /// Placements from and to which a jump moves the result of layer jump->layers[k], or its product with a weight.
  [[nodiscard]] pmm::Placement const& jump_source(std::size_t k) const {
    return jump->maps.empty() ? layers[jump->layers[k]].result() : jump->maps[k].output;
  }
  [[nodiscard]] pmm::Placement const& jump_target() const {
    return jump->kind == JumpKind::cat ? head->output : head->input;
  }
};

/// Whether the layer's input and output have the same rows with the same placement, so that rows of the vertex itself do not move. In the
/// schedule `rows` this holds unless the output keeps fewer rows than the input. If rows are pruned, call it only for layers with
/// needs_own_rows(): in other layers, equal numbers of rows may be different rows.
[[nodiscard]] inline bool keeps_rows(NetworkLayerPlan const& layer) {
  return layer.owners && layer.input.extents.rows == layer.output.extents.rows;
}

/// Whether a residual adds F, or F W_r, without moving it.
[[nodiscard]] inline bool keeps_residual(NetworkLayerPlan const& layer) {
  return keeps_rows(layer) || layer.residual_source() == layer.result();
}

/// Whether a residual adds dF to the gradient of the result in place, because F and the result have the same placement.
[[nodiscard]] inline bool has_residual_in_place(NetworkLayerPlan const& layer) {
  return layer.is_residual && keeps_rows(layer) && !layer.second && !layer.residual_map;
}

/// Whether rows of the vertex itself need an array of their own for the backward pass, because they were moved or because F is overwritten.
[[nodiscard]] inline bool keeps_brought(NetworkLayerPlan const& layer) {
  return !keeps_rows(layer) || !layer.aggregates_first;
}

/// Placement of H0.
[[nodiscard]] inline pmm::Placement const& teleport_start(NetworkPlan const& plan) {
  return plan.layers[plan.teleport.value().first_layer].input;
}

/// Whether layer l reads dropout(H0).
[[nodiscard]] inline bool drops_start(NetworkPlan const& plan, std::size_t l) {
  return plan.teleport && plan.teleport->first_layer == l && plan.teleport->drops_start;
}

/// Whether layer l's output is normalized, activated and dropped out. All such layers come before all others.
[[nodiscard]] bool is_activated(NetworkPlan const& plan, std::size_t l);

/// Whether layer l's input needs a gradient. Features need one only if they are trained.
[[nodiscard]] bool needs_input_gradient(NetworkPlan const& plan, std::size_t l);

/// Makes the features of a whole graph a parameter. If layer 0 reads them in products only, it reads the shards, which products gather;
/// otherwise it reads a copy of all rows (gnn/operands/trained_features.hpp). In the schedule `rows` a rank's shard is its rows.
void train_features(NetworkPlan& plan);

/// Whether each rank reads trained features where it stores them.
[[nodiscard]] bool reads_shards(pmm::GridShape const& shape, NetworkPlan const& plan);

/// Whether H = A^ F0 of dense features can be kept from pass to pass if nothing is dropped out.
[[nodiscard]] bool keeps_first_aggregate(NetworkPlan const& plan);

/// Whether layer 0 reads the features in every pass even if H is kept: for rows of the vertex itself, or for a residual.
[[nodiscard]] bool keeps_features(NetworkPlan const& plan);

/// Finds the placements at which the plan's layers add H0.
void place_sites(NetworkPlan& plan);

/// The same plan for a different number of vertices. The placement of A^ changes; those of weights do not.
[[nodiscard]] NetworkPlan with_num_vertices(NetworkPlan plan, std::int64_t num_vertices);

/// The same plan for a batch that is divided evenly. Its backward pass multiplies by the transpose. `plan`: of the whole graph.
[[nodiscard]] NetworkPlan plan_of_batch(NetworkPlan const& plan, std::int64_t num_vertices);

/// Plan of a network whose layer 0 has the roles (a, b, c) = (x, y, z). The cheaper order gathers fewer columns: aggregating
/// first gathers the layer's input width in both directions, transforming first its output width. Layer 0 needs no gradient of
/// features that are not trained, and no product if A^ F0 is kept. In the schedule `rows` the narrower side is aggregated.
[[nodiscard]] NetworkPlan plan_network(NetworkShape const& shape, ProductOrder order);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The graph network models: what a layer computes besides A^ F W, and which operator A^ is. Notation: w_ij is the weight of an
// edge (1 without weights), N(i) the neighbors of i, and A has no self loops unless stated.
//
//   gcn        Q = A^ F W                              A^ is the store's operator, or the one of --normalize
//   sage mean  Q = A^ F W + F W'                       A^ = D^-1 A: the mean over the neighbors, 0 without neighbors
//   sage sum   Q = A^ F W + F W'                       A^ = A
//   sage max   Q = P W + F W'                          P_ic = the maximum of F_jc over the neighbors j, 0 without neighbors
//   graphconv  as sage, by default sum
//   tag        Q = sum_k A^^k F W_k, k = 0 .. K         A^ = D^-1/2 A D^-1/2
//   gin        Q = (A^ F + (1 + epsilon) F) W          A^ = A; epsilon is trained. Q is the first layer of a perceptron:
//              F' = relu(Q + b) W'' + b''. In the last layer W'' is the head.
//   gat        Q = alpha F W, heads side by side       A^ = A with self loops; alpha_ij is the softmax over j of a
//   gatv2                                              trained score of F_i and F_j (network_plan.hpp)
//   rgcn       Q = sum_r A^_r F W_r + F W'              A^_r = D_r^-1 A_r, the mean over the neighbors of relation r
//   rgat       Q = sum_r alpha_r F W_r + b_r            alpha_rij is the softmax over the edges j of relation r and i
//   transformer Q = alpha F W_v + F W_s                 A^ = A; alpha_ij is the softmax over j of <F_i W_q, F_j W_k> / sqrt(d)
//
// A program can register convolutions of its own, which are models as well (Convolution).
//
// Models that propagate. A^ is the operator of gcn, alpha the teleport probability, f the activation.
//
//   sgc        H a perceptron of X        Z = A^^K H W + b
//   appnp      H0 a perceptron of X       Z_0 = H0     Z_{k+1} = (1 - alpha) A^ Z_k + alpha H0     Z = Z_K
//              logits = Z, or Z W_out + b_out with a head
//   gcnii      H0 = f(X W_0 + b_0)        F_0 = H0     F_l = f(P_l ((1 - beta_l) I + beta_l W_l) + b_l), l = 1 .. L
//              P_l = (1 - alpha) A^ F_{l-1} + alpha H0     beta_l = log(theta / l + 1)     logits = F_L W_out + b_out
//
// Sources: Kipf & Welling (arXiv 1609.02907); Hamilton, Ying & Leskovec (arXiv 1706.02216), the form without sampling, where the
// weight of the concatenation [F | A^ F] is stored as two matrices; Xu, Hu, Leskovec & Jegelka (arXiv 1810.00826); Wu et al. (arXiv
// 1902.07153), equation 8; Gasteiger, Bojchevski & Günnemann (arXiv 1810.05997), equation 4; Chen, Wei, Huang, Ding & Li (arXiv
// 2007.02133), equation 5; Velickovic et al. (arXiv 1710.10903); Brody, Alon & Yahav (arXiv 2105.14491); Morris et al. (arXiv
// 1810.02244), equation 5; Schlichtkrull et al. (arXiv 1703.06103), equation 2; Du, Zhang, Wu, Moura & Kar (arXiv 1710.10370), equation 3; Shi et al. (arXiv 2009.03509).

#include "graph/store/store_format.hpp"
#include "models/gnn/plan/network_plan.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {

// Convolutions that a program defines (docs/extend/convolution.md). With an aggregation g in place of A^ F a layer is
//
//   Q = g(F) W + b          or, with a weight for the vertex itself,          Q = g(F) W + F W' + b
//
// A registered convolution can be used like a built-in model: all options of a training, both schedules, mini-batches and weights files
// apply to it. g is an Aggregation (gnn/aggregation/own_aggregation.hpp), which usually computes A^ of its own operand.

struct NetworkLayerPlan;
template<class T>
class Aggregation;
template<class T>
struct OwnAggregationParts;

/// Adds the operations of g in one layer to a list, except those of A^.
using ListOwnOperations = std::function<void(pmm::StepPlan&, NetworkLayerPlan const&)>;
template<class T>
using MakeOwnAggregation = std::function<std::unique_ptr<Aggregation<T>>(OwnAggregationParts<T>)>;

/// Properties of a convolution that Orthant needs. register_convolution<Mine>() fills in the last two members.
struct Convolution {
  std::string name;                                     // of --model
  std::string summary;                                  // for the help of --model
  std::optional<graph::GraphOperator> graph_operator{}; // nullopt: --normalize and --self-loops choose it
  bool has_self_weights = false;                        // W'
  std::int64_t num_kept_inputs = 0;                     // matrices per layer with the placement of F
  std::int64_t num_kept_results = 0;                    // matrices per layer with the placement of g(F)
  /// Without these two, the lists of `plan` have the operations of A^ alone.
  ListOwnOperations list_forward{}, list_backward{};
  MakeOwnAggregation<float> make_float{};
  MakeOwnAggregation<double> make_double{};

  /// Whether orthant plan can list all operations of a layer.
  [[nodiscard]] bool is_listed() const { return list_forward && list_backward; }
};

/// Registers a convolution in this process. Call it before the command line is read. All ranks must register the same convolutions in the
/// same order. Throws Error if the name is taken. Not safe to call from two threads.
void register_convolution(Convolution convolution);

/// In the order in which they were registered.
[[nodiscard]] std::vector<std::shared_ptr<Convolution const>> const& registered_convolutions();

enum class Model : std::uint8_t {
  gcn,
  sage,
  graphconv,
  tag,
  gin,
  sgc,
  appnp,
  gcnii,
  gat,
  gatv2,
  transformer,
  rgcn,
  rsage,
  rgat
};
/// The number of models above. Registered convolutions have the values after them.
inline constexpr auto num_built_in_models = static_cast<std::size_t>(Model::rgat) + 1;

/// How GraphSAGE and GraphConv combine the features of neighbors.
enum class Aggregator : std::uint8_t { mean, sum, max };

/// The names of all models, including registered convolutions.
[[nodiscard]] std::vector<std::string> model_names();
/// Accept the words of model_names(), and "mean", "sum", "max". Throw UserError for other words.
[[nodiscard]] Model parse_model(std::string_view word);
[[nodiscard]] Aggregator parse_aggregator(std::string_view word);
/// The default aggregator of a model.
[[nodiscard]] Aggregator usual_aggregator(Model model);
[[nodiscard]] std::string_view name_of(Model model);
[[nodiscard]] std::string_view name_of(Aggregator aggregator);

struct ModelTraits {
  bool has_self_weights = false;   // W' of each layer
  bool has_self_scales = false;    // epsilon of each layer
  bool has_perceptrons = false;    // W'' of each layer; without a jump it is the head in the last layer
  bool has_propagations = false;   // K products by A^ without weights, after dense layers
  bool has_teleport = false;       // alpha H0
  bool takes_maximum = false;      // over neighbors, in place of A^ F
  bool has_powers = false;         // of A^, up to K, each with a weight of its own; schedule `rows`
  bool has_relations = false;      // a weight for each relation of the graph
  bool has_relation_roots = false; // and a W' and a bias for each; else one, or one for each type of vertices
  bool has_relation_attention = false; // over the neighbors of each relation; a head is last; schedule `rows`
  bool has_identity_maps = false;      // GCNII: (1 - beta) I + beta W in place of W
  std::optional<graph::GraphOperator> graph_operator{}; // nullopt: the operator of the store or of the user
  std::optional<AttentionKind> attention{};             // weights of neighbors; schedule `rows`
  std::shared_ptr<Convolution const> own{};             // a registered convolution

  /// Whether the first layer is dense, that is, multiplies X by a weight only.
  [[nodiscard]] bool begins_dense() const { return has_propagations || has_identity_maps; }
  /// Whether the layers need whole rows, that is, the schedule `rows`.
  [[nodiscard]] bool needs_owners() const { return attention || has_powers || has_relation_attention; }
  /// Whether the logits are always those of a head.
  [[nodiscard]] bool always_has_head() const {
    return has_perceptrons || has_identity_maps || has_relation_attention;
  }
  /// Whether --propagation-steps applies to the model.
  [[nodiscard]] bool has_steps() const { return has_propagations || has_powers; }
};
[[nodiscard]] ModelTraits traits_of(Model model, Aggregator aggregator);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Parameters of a transformer. Their names are those of GPT-2's state dict:
//
//   wte.weight, wpe.weight                                                    embedding and positions
//   h.0.ln_1.weight, h.0.attn.c_attn.weight, h.0.attn.c_proj.weight           norm and attention of block 0
//   h.0.ln_2.weight, h.0.mlp.c_fc.weight, h.0.mlp.c_proj.weight               norm and feed-forward part of block 0
//   ln_f.weight, lm_head.weight                                               final norm, and head unless it is tied
//   h.0.attn.q_norm.weight, h.0.attn.k_norm.weight                            norms of queries and keys, if there are any
//
// With biases, linear layers and norms also have a ".bias". Weights are [in x out]. Layers with experts have other names in place
// of mlp.c_fc and mlp.c_proj:
//
//   h.1.mlp.router.weight, h.1.mlp.router.bias                                the bias only with ExpertSettings::has_biases
//   h.1.mlp.experts.0.c_fc.weight, h.1.mlp.experts.0.c_proj.weight            of expert 0
//   h.1.mlp.shared.c_fc.weight, h.1.mlp.shared.c_proj.weight                  of shared experts
//
// Adapters of a weight (adapters.hpp) are h.0.attn.c_attn.lora_A and h.0.attn.c_attn.lora_B, at the end of the list. The parameter
// h.0.attn.c_attn.weight is then the frozen base.
//
// All ranks list all parameters; a rank's pieces of experts of other ranks along the expert axis, and of the blocks of other stages of a
// pipeline, are empty. Gradients that are replicated over z (of biases, norms, positions and routers) lie in one array, one after the other,
// each rounded up to four elements, so a pass sums them by one call. Gradients of weights are flat-sharded over z.

#include "models/lm/adapters/adapters.hpp"
#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/parameters/parameter.hpp"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

/// Place of an expert's piece in the array of all experts of a rank for one product.
struct ExpertPiece {
  std::string array;       // name of the array
  std::int64_t begin = 0;  // of the expert's piece in this rank's piece of the array
  std::int64_t length = 0; // of this rank's piece of the array
  bool is_first = false;   // first expert of the layer; lists count the array only for it
};

/// A factor of an adapter. Its gradient is stored in the array of the axis over which the factor is split.
struct AdapterFactor {
  std::size_t weight = 0; // index of the weight
  AdaptedColumns columns; // of the weight
  bool is_left = true;    // A, else B
  bool is_over_x = false; // split over x, else over y
  std::int64_t place = 0; // in the array of gradients
};

/// A parameter before it is allocated: a matrix with this placement, or a vector along the matrix's columns.
struct PlannedTransformerParameter {
  std::string name;
  ParameterRole role = ParameterRole::weight;
  std::int64_t layer = 0;
  pmm::Placement placement;
  double deviation = 0;    // standard deviation of the normal distribution of the initial values
  std::int64_t place = -1; // start in the array of small gradients; -1: gradient not in this array
  std::optional<ExpertPiece> of_expert = std::nullopt;
  bool is_frozen = false;
  bool is_copy = false; // of the table that the first stage of a pipeline also has
  std::optional<AdapterFactor> factor = std::nullopt;
  bool is_prunable = false;  // a matrix of a block that is trained
  std::string gradient = {}; // the gradient's array if all blocks share it; empty: one of its own

  [[nodiscard]] bool is_vector() const { return models::is_vector(role); }
  [[nodiscard]] bool is_small() const { return place >= 0; }
};

/// Parameters of the rank at `coordinates`, in the order of TransformerParameters::list().
[[nodiscard]] std::vector<PlannedTransformerParameter>
parameters_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, TransformerPlan const& plan);
/// Length of the array of small gradients on this rank, with padding.
[[nodiscard]] std::int64_t num_small_gradients(pmm::GridShape const& shape,
                                               pmm::Coordinates const& coordinates,
                                               std::vector<PlannedTransformerParameter> const& parameters);
/// Number of elements of the parameter on this rank.
[[nodiscard]] std::int64_t length_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                     PlannedTransformerParameter const& parameter);
/// Axes over which factors of adapters are split; each has an array of gradients.
inline constexpr std::array axes_of_factors{pmm::Axis::y, pmm::Axis::x};
/// Lengths of the arrays of adapters' gradients on this rank: split over y, and over x.
[[nodiscard]] std::array<std::int64_t, 2>
lengths_of_factors(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                   std::vector<PlannedTransformerParameter> const& parameters);
/// Add the operations of merge_adapters() and project_adapters() to `step`.
void plan_merge_adapters(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_project_adapters(pmm::StepPlan& step, TransformerPlan const& plan);
/// The parameters that are not frozen, with and without statistics.
[[nodiscard]] std::vector<PlannedTransformerParameter>
moving_of(std::vector<PlannedTransformerParameter> parameters);
[[nodiscard]] std::vector<PlannedTransformerParameter>
trained_of(std::vector<PlannedTransformerParameter> parameters);
/// Number of elements of each parameter on this rank, with padding.
[[nodiscard]] std::vector<std::int64_t>
lengths_of(pmm::StepPlan const& step, std::vector<PlannedTransformerParameter> const& parameters);
/// Indices of the parameters, in the order in which a backward pass completes their gradients: weights from the last to the
/// first, so the embedding is the last weight; then small gradients, which are summed at the end of the pass; then experts.
[[nodiscard]] std::vector<std::size_t>
gradient_order_of(std::vector<PlannedTransformerParameter> const& parameters);
/// Adds the arrays of the parameters to `step`.
void plan_parameter_arrays(pmm::StepPlan& step, std::vector<PlannedTransformerParameter> const& parameters);

template<class T>
struct LinearParameters {
  pmm::DistMatrix<T> weight, weight_gradient;
  pmm::DistVector<T> bias, bias_gradient; // empty without biases
};
template<class T>
struct NormParameters {
  pmm::DistVector<T> scale, scale_gradient;
  pmm::DistVector<T> shift, shift_gradient; // of LayerNorm; empty without biases
};
template<class T>
struct QueryKeyParameters {
  NormParameters<T> queries, keys; // empty without norms of queries and keys
};
template<class T>
struct BlockParameters {
  NormParameters<T> attention_norm;
  QueryKeyParameters<T> query_key_norms;
  LinearParameters<T> qkv, projection;
  NormParameters<T> feed_forward_norm;
  LinearParameters<T> up, down; // of shared experts in a layer with experts
  ExpertParameters<T> experts;
};

template<class T>
class TransformerParameters {
 public:
  /// Draws the weights from a normal distribution of standard deviation 0.02, or 0.02 / sqrt(2 layers) for weights at the end
  /// of a branch (projection, down), by global row and column. Biases are 0 and scales are 1. `grid` must outlive this object.
  TransformerParameters(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::uint64_t seed);

  /// Gradients of vectors and of positions, in one array.
  [[nodiscard]] runtime::Vector<T> const& small_gradients() const { return small_gradients_; }
  /// Sums the small gradients over z by one all_reduce. Collective over z. Enqueues on exec.
  void sum_small_gradients(runtime::DefaultExec const& exec) const;

  /// Computes the adapted weights of a pass. Enqueues on exec.
  void merge_adapters(runtime::DefaultExec const& exec) const;
  /// Computes the gradients of the adapters from those of their weights. Collective over the group. Enqueues on exec.
  void project_adapters(runtime::DefaultExec const& exec) const;

  [[nodiscard]] LinearParameters<T> const& embedding() const { return embedding_; }
  /// Empty unless positions are learned.
  [[nodiscard]] LinearParameters<T> const& positions() const { return positions_; }
  [[nodiscard]] BlockParameters<T> const& block(std::size_t l) const { return blocks_[l]; }
  [[nodiscard]] NormParameters<T> const& final_norm() const { return final_norm_; }
  /// Empty if the head is tied to the embedding.
  [[nodiscard]] LinearParameters<T> const& head() const { return head_; }
  [[nodiscard]] std::vector<Parameter<T>>& list() { return list_; }
  [[nodiscard]] std::vector<std::size_t> const& gradient_order() const { return gradient_order_; }

 private:
  [[nodiscard]] Parameter<T> make(PlannedTransformerParameter const& planned, std::uint64_t seed);
  void make_adapters(std::vector<PlannedTransformerParameter> const& planned,
                     AdapterSettings const& settings);
  [[nodiscard]] runtime::Vector<T> small_gradient(std::int64_t place, std::int64_t count) const;

  /// Array of all experts of a rank for one product, and the array of its gradient.
  struct ExpertArrays {
    runtime::Vector<T> numbers, gradient;
  };

  pmm::ProcessGrid const& grid_;
  runtime::Vector<T> small_gradients_;
  std::array<runtime::Vector<T>, 2> factor_gradients_; // split over y, and over x
  std::vector<Adapter<T>> adapters_;
  std::map<std::string, ExpertArrays> expert_arrays_;
  std::map<std::string, pmm::DistMatrix<T>> shared_gradients_;
  LinearParameters<T> embedding_, positions_, head_;
  std::vector<BlockParameters<T>> blocks_;
  NormParameters<T> final_norm_;
  std::vector<Parameter<T>> list_;
  std::vector<std::size_t> gradient_order_;
};

extern template class TransformerParameters<float>;
extern template class TransformerParameters<double>;

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a transformer learns, by the names of GPT-2's state dict: "wte.weight", "wpe.weight", "h.0.ln_1.weight",
// "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "h.0.ln_2.weight", "h.0.mlp.c_fc.weight",
// "h.0.mlp.c_proj.weight", .., "ln_f.weight", "lm_head.weight"; with ".bias" beside them if there are biases.
// Weights are [in x out]. Layers with experts have "h.1.mlp.router.weight", "h.1.mlp.experts.0.c_fc.weight",
// "h.1.mlp.experts.0.c_proj.weight", .. in place of mlp.c_fc and mlp.c_proj, and for shared experts "h.1.mlp.shared.c_fc.weight" and
// "h.1.mlp.shared.c_proj.weight"; of experts of other ranks along the expert axis a rank
// has empty pieces.
//
// Gradients that are replicated over z (of biases, norms and positions) lie in one array, one after the other, each
// rounded up to four numbers: a pass sums them in one call. Those of weights are flat-sharded over z.

#include "models/lm/experts/expert_layer.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/parameters/parameter.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

/// Where the piece of an expert lies: in the array of all experts of a rank and one product.
struct ExpertPiece {
  std::string array;       // its name
  std::int64_t begin = 0;  // in this rank's piece of the array
  std::int64_t length = 0; // of that piece
  bool is_first = false;   // of the experts of the layer: lists count the array once
};

/// A parameter before it exists: a matrix of that placement, or a vector along the columns of one.
struct PlannedTransformerParameter {
  std::string name;
  ParameterRole role = ParameterRole::weight;
  std::int64_t layer = 0;
  pmm::Placement placement;
  double deviation = 0;    // of the normal distribution that it is drawn from
  std::int64_t place = -1; // of this rank's numbers in the array of small gradients; -1: has one of its own
  std::optional<ExpertPiece> of_expert = std::nullopt;

  [[nodiscard]] bool is_vector() const { return models::is_vector(role); }
  [[nodiscard]] bool is_small() const { return place >= 0; }
};

/// In the order of TransformerParameters::list().
[[nodiscard]] std::vector<PlannedTransformerParameter>
parameters_of(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, TransformerPlan const& plan);
/// Numbers of the array of small gradients on this rank, padding included.
[[nodiscard]] std::int64_t num_small_gradients(pmm::GridShape const& shape,
                                               pmm::Coordinates const& coordinates,
                                               std::vector<PlannedTransformerParameter> const& parameters);
/// This rank's numbers of each parameter, with padding.
[[nodiscard]] std::vector<std::int64_t>
lengths_of(pmm::StepPlan const& step, std::vector<PlannedTransformerParameter> const& parameters);
/// Their places, in the order in which a backward pass completes the gradients: weights from the last to the first, that
/// of the embedding so the last of them, and then the small ones, which are summed when the pass ends; and those of experts.
[[nodiscard]] std::vector<std::size_t>
gradient_order_of(std::vector<PlannedTransformerParameter> const& parameters);
/// Lists their arrays.
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
struct BlockParameters {
  NormParameters<T> attention_norm;
  LinearParameters<T> qkv, projection;
  NormParameters<T> feed_forward_norm;
  LinearParameters<T> up, down; // of shared experts if the layer has experts
  ExpertParameters<T> experts;
};

template<class T>
class TransformerParameters {
 public:
  /// Weights are drawn from a normal distribution of deviation 0.02, those that end a branch (projection, down) of
  /// 0.02 / sqrt(2 layers), by global row and column; biases are 0 and scales 1. `grid` must outlive them.
  TransformerParameters(pmm::ProcessGrid const& grid, TransformerPlan const& plan, std::uint64_t seed);

  /// small gradients := their sum over z. One all_reduce. Enqueues on exec.
  void sum_small_gradients(runtime::DefaultExec const& exec) const;

  [[nodiscard]] LinearParameters<T> const& embedding() const { return embedding_; }
  /// With learned positions.
  [[nodiscard]] LinearParameters<T> const& positions() const { return positions_; }
  [[nodiscard]] BlockParameters<T> const& block(std::size_t l) const { return blocks_[l]; }
  [[nodiscard]] NormParameters<T> const& final_norm() const { return final_norm_; }
  /// If it is not tied to the embedding.
  [[nodiscard]] LinearParameters<T> const& head() const { return head_; }
  [[nodiscard]] std::vector<Parameter<T>>& list() { return list_; }
  [[nodiscard]] std::vector<std::size_t> const& gradient_order() const { return gradient_order_; }

 private:
  [[nodiscard]] Parameter<T> make(PlannedTransformerParameter const& planned, std::uint64_t seed);
  [[nodiscard]] runtime::Vector<T> small_gradient(std::int64_t place, std::int64_t count) const;

  /// The arrays of all experts of a rank, and of their gradients.
  struct ExpertArrays {
    runtime::Vector<T> numbers, gradient;
  };

  pmm::ProcessGrid const& grid_;
  runtime::Vector<T> small_gradients_;
  std::map<std::string, ExpertArrays> expert_arrays_;
  LinearParameters<T> embedding_, positions_, head_;
  std::vector<BlockParameters<T>> blocks_;
  NormParameters<T> final_norm_;
  std::vector<Parameter<T>> list_;
  std::vector<std::size_t> gradient_order_;
};

extern template class TransformerParameters<float>;
extern template class TransformerParameters<double>;

} // namespace orthant::models

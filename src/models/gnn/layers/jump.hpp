#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Jumping knowledge: the head reads the results F_1 .. F_L of all hidden layers. R_l moves rows and columns from the placement of F_l, or
// of its product with a weight, to the placement that the head needs (self_term.hpp): a relayout in the schedule `pmm3d`, the identity in
// rows.
//
//   cat    logits = F_L W_out + b + sum_l R_l (F_l W_l), l < L: the product of the concatenation and a weight, a block of rows per layer
//   mean   logits = M W_out + b     M = (R_1 F_1 + .. + F_L) / L
//   max    logits = M W_out + b     M = the elementwise maximum of R_1 F_1 .. F_L; the first of equal numbers gets the gradient
//
//   cat    dV_l = R_l^T dlogits     dW_l = F_l^T dV_l     dF_l += dV_l W_l^T         mean, max     dF_l += R_l^T (the share of dM)
//
// Source: Xu, Li, Tian, Sonobe, Kawarabayashi & Jegelka (arXiv 1806.03536), section 4.

#include "models/gnn/aggregation/self_term.hpp"
#include "models/gnn/layers/network_layer.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/product.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace orthant::models {

template<class T>
struct JumpMemory {
  GrowingVector<T> joined{"orthant::models::jump"};            // M, or the sum of R_l (F_l W_l)
  GrowingVector<T> gradient{"orthant::models::jump_gradient"}; // dM or dlogits
  GrowingVector<T> moved{"orthant::models::jump_moved"};       // R_l V_l, and shares of dM
  GrowingVector<T> source{"orthant::models::jump_source"}; // V_l, and its gradient with the same placement
  GrowingVector<std::uint16_t> winners{"orthant::models::jump_winners"}; // max: index of the layer
};

/// Lists the memory, except the weights; the arrays of the moves; and the buffers of the products.
void plan_jump_arrays(pmm::StepPlan& step, NetworkPlan const& plan);
void plan_jump_path_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits);
void plan_jump_buffers(NetworkScratchPlan& scratch, pmm::StepPlan const& step, NetworkPlan const& plan);

/// T: the scalar type of training; plan_network() rejects 16-bit activations.
template<class T>
class Jump {
 public:
  /// For one graph or batch. The memory is borrowed and must outlive this object. `paths`: [layers of the jump]. Not collective.
  Jump(pmm::ProcessGrid const& grid, NetworkPlan const& plan, std::vector<ResidualPath<T>> paths,
       NetworkParameters<T> const& parameters, NetworkScratch<T>& scratch, JumpMemory<T>& memory);

  /// Adds the result of layer l to the head's input; no-op for the last layer, which head_input() takes. Collective over the group.
  /// Enqueues on exec.
  void take(runtime::DefaultExec const& exec, std::size_t l, pmm::DistMatrix<T> const& result);
  /// The input of the head, from the result of the last layer. Call it after take() of all layers.
  pmm::DistMatrix<T> const& head_input(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& last);
  /// The head's input in the backward pass, without recomputing it.
  [[nodiscard]] pmm::DistMatrix<T> const& head_input(pmm::DistMatrix<T> const& last) const {
    return concatenates() ? last : joined_;
  }
  /// Adds the other layers' products to the logits of the last one.
  void finish_logits(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& logits) const;

  /// Where the head's gradient by its input is written. `last`: the gradient of the last layer's result.
  [[nodiscard]] pmm::DistMatrix<T> const& head_input_gradient(pmm::DistMatrix<T> const& last) const {
    return concatenates() ? last : gradient_;
  }
  /// After the head's backward pass. `last` := the gradient of the last layer's result. `logits_gradient` is kept until the next pass.
  void start_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& logits_gradient,
                      pmm::DistMatrix<T> const& last);
  /// Adds the jump's part to the gradient of layer l's result. Collective over the group.
  void add_gradient(runtime::DefaultExec const& exec, std::size_t l, pmm::DistMatrix<T> const& result,
                    pmm::DistMatrix<T> const& gradient);

 private:
  struct Map {
    pmm::DistMatrix<T> weight, weight_gradient;
    pmm::Product<T> product;
    pmm::Product<T> weight_back;
    pmm::Product<T> input_back;
  };
  struct Source {
    ResidualPath<T> path;
    std::optional<Map> map;
    pmm::DistMatrix<T> source; // V_l or F_l with its own placement; also its gradient
  };

  [[nodiscard]] bool concatenates() const { return plan_.kind == JumpKind::cat; }
  [[nodiscard]] std::vector<std::size_t> const& layers() const { return plan_.layers; }
  void join(runtime::DefaultExec const& exec, std::size_t number, pmm::DistMatrix<T> const& numbers) const;

  JumpPlan plan_;
  std::vector<Source> sources_;                  // [layers()]
  pmm::DistMatrix<T> joined_, gradient_, moved_; // with the placement of the head's input
  runtime::Vector<std::uint16_t> winners_;
};

extern template class Jump<float>;
extern template class Jump<double>;

} // namespace orthant::models

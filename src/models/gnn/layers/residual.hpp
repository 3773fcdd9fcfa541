#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Residual around a hidden layer: its result is D + R F, or D + R (F W_r) if a map W_r is trained, where F is the layer's input and D what
// the layer computes from it. R moves rows from the placement of F to that of D (self_term.hpp): a relayout in the schedule `pmm3d`, the
// identity in rows, or a selection of the kept rows.
//
//   V = F W_r     F' = D + R V     dV = R^T dF'     dW_r = F^T dV     dF += dV W_r^T
//
// Without a map, V is F, and dV is added to dF. If F and D have the same placement and there is no map, nothing is moved: F is added from
// its own memory, and dF is added to dF' in the memory of dF' (has_residual_in_place()).
//
// Source: He et al. (arXiv 1512.03385), equations 1 and 2.

#include "models/gnn/aggregation/self_term.hpp"
#include "models/gnn/layers/network_layer.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/product.hpp"

#include <memory>

namespace orthant::models {

/// Memory of one layer's residual. Absent parts take no memory.
template<class T>
struct ResidualMemory {
  GrowingVector<T> output{"orthant::models::activated"};      // F'
  GrowingVector<T> weight{"orthant::models::operand_weight"}; // if the operand is rounded
};

/// Adds the scratch of a layer's residual to `scratch`, and lists its memory.
void plan_residual_scratch(NetworkScratchPlan& scratch, pmm::StepPlan const& step,
                           NetworkLayerPlan const& layer, NumberFormats const& formats);
void plan_residual_memory(pmm::StepPlan& step, NetworkLayerPlan const& layer, NumberFormats const& formats);

template<class T>
class Residual {
 public:
  using Sum = runtime::SumOf<T>;

  /// The residual of a layer on one graph or batch, in borrowed memory, which must outlive it. `map`: parameters of the map; null: none.
  /// `scratch` must have its full size. Not collective.
  Residual(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, ResidualPath<Sum> path,
           NetworkLayerParameters<Sum> const* map, NetworkLayerOptions const& options,
           NetworkScratch<T>& scratch, ResidualMemory<T>& memory);

  /// Computes addend() from F, before the layer's products. Collective over the group. Enqueues on exec.
  template<class Features>
  void start(runtime::DefaultExec const& exec, Features const& features);
  /// R V. Valid until output() is written.
  [[nodiscard]] pmm::DistMatrix<T> const& addend() const { return addend_; }
  /// The place of F'.
  [[nodiscard]] pmm::DistMatrix<T> const& output() const { return output_; }
  /// F' := D + R V
  void finish(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& d) const {
    add(exec, addend_, d, output_);
  }

  /// Whether dF is added to dF' in gradient(), which the layer above writes; the layer works in other memory.
  [[nodiscard]] bool is_in_place() const { return is_in_place_; }
  [[nodiscard]] pmm::DistMatrix<T> const& gradient() const { return gradient_; }
  /// Keeps dV before the layer changes dF'; no-op if is_in_place(). Collective over the group.
  void start_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) const;
  /// Computes dW_r, and adds the residual's part of dF to `input_gradient`, which the layer has written. Returns the sum, in the memory in
  /// which the layer below reads it. Collective over the group.
  template<class Features>
  pmm::DistMatrix<T> const& finish_backward(runtime::DefaultExec const& exec, Features const& features,
                                            pmm::DistMatrix<T> const& input_gradient);

 private:
  struct Map {
    OperandWeight<T> weight;
    pmm::DistMatrix<Sum> weight_gradient;
    pmm::Product<T> product;
    pmm::Product<T, Sum> weight_back;
    pmm::Product<T> input_back;
    bool needs_input_gradient;
  };

  ResidualPath<Sum> path_;
  bool is_in_place_ = false;
  std::unique_ptr<Map> map_;    // null: none
  pmm::DistMatrix<T> mapped_;   // V, if it is moved
  pmm::DistMatrix<T> addend_;   // R V
  pmm::DistMatrix<T> output_;   // F'
  pmm::DistMatrix<T> gradient_; // dV; dF' if it has the placement of dF
};

extern template class Residual<float>;
extern template class Residual<double>;
extern template class Residual<runtime::Bf16Number>;
extern template class Residual<runtime::Fp16Number>;

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The product with all relations of a layer, forward and backward, in either schedule (gnn/plan/relation_step.hpp has the equations).

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/operands/relation_operands.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/arrays/allocation.hpp"

#include <array>
#include <memory>
#include <optional>

namespace orthant::models {

/// An empty array for each label.
template<class T>
[[nodiscard]] ByRelationPart<runtime::GrowingVector<T>> grown(ByRelationPart<char const*> const& labels) {
  using Memory = runtime::GrowingVector<T>;
  return {Memory(labels[0]), Memory(labels[1]), Memory(labels[2]),
          Memory(labels[3]), Memory(labels[4]), Memory(labels[5])};
}

/// Memory that all layers share (RelationScratchPlan).
template<class T>
struct RelationScratch {
  runtime::GrowingVector<T> input{"orthant::models::relation_input"};
  runtime::GrowingVector<T> products{"orthant::models::relation_products"};
  runtime::GrowingVector<T> means_gradient{"orthant::models::relation_means_gradient"};
  runtime::GrowingVector<T> result{"orthant::models::relation_result"};
  runtime::GrowingVector<T> parts{"orthant::models::relation_parts"};
  runtime::GrowingVector<T> in_part{"orthant::models::relation_in_part"};
  runtime::GrowingVector<T> gradient{"orthant::models::relation_gradient"};
  ByRelationPart<runtime::GrowingVector<T>> gradients = grown<T>(relation_gradient_labels);

  /// Grows the arrays to the planned sizes. Call it before layers are made with this object.
  void reserve(RelationScratchPlan const& plan);
};

/// Memory of one layer (RelationMemoryPlan).
template<class T>
struct RelationLayerMemory {
  runtime::GrowingVector<T> means{"orthant::models::relation_means"};
  ByRelationPart<runtime::GrowingVector<T>> gathered = grown<T>(relation_labels);
  runtime::GrowingVector<T> expanded{"orthant::models::relation_expanded"};
};

/// Scratch sizes of a network with these blocks.
template<class T>
[[nodiscard]] RelationScratchPlan relation_scratch_of(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                                                      std::vector<RelationOperand<T>> const& blocks,
                                                      runtime::Wire wire);

template<class T>
class RelationAggregation final : public Aggregation<T> {
 public:
  /// All arguments are borrowed and must outlive this object; `scratch` must have its full size. Not collective.
  RelationAggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer, runtime::Wire wire,
                      RelationOperand<T> operand, NetworkLayerParameters<T> const& parameters,
                      bool needs_input_gradient, std::shared_ptr<pmm::Workspace<T>> const& workspace,
                      RelationScratch<T>& scratch, RelationLayerMemory<T>& memory);

  /// to := sum_r A_r from W_r. Collective over the grid's group. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override;
  /// Writes the gradients of the weights and, if the layer needs it, that of the input, from that of the result. Both may have the same
  /// memory. Collective over the grid's group. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override;

 private:
  void gather_weights(runtime::DefaultExec const& exec);
  [[nodiscard]] pmm::RelationParameters<T> parameters_in_use() const;
  /// Sums the gradients of the parameters over the group if they are sharded.
  void sum_gradients(runtime::DefaultExec const& exec) const;

  pmm::ProcessGrid const& grid_;
  RelationSteps s_;
  std::shared_ptr<pmm::RelationBlock<T> const> block_;
  typename NetworkLayerParameters<T>::Relations parameters_;
  bool needs_input_gradient_;
  pmm::RelationMemory<T> memory_;
  runtime::Vector<T> input_, result_, parts_, in_part_; // scratch
  runtime::Vector<T> gradient_, expanded_memory_;
  // Memory from which the products read whole parameters, and to which they write the gradients.
  ByRelationPart<runtime::Vector<T>> whole_, whole_gradients_;
  runtime::Vector<T> expanded_;                       // W of the last forward pass
  std::optional<pmm::BlockRows<T>> inputs_, results_; // schedule `rows`
};

// Attention within each relation of a layer, forward and backward, in the schedule `rows` (gnn/plan/relation_step.hpp has the
// equations).

/// Arrays with these labels, which only grow.
template<class T, std::size_t count>
struct LabelledArrays {
  explicit LabelledArrays(std::array<char const*, count> const& labels)
      : arrays([&]<std::size_t... i>(std::index_sequence<i...>) {
          return std::array<runtime::GrowingVector<T>, count>{runtime::GrowingVector<T>(labels[i])...};
        }(std::make_index_sequence<count>())) {}
  std::array<runtime::GrowingVector<T>, count> arrays;

  void reserve(std::array<std::int64_t, count> const& lengths) {
    for (std::size_t i = 0; i < count; ++i)
      static_cast<void>(arrays[i].reserve(lengths[i]));
  }
  template<class Index>
  [[nodiscard]] runtime::Vector<T> operator[](Index i) {
    return arrays[static_cast<std::size_t>(i)].reserve(0);
  }
};

/// Memory that all layers share. Must have its full size (RelationAttentionScratchPlan) before layers are made with it.
template<class T>
struct RelationAttentionScratch : LabelledArrays<T, num_shared_arrays> {
  RelationAttentionScratch() : LabelledArrays<T, num_shared_arrays>(shared_array_labels) {}
};
/// Memory of one layer.
template<class T>
struct RelationAttentionMemory : LabelledArrays<T, num_layer_arrays> {
  RelationAttentionMemory() : LabelledArrays<T, num_layer_arrays>(layer_array_labels) {}
};

/// Scratch sizes of a network with these blocks.
template<class T>
[[nodiscard]] RelationAttentionScratchPlan
relation_attention_scratch_of(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                              std::vector<RelationOperand<T>> const& blocks, runtime::Wire wire);

/// `kept_rows`: rows of F that the result keeps; null: all. All arguments are borrowed and must outlive the aggregation. Its runs are
/// collective over the grid's group. backward() also writes the gradients of the layer's parameters; its arguments may have the same
/// memory.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_relation_attention(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer, runtime::Wire wire,
                        RelationOperand<T> operand, std::shared_ptr<pmm::RowSelection const> kept_rows,
                        NetworkLayerParameters<T> const& parameters, bool needs_input_gradient,
                        std::shared_ptr<pmm::Workspace<T>> const& workspace,
                        RelationAttentionScratch<T>& scratch, RelationAttentionMemory<T>& memory);

} // namespace orthant::models

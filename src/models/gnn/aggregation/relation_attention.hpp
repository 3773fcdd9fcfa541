#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Attention within each relation of a layer, forward and backward, in the schedule `rows` (gnn/plan/relation_step.hpp has the
// equations).

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/operands/relation_operands.hpp"
#include "models/gnn/plan/network_parameters.hpp"
#include "models/gnn/plan/relation_step.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/arrays/allocation.hpp"

#include <array>
#include <memory>

namespace orthant::models {

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

// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/relation_aggregation.hpp"

#include "pmm/aggregate/row_lists.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <utility>

namespace orthant::models {
namespace {

using pmm::as_matrix;
using pmm::Transpose;
using runtime::DefaultExec;
using runtime::part_of;
using runtime::Vector;

template<class T>
RelationAttentionSteps attention_steps_of(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer,
                                          RelationOperand<T> const& operand, runtime::Wire wire) {
  return {grid.shape(), grid.coordinates(), layer, operand.sizes, operand.edges->counts(), wire};
}

/// to := x + y, with the rows of y at those of `kept`; null: y has all rows. `to` may be x.
template<class T>
void add_input_gradients(DefaultExec const& exec, std::int64_t count, std::int64_t width, Vector<T> const& x,
                         Vector<T> const& y, pmm::RowSelection const* kept, Vector<T> const& to) {
  T const* const from_x = x.data();
  T const* const from_y = y.data();
  T* const sum = to.data();
  runtime::Offset const* const firsts = kept == nullptr ? nullptr : kept->offsets.data();
  Kokkos::parallel_for(
      "orthant::models::add_input_gradients", Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t k) {
        if (firsts == nullptr) {
          sum[k] = from_x[k] + from_y[k];
          return;
        }
        auto const row = k / width;
        auto const place = firsts[row]; // the selected rows ascend
        sum[k] = from_x[k] + (firsts[row + 1] > place ? from_y[place * width + k % width] : T{0});
      });
}

/// M [types x relations]: 1 for the type of the targets of each relation.
template<class T>
Vector<T> matrix_of_targets(RelationPlan const& relations) {
  auto const num_relations = relations.target_types.size();
  std::vector<T> matrix(static_cast<std::size_t>(relations.num_types) * num_relations);
  for (std::size_t r = 0; r < num_relations; ++r)
    matrix[static_cast<std::size_t>(relations.target_types[r]) * num_relations + r] = T{1};
  return pmm::to_device("orthant::models::relation_targets", matrix);
}

template<class T>
class RelationAttentionAggregation final : public Aggregation<T> {
 public:
  RelationAttentionAggregation(pmm::ProcessGrid const& grid, RelationAttentionSteps steps,
                               RelationOperand<T> const& operand,
                               std::shared_ptr<pmm::RowSelection const> kept_rows,
                               NetworkLayerParameters<T> const& parameters, bool needs_input_gradient,
                               std::shared_ptr<pmm::Workspace<T>> const& workspace,
                               RelationAttentionScratch<T>& scratch, RelationAttentionMemory<T>& memory)
      : grid_(grid),
        s_(std::move(steps)),
        parameters_(*parameters.relations),
        needs_input_gradient_(needs_input_gradient),
        sources_(grid, s_.sources.rows, workspace),
        targets_(grid, s_.targets.rows, workspace),
        result_(grid, s_.result, workspace),
        scratch_(scratch),
        kept_{memory[LayerArray::of_columns], memory[LayerArray::of_rows]},
        kept_rows_(std::move(kept_rows)),
        types_(operand.types),
        layer_(grid, s_.over_edges, operand.edges, s_.shape(), s_.sizes, kept_of(memory), shared_of(scratch),
               workspace) {
    reserve_relation_attention(*workspace, s_);
    if (s_.has_biases()) targets_of_relations_ = matrix_of_targets<T>(s_.relations);
  }

  void begin_pass(Dropout const& dropout) override { dropout_ = {dropout.probability, dropout.stream}; }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    inputs_.of_columns = bring(exec, s_.sources, sources_, from.storage(), kept_.of_columns);
    inputs_.of_rows = bring(exec, s_.targets, targets_, targets_of(exec, from.storage()), kept_.of_rows);
    auto const p = s_.result_steps.has_copy() ? scratch_[SharedArray::result] : to.storage();
    layer_.forward(exec, inputs_, values(), dropout_, p);
    result_.bring_back(exec, p, to.storage());
    add_biases(exec, to.storage());
  }

  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    sum_biases(exec, from.storage());
    auto const dp = result_.bring(exec, from.storage(), scratch_[SharedArray::result]);
    pmm::RelationAttentionInputs<T> df;
    if (needs_input_gradient_)
      df = {part_of(scratch_[SharedArray::of_columns], 0, s_.sources.num_whole()),
            part_of(scratch_[SharedArray::of_rows], 0, s_.targets.num_whole())};
    layer_.backward(exec, inputs_, values(), dropout_, dp, gradients(), df);
    if (!needs_input_gradient_) return;
    auto const of_columns = bring_back(exec, s_.sources, sources_, df.of_columns, to.storage());
    auto const of_rows = bring_back(exec, s_.targets, targets_, df.of_rows, scratch_[SharedArray::own_rows]);
    grid_.passes().add(pass_of_input_sum(s_, static_cast<std::int64_t>(sizeof(T))));
    add_input_gradients(exec, s_.num_own_inputs(), s_.shape().in, of_columns, of_rows, kept_rows_.get(),
                        to.storage());
  }

 private:
  static pmm::RelationAttentionMemory<T> kept_of(RelationAttentionMemory<T>& memory) {
    using enum LayerArray;
    return {memory[vectors],     memory[folded],      memory[projected],
            memory[target_ends], memory[source_ends], memory[coefficients]};
  }
  static pmm::RelationAttentionScratch<T> shared_of(RelationAttentionScratch<T>& scratch) {
    using enum SharedArray;
    return {scratch[vectors],     scratch[folded],          scratch[projected],
            scratch[target_ends], scratch[source_ends],     scratch[coefficients],
            scratch[picked],      scratch[picked_gradient], scratch[ends_by_relation]};
  }
  [[nodiscard]] pmm::RelationAttentionParameters<T> values() const {
    auto const of = [&](RelationPart part) { return parameters_[index_of(part)].value.storage(); };
    return {of(RelationPart::weight), of(RelationPart::target_weight), of(RelationPart::attention)};
  }
  [[nodiscard]] pmm::RelationAttentionParameters<T> gradients() const {
    auto const of = [&](RelationPart part) { return parameters_[index_of(part)].gradient.storage(); };
    return {of(RelationPart::weight), of(RelationPart::target_weight), of(RelationPart::attention)};
  }

  /// The rows of F that the result keeps.
  Vector<T> targets_of(DefaultExec const& exec, Vector<T> const& own) {
    if (!s_.selects_rows) return own;
    auto const selected = s_.targets.has_copy() ? scratch_[SharedArray::own_rows] : kept_.of_rows;
    pmm::select_rows(exec, grid_.passes(), *kept_rows_, own, s_.shape().in, selected);
    return selected;
  }
  /// The block's rows with all columns, in `memory` if they are a copy.
  Vector<T> bring(DefaultExec const& exec, RelationSide const& side, pmm::BlockRows<T> const& rows,
                  Vector<T> const& own, Vector<T> const& memory) {
    if (side.num_parts() == 1) return rows.bring(exec, own, memory);
    auto const part = rows.bring(exec, own, scratch_[SharedArray::part]);
    auto const parts = scratch_[SharedArray::parts];
    runtime::all_gatherv(exec, grid_.over(s_.over_parts), part_of(part, 0, side.num_in_part()),
                         part_of(parts, 0, side.num_whole()), side.part_counts, s_.wire);
    pmm::join_columns(exec, grid_.passes(), side.steps.num_block, side.steps.width,
                      static_cast<int>(side.num_parts()), parts, memory);
    return memory;
  }
  /// The sum of the gradients of the rows that this rank owns: in `own`, or `block` itself if it is that of a single block.
  Vector<T> bring_back(DefaultExec const& exec, RelationSide const& side, pmm::BlockRows<T> const& rows,
                       Vector<T> const& block, Vector<T> const& own) {
    if (!side.has_copy()) return block;
    if (side.num_parts() == 1) {
      rows.bring_back(exec, block, own);
      return own;
    }
    auto const part = side.steps.has_copy() ? scratch_[SharedArray::part] : own;
    auto const parts = scratch_[SharedArray::parts];
    pmm::split_columns(exec, grid_.passes(), side.steps.num_block, side.steps.width,
                       static_cast<int>(side.num_parts()), block, parts);
    runtime::reduce_scatterv(exec, grid_.over(s_.over_parts), part_of(parts, 0, side.num_whole()),
                             part_of(part, 0, side.num_in_part()), side.part_counts, runtime::Reduction::sum,
                             s_.wire);
    rows.bring_back(exec, part, own);
    return own;
  }

  // B := M b and Q += T B, with T [own rows x types] = 1 for the type of each row.
  void add_biases(DefaultExec const& exec, Vector<T> const& q) {
    if (!s_.has_biases()) return;
    auto const [types, relations, out] = bias_sizes();
    auto const& b = parameters_[index_of(RelationPart::biases)].value.storage();
    auto const of_types = as_matrix(scratch_[SharedArray::type_biases], types, out);
    pmm::local_gemm<T>(exec, 1, Transpose::no, as_matrix(targets_of_relations_, types, relations),
                       Transpose::no, as_matrix(b, relations, out), 0, of_types);
    if (s_.num_own() > 0)
      pmm::local_gemm<T>(exec, 1, Transpose::no, as_matrix(types_, s_.num_own(), types), Transpose::no,
                         of_types, 1, as_matrix(q, s_.num_own(), out));
    count_biases();
  }
  void sum_biases(DefaultExec const& exec, Vector<T> const& dq) {
    if (!s_.has_biases()) return;
    auto const [types, relations, out] = bias_sizes();
    auto const& db = parameters_[index_of(RelationPart::biases)].gradient.storage();
    auto const of_types = as_matrix(scratch_[SharedArray::type_biases], types, out);
    pmm::local_gemm<T>(exec, 1, Transpose::yes, as_matrix(types_, s_.num_own(), types), Transpose::no,
                       as_matrix(dq, s_.num_own(), out), 0, of_types);
    pmm::local_gemm<T>(exec, 1, Transpose::yes, as_matrix(targets_of_relations_, types, relations),
                       Transpose::no, of_types, 0, as_matrix(db, relations, out));
    count_biases();
  }
  struct BiasSizes {
    std::int64_t types, relations, out;
  };
  [[nodiscard]] BiasSizes bias_sizes() const {
    return {s_.relations.num_types, s_.shape().num_relations, s_.shape().heads.columns()};
  }
  void count_biases() const {
    auto const [types, relations, out] = bias_sizes();
    grid_.world().instruments().flops.dense += 2 * types * out * (relations + s_.num_own());
  }

  pmm::ProcessGrid const& grid_;
  RelationAttentionSteps s_;
  typename NetworkLayerParameters<T>::Relations parameters_;
  bool needs_input_gradient_;
  pmm::BlockRows<T> sources_, targets_, result_;
  RelationAttentionScratch<T>& scratch_;
  pmm::RelationAttentionInputs<T> kept_, inputs_; // memory of F on the block, and F of the last forward pass
  std::shared_ptr<pmm::RowSelection const> kept_rows_; // rows of F that the result keeps; null: all
  Vector<T> types_, targets_of_relations_;             // T and M
  pmm::RelationAttention<T> layer_;
  pmm::CoefficientDropout dropout_;
};

} // namespace

template<class T>
RelationAttentionScratchPlan
relation_attention_scratch_of(pmm::ProcessGrid const& grid, NetworkPlan const& plan,
                              std::vector<RelationOperand<T>> const& blocks, runtime::Wire wire) {
  RelationAttentionScratchPlan scratch;
  for (std::size_t l = 0; l < blocks.size(); ++l)
    if (blocks[l].edges)
      scratch.add(attention_steps_of(grid, plan.layers[l], blocks[l], wire), needs_input_gradient(plan, l));
  return scratch;
}

template<class T>
std::unique_ptr<Aggregation<T>>
make_relation_attention(pmm::ProcessGrid const& grid, NetworkLayerPlan const& layer, runtime::Wire wire,
                        RelationOperand<T> operand, std::shared_ptr<pmm::RowSelection const> kept_rows,
                        NetworkLayerParameters<T> const& parameters, bool needs_input_gradient,
                        std::shared_ptr<pmm::Workspace<T>> const& workspace,
                        RelationAttentionScratch<T>& scratch, RelationAttentionMemory<T>& memory) {
  auto steps = attention_steps_of(grid, layer, operand, wire);
  memory.reserve(layer_lengths_of(steps));
  return std::make_unique<RelationAttentionAggregation<T>>(grid, std::move(steps), operand,
                                                           std::move(kept_rows), parameters,
                                                           needs_input_gradient, workspace, scratch, memory);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template RelationAttentionScratchPlan relation_attention_scratch_of(                                       \
      pmm::ProcessGrid const&, NetworkPlan const&, std::vector<RelationOperand<T>> const&, runtime::Wire);   \
  template std::unique_ptr<Aggregation<T>> make_relation_attention(                                          \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, runtime::Wire, RelationOperand<T>,                   \
      std::shared_ptr<pmm::RowSelection const>, NetworkLayerParameters<T> const&, bool,                      \
      std::shared_ptr<pmm::Workspace<T>> const&, RelationAttentionScratch<T>&, RelationAttentionMemory<T>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

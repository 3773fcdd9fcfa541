// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/attention_aggregation.hpp"

#include "models/gnn/aggregation/attention_scores.hpp"
#include "pmm/edges/edge_products.hpp"
#include "runtime/arrays/views.hpp"

#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::part_of;
using runtime::Vector;

template<class T>
class AttentionAggregation final : public Aggregation<T> {
 public:
  AttentionAggregation(pmm::ProcessGrid const& grid, AttentionSteps const& steps, EdgeOperands const& edges,
                       Vector<T> features, Vector<T> kept, std::shared_ptr<pmm::Workspace<T>> workspace,
                       AttentionParts<T> parts, AttentionScratch<T>& scratch, EdgeAttentionMemory<T>& memory)
      : grid_(grid),
        s_(steps),
        edges_(edges),
        features_(std::move(features)),
        kept_(std::move(kept)),
        workspace_(std::move(workspace)),
        parts_(std::move(parts)),
        result_(grid, steps.result, workspace_, edges.moved_rows),
        values_(grid, steps.values, workspace_, edges.moved_columns),
        rows_(grid, steps.of_rows, workspace_, edges.moved_rows),
        columns_(grid, steps.of_columns, workspace_, edges.moved_columns),
        passes_(passes_of(steps, sizeof(T))) {
    reserve_attention(*workspace_, s_);
    auto const plan = memory_of(s_);
    kept_values_ = memory.values.reserve(plan.values);
    kept_rows_ = memory.of_rows.reserve(plan.of_rows);
    kept_columns_ = memory.of_columns.reserve(plan.of_columns);
    kept_ends_ = memory.ends.reserve(plan.ends);
    coefficients_ = memory.coefficients.reserve(plan.coefficients);
    sums_ = scratch.sums.reserve(0);
    result_memory_ = scratch.result.reserve(0);
    values_gradient_ = scratch.values.reserve(0);
    ends_gradient_ = scratch.ends.reserve(0);
    coefficients_gradient_ = scratch.coefficients.reserve(0);
  }

  void begin_pass(Dropout const& dropout) override { dropout_ = dropout; }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    auto const& u = from.storage();
    find_scores(exec, u);
    auto& passes = grid_.passes();
    fill_dropped(exec, pmm::lowest_score<T>);
    edge_softmax(exec, grid_.over(s_.softmax_axis), passes, edges_.block, s_.heads.count, coefficients_,
                 *workspace_);
    fill_dropped(exec, T{0});
    if (dropout_.probability > 0)
      drop_edges(exec, passes, edges_.block, s_.heads.count,
                 {edges_.row_ids, edges_.column_ids, s_.first_head, s_.plan.num_heads}, dropout_.probability,
                 dropout_.stream, coefficients_);

    // Q[n] := sum_a alpha V_a, for whole heads
    auto const& own = s_.plan.averages_heads ? sums_ : to.storage();
    auto const p = s_.result_steps.has_copy() ? result_memory_ : own;
    count_product();
    edge_spmm(exec, edges_.block, s_.heads, weights(), brought_values_, p);
    result_.bring_back(exec, p, own);
    if (s_.plan.averages_heads) {
      passes.add(passes_.average);
      average_heads(exec, s_.plan.heads(), s_.num_results, sums_, to.storage());
    }
    if (!s_.plan.has_dots()) return;
    passes.add(passes_.skip);
    add_skipped(exec, s_.plan, s_.num_own, u, to.storage());
  }

  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    auto& passes = grid_.passes();
    auto own = from.storage();
    if (s_.plan.averages_heads) {
      passes.add(passes_.spread);
      spread_heads(exec, s_.plan.heads(), s_.num_results, own, sums_);
      own = sums_;
    }
    auto const dp = result_.bring(exec, own, result_memory_);

    // dalpha := <dQ, V>, then the gradient of the scores
    count_product();
    edge_dots(exec, edges_.block, s_.heads, dp, brought_values_, coefficients_gradient_);
    edge_softmax_backward(exec, grid_.over(s_.softmax_axis), passes, edges_.block, s_.heads.count, weights(),
                          coefficients_gradient_, *workspace_);
    // dV := sum_c alpha^T dQ, and the terms from the scores
    auto const dv = s_.values_steps.has_copy() ? values_gradient_ : to.storage();
    count_product();
    edge_spmm_transposed(exec, edges_.block, s_.heads, weights(), dp, dv);
    if (s_.plan.is_dynamic())
      dynamic_backward(exec, dv, to.storage());
    else if (s_.plan.has_dots())
      dots_backward(exec, dv, from.storage(), to.storage());
    else
      static_backward(exec, dv, to.storage());
  }

 private:
  [[nodiscard]] pmm::EdgeWeights<T> weights() const {
    return {coefficients_, static_cast<T>(1 / (1 - dropout_.probability))};
  }
  [[nodiscard]] pmm::EdgeFeatureTerm<T> feature_term(DefaultExec const& exec) const {
    if (s_.counts.features > 0 && !s_.plan.is_dynamic()) grid_.passes().add(passes_.edge_factors);
    return edge_feature_term<T>(exec, s_, parts_.parameters, features_, *workspace_);
  }
  void find_edge_gradients(DefaultExec const& exec, pmm::EdgeFeatureTerm<T> const& term,
                           pmm::DynamicOperands<T> const& operands) const {
    if (s_.counts.features > 0) grid_.passes().add(passes_.edge_parameters);
    edge_parameter_gradients<T>(exec, s_, edges_.block, parts_.parameters, term, operands,
                                coefficients_gradient_, *workspace_);
  }
  [[nodiscard]] pmm::DynamicOperands<T> dynamic_operands(DefaultExec const& exec) const {
    auto const first = s_.first_head * s_.heads.width;
    return {brought_rows_, brought_values_,
            part_of(parts_.parameters.vectors.storage(), first, s_.heads.columns()), feature_term(exec)};
  }
  [[nodiscard]] RowSums<T> row_sums() const {
    return {s_.num_vector_rows(), s_.num_vector_columns(), AttentionSteps::rows_of_sum,
            workspace_->lend(pmm::Slot::sums, s_.num_sums() * s_.num_vector_columns())};
  }
  void count_product() const {
    grid_.world().instruments().flops.sparse += 2 * s_.counts.edges * s_.heads.columns();
  }

  void fill_dropped(DefaultExec const& exec, T fill) const {
    if (kept_.extent(0) > 0)
      pmm::fill_dropped(exec, grid_.passes(), edges_.block, s_.heads.count, kept_, fill, coefficients_);
  }

  /// Memory of the rows of `of_rows` that also exist in Q. In the forward pass it is the layer's own memory if the block reads the rows in
  /// place.
  [[nodiscard]] Vector<T> selected_rows() const {
    return part_of(ends_gradient_, s_.num_ends_gradient(), s_.num_selected());
  }
  [[nodiscard]] Vector<T> bring_rows(DefaultExec const& exec, Vector<T> const& own) const {
    if (!s_.selects_rows) return rows_.bring(exec, own, kept_rows_);
    auto const selected = s_.rows_steps.has_copy() ? selected_rows() : kept_rows_;
    select_rows(exec, grid_.passes(), *parts_.kept, own, s_.num_selected_columns(), selected);
    return rows_.bring(exec, selected, kept_rows_);
  }
  void bring_rows_back(DefaultExec const& exec, Vector<T> const& block, Vector<T> const& own) const {
    if (!s_.selects_rows) return rows_.bring_back(exec, block, own);
    rows_.bring_back(exec, block, selected_rows());
    spread_rows(exec, grid_.passes(), *parts_.kept, selected_rows(), s_.num_selected_columns(), own);
  }

  void find_scores(DefaultExec const& exec, Vector<T> const& u) {
    auto& passes = grid_.passes();
    auto const& block = edges_.block;
    if (s_.plan.is_dynamic()) {
      brought_rows_ = bring_rows(exec, u);
      brought_values_ = values_.bring(exec, u, kept_values_);
      return dynamic_scores(exec, passes, block, s_.heads, dynamic_operands(exec), coefficients_);
    }
    passes.add(passes_.ends);
    if (s_.plan.has_dots()) {
      shift_projected(exec, s_.plan, s_.num_own, parts_.parameters.vectors.storage(), u);
      brought_rows_ = rows_.bring(exec, u, kept_rows_);
      brought_columns_ = columns_.bring(exec, u, kept_columns_);
      brought_values_ = values_.bring(exec, u, kept_values_);
      count_product();
      return edge_dots(exec, block, s_.heads, brought_rows_, brought_columns_, coefficients_);
    }
    find_ends(exec, s_.plan.heads(), s_.num_own, u, parts_.parameters.vectors.storage(), kept_ends_);
    brought_rows_ = bring_rows(exec, part_of(kept_ends_, 0, s_.num_ends()));
    brought_columns_ = columns_.bring(exec, part_of(kept_ends_, s_.num_ends(), s_.num_ends()), kept_columns_);
    brought_values_ = values_.bring(exec, u, kept_values_);
    static_scores(exec, passes, block, s_.heads.count, brought_rows_, brought_columns_, coefficients_,
                  feature_term(exec));
  }

  void dynamic_backward(DefaultExec const& exec, Vector<T> const& dv, Vector<T> const& du) {
    auto& passes = grid_.passes();
    auto const count = s_.counts.rows * s_.heads.columns();
    auto const dl = part_of(ends_gradient_, 0, count);
    auto const terms = part_of(ends_gradient_, count, count);
    auto const operands = dynamic_operands(exec);
    dynamic_scores_backward(exec, passes, edges_.block, s_.heads, operands, coefficients_gradient_,
                            {dl, dv, terms});
    find_edge_gradients(exec, operands.features, operands);
    bring_rows_back(exec, dl, du); // before the values, which overwrite their columns
    values_.bring_back(exec, dv, du);
    // da_h := the sum of the terms of this rank's edges and heads
    passes.add(passes_.vectors);
    auto const& da = parts_.parameters.vectors_gradient.storage();
    Kokkos::deep_copy(exec, da, T{0});
    sum_terms(exec, row_sums(), terms, da.data() + s_.first_head * s_.heads.width);
  }

  void dots_backward(DefaultExec const& exec, Vector<T> const& dv, Vector<T> const& result_gradient,
                     Vector<T> const& du) {
    auto& passes = grid_.passes();
    auto const count = s_.counts.rows * s_.heads.columns();
    auto const dq = part_of(ends_gradient_, 0, count);
    auto const dk = part_of(ends_gradient_, count, s_.counts.columns * s_.heads.columns());
    // dQ_i := sum_j g_ij K_j and dK_j := sum_i g_ij Q_i, with the gradients g of the scores
    pmm::EdgeWeights<T> const of_scores{coefficients_gradient_, T{1}, true};
    count_product();
    edge_spmm(exec, edges_.block, s_.heads, of_scores, brought_columns_, dq);
    count_product();
    edge_spmm_transposed(exec, edges_.block, s_.heads, of_scores, brought_rows_, dk);
    rows_.bring_back(exec, dq, du);
    columns_.bring_back(exec, dk, du);
    values_.bring_back(exec, dv, du);
    passes.add(passes_.ends_backward);
    shift_projected_backward(exec, s_.plan, s_.num_own, result_gradient, du);
    passes.add(passes_.vectors);
    sum_shifts(exec, s_.plan, row_sums(), du, parts_.parameters.vectors_gradient.storage().data());
  }

  void static_backward(DefaultExec const& exec, Vector<T> const& dv, Vector<T> const& du) {
    auto& passes = grid_.passes();
    auto const [rows, columns] =
        std::pair(s_.counts.rows * s_.heads.count, s_.counts.columns * s_.heads.count);
    auto const own = part_of(ends_gradient_, rows + columns, 2 * s_.num_ends());
    // ds and dt of this block; of the rank's own rows if no rows are exchanged
    auto const ds = s_.rows_steps.has_copy() ? part_of(ends_gradient_, 0, rows)
                    : s_.selects_rows        ? selected_rows()
                                             : part_of(own, 0, s_.num_ends());
    auto const dt = s_.columns_steps.has_copy() ? part_of(ends_gradient_, rows, columns)
                                                : part_of(own, s_.num_ends(), s_.num_ends());
    auto const term = feature_term(exec);
    static_scores_backward(exec, passes, edges_.block, s_.heads.count, brought_rows_, brought_columns_,
                           coefficients_gradient_, ds, dt, term);
    find_edge_gradients(exec, term, {});
    bring_rows_back(exec, ds, part_of(own, 0, s_.num_ends()));
    columns_.bring_back(exec, dt, part_of(own, s_.num_ends(), s_.num_ends()));
    values_.bring_back(exec, dv, du);
    // da_h := sum_i ds_ih Z_ih and dt_ih Z_ih;  dZ_ih += ds_ih a_h row + dt_ih a_h column
    passes.add(passes_.vectors);
    sum_ends(exec, s_.plan.heads(), row_sums(), parts_.projected.storage(), own,
             parts_.parameters.vectors_gradient.storage().data());
    passes.add(passes_.ends_backward);
    add_ends_gradient(exec, s_.plan.heads(), s_.num_own, parts_.parameters.vectors.storage(), own, du);
  }

  pmm::ProcessGrid const& grid_;
  AttentionSteps s_;
  EdgeOperands edges_;
  Vector<T> features_; // of edges; may be empty
  Vector<T> kept_;     // if edges are dropped: 0 for dropped ones
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  AttentionParts<T> parts_;
  pmm::BlockRows<T> result_, values_, rows_, columns_;
  AttentionPasses passes_;
  Dropout dropout_;
  Vector<T> kept_values_, kept_rows_, kept_columns_, kept_ends_, coefficients_; // the layer's own memory
  Vector<T> sums_, result_memory_, values_gradient_, ends_gradient_,
      coefficients_gradient_; // memory that layers share
  Vector<T> brought_values_, brought_rows_,
      brought_columns_; // values and terms of the scores on the block, since the last forward()
};

} // namespace

template<class T>
void AttentionScratch<T>::reserve(AttentionScratchPlan const& plan) {
  static_cast<void>(sums.reserve(plan.sums));
  static_cast<void>(result.reserve(plan.result));
  static_cast<void>(values.reserve(plan.values));
  static_cast<void>(ends.reserve(plan.ends));
  static_cast<void>(coefficients.reserve(plan.coefficients));
}

template<class T>
std::unique_ptr<Aggregation<T>>
make_attention_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, runtime::Wire wire,
                           OwnedAdjacency<T> const& adjacency, std::shared_ptr<pmm::Workspace<T>> workspace,
                           AttentionParts<T> parts, AttentionScratch<T>& scratch,
                           EdgeAttentionMemory<T>& memory) {
  ORTHANT_REQUIRE(adjacency.edges != nullptr, "attention of layer ", plan.index, " needs a block of edges");
  AttentionSteps const steps(grid.shape(), grid.coordinates(), plan, adjacency.sizes,
                             adjacency.edges->block.num_edges(), needed_counts_of(adjacency), wire);
  return std::make_unique<AttentionAggregation<T>>(grid, steps, *adjacency.edges, adjacency.edge_features,
                                                   adjacency.forward.block().csr.values, std::move(workspace),
                                                   std::move(parts), scratch, memory);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template struct AttentionScratch<T>;                                                                       \
  template std::unique_ptr<Aggregation<T>> make_attention_aggregation(                                       \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, runtime::Wire, OwnedAdjacency<T> const&,             \
      std::shared_ptr<pmm::Workspace<T>>, AttentionParts<T>, AttentionScratch<T>&, EdgeAttentionMemory<T>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

// SPDX-License-Identifier: Apache-2.0
#include "pmm/relations/relation_attention.hpp"

#include "pmm/aggregate/row_lists.hpp"
#include "pmm/relations/relation_product.hpp"

#include <utility>

namespace orthant::pmm {

using runtime::part_of;

namespace {

/// Places of the numbers of a_rh in the parameter and in A_r or A'_r beside each other, [H d x 2 H], of this rank's heads.
struct VectorPlaces {
  std::int64_t num_all_heads, first_head, num_heads, width;

  /// Index in the parameter of element k of the blocks; -1 outside the blocks.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t operator()(std::int64_t k) const {
    auto const column = k % (2 * num_heads);
    auto const row = k / (2 * num_heads) % (num_heads * width);
    auto const relation = k / (2 * num_heads) / (num_heads * width);
    auto const head = row / width;
    if (column % num_heads != head) return -1;
    auto const is_of_source = column < num_heads;
    return ((relation * num_all_heads + first_head + head) * 2 + (is_of_source ? 1 : 0)) * width +
           row % width;
  }
};

template<class Body>
void for_each_number(DefaultExec const& exec, char const* label, std::int64_t count, Body const& body) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), body);
}

/// A beside A' from the parameter.
template<class T>
void spread_vectors(DefaultExec const& exec, VectorPlaces const& place, std::int64_t count,
                    Vector<T> const& parameter, Vector<T> const& vectors) {
  T const* const from = parameter.data();
  T* const to = vectors.data();
  for_each_number(
      exec, "orthant::pmm::attention_vectors", count, KOKKOS_LAMBDA(std::int64_t k) {
        auto const of_parameter = place(k);
        to[k] = of_parameter < 0 ? T{0} : from[of_parameter];
      });
}
/// The gradient of the parameter from the blocks of those of A beside A'.
template<class T>
void collect_vectors(DefaultExec const& exec, VectorPlaces const& place, std::int64_t count,
                     Vector<T> const& vectors, Vector<T> const& parameter) {
  T const* const from = vectors.data();
  T* const to = parameter.data();
  for_each_number(
      exec, "orthant::pmm::attention_vectors", count, KOKKOS_LAMBDA(std::int64_t k) {
        auto const of_parameter = place(k);
        if (of_parameter >= 0) to[of_parameter] = from[k];
      });
}

/// f[list[k]] += rows[k]. The list does not repeat a row.
template<class T>
void add_listed_rows(DefaultExec const& exec, Vector<T> const& rows, Vector<LocalColumn> const& list,
                     std::int64_t width, Vector<T> const& f) {
  T const* const from = rows.data();
  T* const to = f.data();
  LocalColumn const* const places = list.data();
  for_each_number(
      exec, "orthant::pmm::add_pairs", static_cast<std::int64_t>(list.extent(0)) * width,
      KOKKOS_LAMBDA(std::int64_t k) { to[places[k / width] * width + k % width] += from[k]; });
}

// Passes and products of a layer, for the ledger and for lists.

std::int64_t in_picks(RelationAttentionSizes const& s, RelationAttentionShape const& shape) {
  return s.num_heads == 0 ? 0 : (s.pairs.sources + s.pairs.targets) * shape.in;
}
LocalPass pass_of_picks(std::int64_t bytes) {
  return {"pick_rows", bytes, bytes};
}
LocalPass pass_of_additions(std::int64_t bytes) {
  return {"add_pairs", 2 * bytes, bytes};
}
LocalPass pass_of_vectors(std::int64_t bytes) {
  return {"attention_vectors", 0, bytes};
}
LocalPass pass_of_zero_gradients(std::int64_t bytes) {
  return {"relation_zeros", 0, bytes};
}
std::int64_t num_gradients(RelationAttentionShape const& shape) {
  std::int64_t count = 0;
  for (auto const& [rows, columns] : {shape.weight(), shape.target_weight(), shape.attention()})
    count += rows * columns;
  return count;
}

/// Flops of W A, and of each of its two adjoints.
std::int64_t flops_of_folding(RelationAttentionSizes const& s, RelationAttentionShape const& shape) {
  return 2 * shape.weight().rows * s.num_heads * shape.heads.width * 2 * s.num_heads;
}
/// Flops of F W, s and t, and of each of their two adjoints.
std::int64_t flops_of_projecting(RelationAttentionSizes const& s, RelationAttentionShape const& shape) {
  auto const width = s.num_heads * shape.heads.width;
  return 2 * shape.in * (s.pairs.sources * (width + s.num_heads) + s.pairs.targets * s.num_heads);
}

} // namespace

template<class T>
RelationAttention<T>::RelationAttention(ProcessGrid const& grid, Axis columns,
                                        std::shared_ptr<RelationEdges const> block,
                                        RelationAttentionShape const& shape,
                                        RelationAttentionSizes const& sizes,
                                        RelationAttentionMemory<T> const& memory,
                                        RelationAttentionScratch<T> const& scratch,
                                        std::shared_ptr<Workspace<T>> workspace)
    : grid_(&grid),
      axis_(columns),
      block_(std::move(block)),
      shape_(shape),
      sizes_(sizes),
      memory_(memory),
      scratch_(scratch),
      workspace_(std::move(workspace)) {
  reserve_relation_attention(*workspace_, sizes_);
}

template<class T>
Panel<T> RelationAttention<T>::weight_of(Vector<T> const& weights, std::int64_t relation) const {
  auto const width = shape_.heads.width;
  auto const [rows, columns] = shape_.weight();
  auto const first = sizes_.first_head * width;
  return Panel<T>(as_matrix(weights, rows, columns))
      .rows({relation * shape_.in, (relation + 1) * shape_.in})
      .columns({first, first + heads().columns()});
}

template<class T>
Panel<T> RelationAttention<T>::vectors_of(Vector<T> const& vectors, std::int64_t relation, End end) const {
  auto const [count, width] = std::pair(sizes_.num_heads, heads().columns());
  auto const first = end == End::source ? 0 : count;
  return Panel<T>(as_matrix(vectors, shape_.num_relations * width, 2 * count))
      .rows({relation * width, (relation + 1) * width})
      .columns({first, first + count});
}

template<class T>
Panel<T> RelationAttention<T>::folded_of(Vector<T> const& folded, std::int64_t relation, End end) const {
  auto const count = sizes_.num_heads;
  auto const first = end == End::source ? 0 : count;
  return Panel<T>(as_matrix(folded, shape_.num_relations * shape_.in, 2 * count))
      .rows({relation * shape_.in, (relation + 1) * shape_.in})
      .columns({first, first + count});
}

template<class T>
EdgeWeights<T> RelationAttention<T>::weights(CoefficientDropout const& dropout) const {
  return {memory_.coefficients, static_cast<T>(1 / (1 - dropout.probability))};
}

template<class T>
template<class Visit>
void RelationAttention<T>::for_each_part(End end, Visit const& visit) const {
  auto const& first = end == End::source ? block_->first_sources : block_->first_targets;
  for (std::int64_t r = 0; r < shape_.num_relations; ++r) {
    auto const last = first[static_cast<std::size_t>(r) + 1];
    for (auto begin = first[static_cast<std::size_t>(r)]; begin < last; begin += sizes_.most_picked)
      visit(Part{r, {begin, std::min(last, begin + sizes_.most_picked)}});
  }
}

template<class T>
Vector<T> RelationAttention<T>::picked_rows(DefaultExec const& exec, End end, Part const& part,
                                            Vector<T> const& f) const {
  auto const& list = end == End::source ? block_->source_columns : block_->target_rows;
  auto const picked = part_of(scratch_.picked, 0, part.pairs.size() * shape_.in);
  runtime::PassLedger counted_together; // by count_picks()
  pick_rows(exec, counted_together, f, part_of(list, part.pairs), shape_.in, picked);
  return picked;
}

template<class T>
void RelationAttention<T>::count_picks(bool is_backward) const {
  auto const bytes = in_picks(sizes_, shape_) * static_cast<std::int64_t>(sizeof(T));
  grid_->passes().add(is_backward ? pass_of_additions(bytes) : pass_of_picks(bytes));
}

/// V_r := [W_r A_r | W'_r A'_r]
template<class T>
void RelationAttention<T>::fold_vectors(DefaultExec const& exec,
                                        RelationAttentionParameters<T> const& parameters) const {
  VectorPlaces const place{shape_.heads.count, sizes_.first_head, sizes_.num_heads, shape_.heads.width};
  auto const count = sizes_.num_vectors(shape_);
  grid_->passes().add(pass_of_vectors(count * static_cast<std::int64_t>(sizeof(T))));
  spread_vectors(exec, place, count, parameters.attention, memory_.vectors);
  auto const& target_weight = shape_.has_target_weights ? parameters.target_weight : parameters.weight;
  for (std::int64_t r = 0; r < shape_.num_relations; ++r)
    for (auto const end : {End::source, End::target})
      local_gemm<T>(exec, 1, Transpose::no,
                    weight_of(end == End::source ? parameters.weight : target_weight, r), Transpose::no,
                    vectors_of(memory_.vectors, r, end), 0, folded_of(memory_.folded, r, end));
}

/// dW_r += dV_r A_r^T and dA_r := W_r^T dV_r; likewise for W' and A'. The gradients of vectors are the blocks of dA.
template<class T>
void RelationAttention<T>::unfold_gradients(DefaultExec const& exec,
                                            RelationAttentionParameters<T> const& parameters,
                                            RelationAttentionParameters<T> const& gradients) const {
  for (std::int64_t r = 0; r < shape_.num_relations; ++r)
    for (auto const end : {End::source, End::target}) {
      auto const is_apart = end == End::target && shape_.has_target_weights;
      auto const w = weight_of(is_apart ? parameters.target_weight : parameters.weight, r);
      auto const dw = weight_of(is_apart ? gradients.target_weight : gradients.weight, r);
      auto const dv = folded_of(scratch_.folded, r, end);
      local_gemm<T>(exec, 1, Transpose::no, dv, Transpose::yes, vectors_of(memory_.vectors, r, end), 1, dw);
      local_gemm<T>(exec, 1, Transpose::yes, w, Transpose::no, dv, 0, vectors_of(scratch_.vectors, r, end));
    }
  VectorPlaces const place{shape_.heads.count, sizes_.first_head, sizes_.num_heads, shape_.heads.width};
  auto const count = sizes_.num_vectors(shape_);
  grid_->passes().add(pass_of_vectors(count * static_cast<std::int64_t>(sizeof(T))));
  collect_vectors(exec, place, count, scratch_.vectors, gradients.attention);
}

/// Z, t and s from F.
template<class T>
void RelationAttention<T>::project(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
                                   RelationAttentionParameters<T> const& parameters) const {
  auto const& pairs = sizes_.pairs;
  Panel<T> const z = as_matrix(memory_.projected, pairs.sources, heads().columns());
  Panel<T> const t = as_matrix(memory_.source_ends, pairs.sources, sizes_.num_heads);
  Panel<T> const s = as_matrix(scratch_.ends_by_relation, pairs.targets, sizes_.num_heads);
  auto const multiply = [&](Panel<T> const& x, Panel<T> const& w, Panel<T> const& to) {
    local_gemm<T>(exec, 1, Transpose::no, x, Transpose::no, w, 0, to);
  };
  for (auto const end : {End::source, End::target})
    for_each_part(end, [&](Part const& part) {
      auto const is_source = end == End::source;
      Panel<T> const x = as_matrix(picked_rows(exec, end, part, is_source ? f.of_columns : f.of_rows),
                                   part.pairs.size(), shape_.in);
      if (is_source) multiply(x, weight_of(parameters.weight, part.relation), z.rows(part.pairs));
      multiply(x, folded_of(memory_.folded, part.relation, end), (is_source ? t : s).rows(part.pairs));
    });
  count_picks(false);
  place_rows(exec, grid_->passes(), part_of(scratch_.ends_by_relation, 0, sizes_.num_target_ends()),
             block_->target_pairs, sizes_.num_heads, memory_.target_ends);
}

/// dW += F^T dZ, dV := F^T [dt | ds], and dF += dZ W^T + dt V^T + ds V^T
template<class T>
void RelationAttention<T>::project_backward(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
                                            RelationAttentionParameters<T> const& parameters,
                                            RelationAttentionParameters<T> const& gradients,
                                            RelationAttentionInputs<T> const& f_gradients) const {
  auto const& pairs = sizes_.pairs;
  auto const needs_input_gradient = f_gradients.of_columns.extent(0) + f_gradients.of_rows.extent(0) > 0;
  pick_rows(exec, grid_->passes(), scratch_.target_ends, block_->target_pairs, sizes_.num_heads,
            part_of(scratch_.ends_by_relation, 0, sizes_.num_target_ends()));
  Panel<T> const dz = as_matrix(scratch_.projected, pairs.sources, heads().columns());
  Panel<T> const dt = as_matrix(scratch_.source_ends, pairs.sources, sizes_.num_heads);
  Panel<T> const ds = as_matrix(scratch_.ends_by_relation, pairs.targets, sizes_.num_heads);
  Kokkos::deep_copy(exec, part_of(scratch_.folded, 0, sizes_.num_folded(shape_)), T{0});
  for (auto const end : {End::source, End::target})
    for_each_part(end, [&](Part const& part) {
      auto const is_source = end == End::source;
      auto const r = part.relation;
      auto const count = part.pairs.size();
      Panel<T> const x =
          as_matrix(picked_rows(exec, end, part, is_source ? f.of_columns : f.of_rows), count, shape_.in);
      auto const de = (is_source ? dt : ds).rows(part.pairs);
      if (is_source)
        local_gemm<T>(exec, 1, Transpose::yes, x, Transpose::no, dz.rows(part.pairs), 1,
                      weight_of(gradients.weight, r));
      local_gemm<T>(exec, 1, Transpose::yes, x, Transpose::no, de, 1, folded_of(scratch_.folded, r, end));
      if (!needs_input_gradient) return;
      auto const rows = part_of(scratch_.picked_gradient, 0, count * shape_.in);
      Panel<T> const y = as_matrix(rows, count, shape_.in);
      local_gemm<T>(exec, 1, Transpose::no, de, Transpose::yes, folded_of(memory_.folded, r, end), 0, y);
      if (is_source)
        local_gemm<T>(exec, 1, Transpose::no, dz.rows(part.pairs), Transpose::yes,
                      weight_of(parameters.weight, r), 1, y);
      add_listed_rows(exec, rows,
                      part_of(is_source ? block_->source_columns : block_->target_rows, part.pairs),
                      shape_.in, is_source ? f_gradients.of_columns : f_gradients.of_rows);
    });
  count_picks(false);
  if (needs_input_gradient) count_picks(true);
}

template<class T>
void RelationAttention<T>::forward(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
                                   RelationAttentionParameters<T> const& parameters,
                                   CoefficientDropout const& dropout, Vector<T> const& p) {
  auto& instruments = grid_->world().instruments();
  auto& passes = grid_->passes();
  auto const count = sizes_.num_heads;
  instruments.flops.dense += flops_of_folding(sizes_, shape_) + flops_of_projecting(sizes_, shape_);
  instruments.flops.sparse += 2 * sizes_.num_coefficients() * shape_.heads.width;
  if (count == 0) return;
  fold_vectors(exec, parameters);
  project(exec, f, parameters);
  static_scores(exec, passes, block_->of_pairs, count, memory_.target_ends, memory_.source_ends,
                memory_.coefficients);
  edge_softmax(exec, grid_->over(axis_), passes, block_->of_pairs, count, memory_.coefficients, *workspace_);
  if (dropout.probability > 0)
    drop_edges(exec, passes, block_->of_pairs, count,
               {block_->target_ids, block_->source_ids, sizes_.first_head, shape_.heads.count},
               dropout.probability, dropout.stream, memory_.coefficients);
  edge_spmm(exec, block_->of_rows, heads(), weights(dropout), memory_.projected, p);
}

template<class T>
void RelationAttention<T>::backward(DefaultExec const& exec, RelationAttentionInputs<T> const& f,
                                    RelationAttentionParameters<T> const& parameters,
                                    CoefficientDropout const& dropout, Vector<T> const& p_gradient,
                                    RelationAttentionParameters<T> const& gradients,
                                    RelationAttentionInputs<T> const& f_gradients) {
  auto& instruments = grid_->world().instruments();
  auto& passes = grid_->passes();
  auto const count = sizes_.num_heads;
  auto const needs_input_gradient = f_gradients.of_columns.extent(0) + f_gradients.of_rows.extent(0) > 0;
  instruments.flops.dense += 2 * flops_of_folding(sizes_, shape_) +
                             (needs_input_gradient ? 2 : 1) * flops_of_projecting(sizes_, shape_);
  instruments.flops.sparse += 4 * sizes_.num_coefficients() * shape_.heads.width;
  passes.add(pass_of_zero_gradients(num_gradients(shape_) * static_cast<std::int64_t>(sizeof(T))));
  for (auto const* const zeros : {&gradients.weight, &gradients.target_weight, &gradients.attention,
                                  &f_gradients.of_columns, &f_gradients.of_rows})
    if (zeros->extent(0) > 0) Kokkos::deep_copy(exec, *zeros, T{0});
  if (count == 0) return;
  edge_dots(exec, block_->of_rows, heads(), p_gradient, memory_.projected, scratch_.coefficients);
  edge_softmax_backward(exec, grid_->over(axis_), passes, block_->of_pairs, count, weights(dropout),
                        scratch_.coefficients, *workspace_);
  edge_spmm_transposed(exec, block_->of_rows, heads(), weights(dropout), p_gradient, scratch_.projected);
  static_scores_backward(exec, passes, block_->of_pairs, count, memory_.target_ends, memory_.source_ends,
                         scratch_.coefficients, scratch_.target_ends, scratch_.source_ends);
  project_backward(exec, f, parameters, gradients, f_gradients);
  unfold_gradients(exec, parameters, gradients);
}

namespace {

EdgeCounts counts_of_pairs(RelationAttentionSizes const& s) {
  return {s.pairs.targets, s.pairs.sources, s.pairs.edges};
}
EdgeCounts counts_of_rows(RelationAttentionSizes const& s) {
  return {s.rows, s.pairs.sources, s.pairs.edges};
}

} // namespace

void plan_relation_attention(StepPlan& step, Axis columns, Placement const& adjacency,
                             RelationAttentionSizes const& s, RelationAttentionShape const& shape,
                             bool drops_coefficients) {
  auto const [count, width] = std::pair(s.num_heads, s.num_heads * shape.heads.width);
  step.add_product(dense_product("V = W a", Form::product, shape.weight().rows, 2 * count, width));
  step.add_product(dense_product("Z = F W", Form::product, s.pairs.sources, width, shape.in));
  step.add_product(
      dense_product("s, t = F V", Form::product, s.pairs.sources + s.pairs.targets, count, shape.in));
  if (count > 0) {
    step.add_pass(pass_of_vectors(step.scalar_bytes(s.num_vectors(shape))));
    step.add_pass(pass_of_picks(step.scalar_bytes(in_picks(s, shape))));
    plan_place_rows(step, s.pairs.targets, count);
    plan_static_scores(step, counts_of_pairs(s), count);
    plan_edge_softmax(step, columns, counts_of_pairs(s), count);
    if (drops_coefficients) plan_drop_edges(step, counts_of_pairs(s), count);
  }
  plan_edge_product(step, "P = alpha Z", Form::product, counts_of_rows(s), width, adjacency);
}

void plan_relation_attention_backward(StepPlan& step, Axis columns, Placement const& adjacency,
                                      RelationAttentionSizes const& s, RelationAttentionShape const& shape,
                                      bool needs_input_gradient) {
  auto const [count, width] = std::pair(s.num_heads, s.num_heads * shape.heads.width);
  auto const num_ends = s.pairs.sources + s.pairs.targets;
  step.add_pass(pass_of_zero_gradients(step.scalar_bytes(num_gradients(shape))));
  plan_edge_product(step, "dalpha = dP Z^T", Form::left_grad, counts_of_rows(s), width, adjacency);
  if (count > 0) plan_edge_softmax_backward(step, columns, counts_of_pairs(s), count);
  plan_edge_product(step, "dZ = alpha^T dP", Form::right_grad, counts_of_rows(s), width, adjacency);
  if (count > 0) {
    plan_static_scores_backward(step, counts_of_pairs(s), count);
    plan_pick_rows(step, s.pairs.targets, count);
    step.add_pass(pass_of_picks(step.scalar_bytes(in_picks(s, shape))));
    if (needs_input_gradient) step.add_pass(pass_of_additions(step.scalar_bytes(in_picks(s, shape))));
    step.add_pass(pass_of_vectors(step.scalar_bytes(s.num_vectors(shape))));
  }
  step.add_product(dense_product("dW = F^T dZ", Form::right_grad, shape.in, width, s.pairs.sources));
  step.add_product(dense_product("dV = F^T ds, dt", Form::right_grad, shape.in, count, num_ends));
  if (needs_input_gradient) {
    step.add_product(dense_product("dF = dZ W^T", Form::left_grad, s.pairs.sources, shape.in, width));
    step.add_product(dense_product("dF += ds, dt V^T", Form::left_grad, num_ends, shape.in, count));
  }
  step.add_product(dense_product("dW += dV a^T", Form::left_grad, shape.weight().rows, width, 2 * count));
  step.add_product(dense_product("da = W^T dV", Form::right_grad, width, 2 * count, shape.weight().rows));
}

template class RelationAttention<float>;
template class RelationAttention<double>;

} // namespace orthant::pmm

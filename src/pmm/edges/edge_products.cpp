// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_products.hpp"

#include "pmm/edges/edge_kernels_device.hpp"
#include "runtime/arrays/views.hpp"

#include <utility>

namespace orthant::pmm {

template<class T>
void edge_dots(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads, Vector<T> const& x,
               Vector<T> const& y, Vector<T> const& values) {
  constexpr auto label = "orthant::pmm::edge_dots";
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_rows, heads.count, host_edges::best_edge_kernels<T>().dots,
                  host_edges::HostDots<T>{lists_of_rows(block, heads), x.data(), y.data(), values.data()});
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(),
                      device_edges::Dots<T>{block.row_offsets.data(), block.columns.data(), heads, x.data(),
                                            y.data(), values.data()});
}

template<class T>
void edge_spmm(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
               EdgeWeights<T> const& weights, Vector<T> const& y, Vector<T> const& p) {
  constexpr auto label = "orthant::pmm::edge_spmm";
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_rows, heads.count, host_edges::best_edge_kernels<T>().weighted_sums,
                  host_edges::HostSums<T>{lists_of_rows(block, heads), weights.values.data(), weights.factor,
                                          y.data(), p.data(), weights.are_signed});
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(),
                      device_edges::WeightedSums<T>{block.row_offsets.data(), block.columns.data(), nullptr,
                                                    heads, weights.values.data(), weights.factor, y.data(),
                                                    p.data(), weights.are_signed});
}

template<class T>
void edge_spmm_transposed(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
                          EdgeWeights<T> const& weights, Vector<T> const& x, Vector<T> const& d) {
  constexpr auto label = "orthant::pmm::edge_spmm_transposed";
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_columns, heads.count,
                  host_edges::best_edge_kernels<T>().weighted_sums,
                  host_edges::HostSums<T>{lists_of_columns(block, heads), weights.values.data(),
                                          weights.factor, x.data(), d.data(), weights.are_signed});
  else
    device_edges::run(exec, label, block.num_columns, block.num_edges(),
                      device_edges::WeightedSums<T>{block.column_offsets.data(), block.rows.data(),
                                                    block.places.data(), heads, weights.values.data(),
                                                    weights.factor, x.data(), d.data(), weights.are_signed});
}

void plan_edge_product(StepPlan& step, std::string formula, Form form, EdgeCounts const& counts,
                       std::int64_t width, Placement const& matrix) {
  LocalProduct product;
  product.formula = std::move(formula);
  product.form = form;
  product.left = matrix;
  product.is_sparse = true;
  auto const is_transposed = form == Form::right_grad;
  product.m = is_transposed ? counts.columns : counts.rows;
  product.k = is_transposed ? counts.rows : counts.columns;
  product.n = width;
  product.num_nonzeros = counts.edges;
  step.add_product(std::move(product));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void edge_dots(DefaultExec const&, EdgeBlock const&, Heads const&, Vector<T> const&,              \
                          Vector<T> const&, Vector<T> const&);                                               \
  template void edge_spmm(DefaultExec const&, EdgeBlock const&, Heads const&, EdgeWeights<T> const&,         \
                          Vector<T> const&, Vector<T> const&);                                               \
  template void edge_spmm_transposed(DefaultExec const&, EdgeBlock const&, Heads const&,                     \
                                     EdgeWeights<T> const&, Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

std::int64_t bytes_of_pattern(EdgeCounts const& counts) {
  return (counts.rows + 1) * static_cast<std::int64_t>(sizeof(Offset)) +
         counts.edges * static_cast<std::int64_t>(sizeof(LocalColumn));
}
/// Bytes that the backward pass reads from the lists by column.
std::int64_t bytes_of_lists(EdgeCounts const& counts, bool reads_rows) {
  auto const rows = reads_rows ? counts.edges * static_cast<std::int64_t>(sizeof(LocalColumn)) : 0;
  return (counts.columns + 1 + counts.edges) * static_cast<std::int64_t>(sizeof(Offset)) + rows;
}

/// Bytes of the features of edges and of their factors, [features x width].
std::int64_t bytes_of_features(EdgeCounts const& counts, std::int64_t width, std::int64_t scalar_bytes) {
  return counts.features * (counts.edges + width) * scalar_bytes;
}
template<class T>
EdgeCounts counts_of(EdgeBlock const& block, EdgeFeatureTerm<T> const& features) {
  auto counts = counts_of(block);
  counts.features = features.count;
  return counts;
}
template<class T>
host_edges::HostEdgeFeatures<T> pointers_of(EdgeFeatureTerm<T> const& term) {
  return {term.features.data(), term.factors.data(), term.count, term.stride};
}

LocalPass none_without_edges(LocalPass pass, EdgeCounts const& counts, Heads const& heads) {
  return counts.edges * heads.columns() > 0 ? pass : LocalPass{pass.name, 0, 0};
}

LocalPass pass_of_static(EdgeCounts const& counts, std::int64_t num_heads, std::int64_t scalar_bytes) {
  auto const of_ends = (counts.rows + counts.columns) * num_heads * scalar_bytes +
                       bytes_of_features(counts, num_heads, scalar_bytes);
  auto const values = counts.edges * num_heads * scalar_bytes;
  return none_without_edges({"static_scores", bytes_of_pattern(counts) + of_ends, values}, counts,
                            {num_heads, 1});
}
LocalPass pass_of_static_backward(EdgeCounts const& counts, std::int64_t num_heads,
                                  std::int64_t scalar_bytes) {
  auto const of_ends = (counts.rows + counts.columns) * num_heads * scalar_bytes;
  auto const values = counts.edges * num_heads * scalar_bytes;
  return none_without_edges({"static_scores_backward",
                             bytes_of_pattern(counts) + bytes_of_lists(counts, false) + of_ends + 2 * values +
                                 bytes_of_features(counts, num_heads, scalar_bytes),
                             values + of_ends},
                            counts, {num_heads, 1});
}
LocalPass pass_of_dynamic(EdgeCounts const& counts, Heads const& heads, std::int64_t scalar_bytes) {
  auto const of_ends = (counts.rows + counts.columns + 1) * heads.columns() * scalar_bytes +
                       bytes_of_features(counts, heads.columns(), scalar_bytes);
  auto const values = counts.edges * heads.count * scalar_bytes;
  return none_without_edges({"dynamic_scores", bytes_of_pattern(counts) + of_ends, values}, counts, heads);
}
LocalPass pass_of_dynamic_backward(EdgeCounts const& counts, Heads const& heads, std::int64_t scalar_bytes) {
  auto const of_rows = counts.rows * heads.columns() * scalar_bytes;
  auto const of_columns = counts.columns * heads.columns() * scalar_bytes;
  auto const values = counts.edges * heads.count * scalar_bytes;
  return none_without_edges({"dynamic_scores_backward",
                             bytes_of_pattern(counts) + bytes_of_lists(counts, true) + 2 * of_rows +
                                 3 * of_columns + 2 * values +
                                 2 * bytes_of_features(counts, heads.columns(), scalar_bytes),
                             2 * of_rows + of_columns},
                            counts, heads);
}

} // namespace

template<class T>
void static_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                   std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t, Vector<T> const& values,
                   EdgeFeatureTerm<T> const& features) {
  passes.add(pass_of_static(counts_of(block, features), num_heads, sizeof(T)));
  auto const term = pointers_of(features);
  constexpr auto label = "orthant::pmm::static_scores";
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_rows, num_heads, host_edges::best_edge_kernels<T>().static_scores,
                  host_edges::HostStaticScores<T>{lists_of_rows(block, {num_heads, 1}), s.data(), t.data(),
                                                  values.data(), nullptr, nullptr, term});
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(),
                      device_edges::StaticScores<T>{block.row_offsets.data(),
                                                    block.columns.data(),
                                                    num_heads,
                                                    s.data(),
                                                    t.data(),
                                                    values.data(),
                                                    {term}});
}

template<class T>
void static_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                            std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t,
                            Vector<T> const& gradient, Vector<T> const& ds, Vector<T> const& dt,
                            EdgeFeatureTerm<T> const& features) {
  passes.add(pass_of_static_backward(counts_of(block, features), num_heads, sizeof(T)));
  auto const term = pointers_of(features);
  constexpr auto label = "orthant::pmm::static_scores_backward";
  constexpr auto label_of_columns = "orthant::pmm::static_scores_backward/columns";
  if constexpr (runs_on_host) {
    auto const& kernels = host_edges::best_edge_kernels<T>();
    // A loop by column would access the values of edges in random order. A single thread adds to dt while it visits the rows. The
    // order of additions is the same, because the rows of a column's list ascend.
    auto const adds_to_columns = exec.concurrency() == 1;
    if (adds_to_columns)
      Kokkos::deep_copy(exec, runtime::part_of(dt, 0, block.num_columns * num_heads), T{0});
    using Scores = host_edges::HostStaticScores<T>;
    for_each_list(exec, label, block.num_rows, num_heads, kernels.static_scores_backward,
                  Scores{lists_of_rows(block, {num_heads, 1}), s.data(), t.data(), gradient.data(), ds.data(),
                         adds_to_columns ? dt.data() : nullptr, term});
    if (adds_to_columns) return;
    return for_each_list(exec, label_of_columns, block.num_columns, num_heads, kernels.sum_edges,
                         Scores{lists_of_columns(block, {num_heads, 1}), nullptr, nullptr, gradient.data(),
                                dt.data(), nullptr});
  } else {
    device_edges::run(exec, label, block.num_rows, block.num_edges(),
                      device_edges::StaticBackward<T>{block.row_offsets.data(),
                                                      block.columns.data(),
                                                      num_heads,
                                                      s.data(),
                                                      t.data(),
                                                      gradient.data(),
                                                      ds.data(),
                                                      {term}});
    device_edges::run(exec, label_of_columns, block.num_columns, block.num_edges(),
                      device_edges::SumsOfColumns<T>{block.column_offsets.data(), block.places.data(),
                                                     num_heads, gradient.data(), dt.data()});
  }
}

template<class T>
void dynamic_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                    Heads const& heads, DynamicOperands<T> const& operands, Vector<T> const& values) {
  passes.add(pass_of_dynamic(counts_of(block, operands.features), heads, sizeof(T)));
  auto const term = pointers_of(operands.features);
  constexpr auto label = "orthant::pmm::dynamic_scores";
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_rows, heads.count, host_edges::best_edge_kernels<T>().dynamic_scores,
                  host_edges::HostDynamicScores<T>{lists_of_rows(block, heads), operands.of_rows.data(),
                                                   operands.of_columns.data(), operands.attention.data(),
                                                   values.data(), term});
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(),
                      device_edges::DynamicScores<T>{block.row_offsets.data(),
                                                     block.columns.data(),
                                                     heads,
                                                     operands.of_rows.data(),
                                                     operands.of_columns.data(),
                                                     operands.attention.data(),
                                                     values.data(),
                                                     {term}});
}

template<class T>
void dynamic_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                             Heads const& heads, DynamicOperands<T> const& operands,
                             Vector<T> const& gradient, DynamicGradients<T> const& gradients) {
  passes.add(pass_of_dynamic_backward(counts_of(block, operands.features), heads, sizeof(T)));
  auto const term = pointers_of(operands.features);
  constexpr auto label_of_rows = "orthant::pmm::dynamic_scores_backward/rows";
  constexpr auto label_of_columns = "orthant::pmm::dynamic_scores_backward/columns";
  T const* const l = operands.of_rows.data();
  T const* const r = operands.of_columns.data();
  T const* const a = operands.attention.data();
  T* const dl = gradients.of_rows.data();
  T* const dr = gradients.of_columns.data();
  T* const terms = gradients.attention_of_rows.data();
  if constexpr (runs_on_host) {
    auto const kernel = host_edges::best_edge_kernels<T>().dynamic_scores_backward;
    using Backward = host_edges::HostDynamicBackward<T>;
    for_each_list(exec, label_of_rows, block.num_rows, heads.count, kernel,
                  Backward{lists_of_rows(block, heads), l, r, a, gradient.data(), dl, terms, term});
    return for_each_list(
        exec, label_of_columns, block.num_columns, heads.count, kernel,
        Backward{lists_of_columns(block, heads), r, l, a, gradient.data(), dr, nullptr, term});
  } else {
    device_edges::run(exec, label_of_rows, block.num_rows, block.num_edges(),
                      device_edges::DynamicRows<T>{block.row_offsets.data(),
                                                   block.columns.data(),
                                                   heads,
                                                   l,
                                                   r,
                                                   a,
                                                   gradient.data(),
                                                   dl,
                                                   terms,
                                                   {term}});
    device_edges::run(exec, label_of_columns, block.num_columns, block.num_edges(),
                      device_edges::DynamicColumns<T>{block.column_offsets.data(),
                                                      block.rows.data(),
                                                      block.places.data(),
                                                      heads,
                                                      l,
                                                      r,
                                                      a,
                                                      gradient.data(),
                                                      dr,
                                                      {term}});
  }
}

void plan_static_scores(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads) {
  step.add_pass(pass_of_static(counts, num_heads, step.scalar_bytes(1)));
}
void plan_static_scores_backward(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads) {
  step.add_pass(pass_of_static_backward(counts, num_heads, step.scalar_bytes(1)));
}
void plan_dynamic_scores(StepPlan& step, EdgeCounts const& counts, Heads const& heads) {
  step.add_pass(pass_of_dynamic(counts, heads, step.scalar_bytes(1)));
}
void plan_dynamic_scores_backward(StepPlan& step, EdgeCounts const& counts, Heads const& heads) {
  step.add_pass(pass_of_dynamic_backward(counts, heads, step.scalar_bytes(1)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void static_scores(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, std::int64_t,      \
                              Vector<T> const&, Vector<T> const&, Vector<T> const&,                          \
                              EdgeFeatureTerm<T> const&);                                                    \
  template void static_scores_backward(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&,           \
                                       std::int64_t, Vector<T> const&, Vector<T> const&, Vector<T> const&,   \
                                       Vector<T> const&, Vector<T> const&, EdgeFeatureTerm<T> const&);       \
  template void dynamic_scores(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, Heads const&,     \
                               DynamicOperands<T> const&, Vector<T> const&);                                 \
  template void dynamic_scores_backward(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&,          \
                                        Heads const&, DynamicOperands<T> const&, Vector<T> const&,           \
                                        DynamicGradients<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm

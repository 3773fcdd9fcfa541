// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_scores.hpp"

#include "pmm/edges/host_lists.hpp"
#include "runtime/arrays/part_of.hpp"

namespace orthant::pmm {
namespace {

using host_edges::negative_slope;

template<class T>
KOKKOS_FUNCTION T leaky(T z) {
  return z > 0 ? z : static_cast<T>(negative_slope) * z;
}
template<class T>
KOKKOS_FUNCTION T leaky_slope(T z) {
  return z > 0 ? T{1} : static_cast<T>(negative_slope);
}

std::int64_t bytes_of_pattern(EdgeCounts const& counts) {
  return (counts.rows + 1) * static_cast<std::int64_t>(sizeof(Offset)) +
         counts.edges * static_cast<std::int64_t>(sizeof(LocalColumn));
}
/// What the backward pass reads of the lists by column.
std::int64_t bytes_of_lists(EdgeCounts const& counts, bool reads_rows) {
  auto const rows = reads_rows ? counts.edges * static_cast<std::int64_t>(sizeof(LocalColumn)) : 0;
  return (counts.columns + 1 + counts.edges) * static_cast<std::int64_t>(sizeof(Offset)) + rows;
}

LocalPass none_without_edges(LocalPass pass, EdgeCounts const& counts, Heads const& heads) {
  return counts.edges * heads.columns() > 0 ? pass : LocalPass{pass.name, 0, 0};
}

LocalPass pass_of_static(EdgeCounts const& counts, std::int64_t num_heads, std::int64_t scalar_bytes) {
  auto const of_ends = (counts.rows + counts.columns) * num_heads * scalar_bytes;
  auto const values = counts.edges * num_heads * scalar_bytes;
  return none_without_edges({"static_scores", bytes_of_pattern(counts) + of_ends, values}, counts,
                            {num_heads, 1});
}
LocalPass pass_of_static_backward(EdgeCounts const& counts, std::int64_t num_heads,
                                  std::int64_t scalar_bytes) {
  auto const of_ends = (counts.rows + counts.columns) * num_heads * scalar_bytes;
  auto const values = counts.edges * num_heads * scalar_bytes;
  return none_without_edges({"static_scores_backward",
                             bytes_of_pattern(counts) + bytes_of_lists(counts, false) + of_ends + 2 * values,
                             values + of_ends},
                            counts, {num_heads, 1});
}
LocalPass pass_of_dynamic(EdgeCounts const& counts, Heads const& heads, std::int64_t scalar_bytes) {
  auto const of_ends = (counts.rows + counts.columns + 1) * heads.columns() * scalar_bytes;
  auto const values = counts.edges * heads.count * scalar_bytes;
  return none_without_edges({"dynamic_scores", bytes_of_pattern(counts) + of_ends, values}, counts, heads);
}
LocalPass pass_of_dynamic_backward(EdgeCounts const& counts, Heads const& heads, std::int64_t scalar_bytes) {
  auto const of_rows = counts.rows * heads.columns() * scalar_bytes;
  auto const of_columns = counts.columns * heads.columns() * scalar_bytes;
  auto const values = counts.edges * heads.count * scalar_bytes;
  return none_without_edges(
      {"dynamic_scores_backward",
       bytes_of_pattern(counts) + bytes_of_lists(counts, true) + 2 * of_rows + 3 * of_columns + 2 * values,
       2 * of_rows + of_columns},
      counts, heads);
}

template<class T>
struct StaticScores {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  T const* s;
  T const* t;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const own = s[row * num_heads + head];
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      values[e * num_heads + head] = leaky(own + t[columns[e] * num_heads + head]);
  }
};

template<class T>
struct StaticBackward {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  T const* s;
  T const* t;
  T* gradient;
  T* ds;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const own = s[row * num_heads + head];
    T sum = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto& g = gradient[e * num_heads + head];
      g *= leaky_slope(own + t[columns[e] * num_heads + head]);
      sum += g;
    }
    ds[row * num_heads + head] = sum;
  }
};

/// dt_jh := sum_i g_ijh.
template<class T>
struct SumsOfColumns {
  Offset const* offsets;
  Offset const* places;
  std::int64_t num_heads;
  T const* gradient;
  T* dt;

  KOKKOS_FUNCTION void operator()(std::int64_t column, std::int64_t head) const {
    T sum = 0;
    for (auto entry = offsets[column]; entry < offsets[column + 1]; ++entry)
      sum += gradient[places[entry] * num_heads + head];
    dt[column * num_heads + head] = sum;
  }
};

template<class T>
struct DynamicScores {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const width = heads.width;
    T const* const left = l + (row * heads.count + head) * width;
    T const* const factors = a + head * width;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      T const* const right = r + (columns[e] * heads.count + head) * width;
      T sum = 0;
      for (std::int64_t c = 0; c < width; ++c)
        sum += factors[c] * leaky(left[c] + right[c]);
      values[e * heads.count + head] = sum;
    }
  }
};

/// dL, and the terms of da.
template<class T>
struct DynamicRows {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T const* gradient;
  T* dl;
  T* terms;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const width = heads.width;
    auto const place = (row * heads.count + head) * width;
    T const* const left = l + place;
    T const* const factors = a + head * width;
    for (std::int64_t c = 0; c < width; ++c)
      dl[place + c] = terms[place + c] = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto const g = gradient[e * heads.count + head];
      T const* const right = r + (columns[e] * heads.count + head) * width;
      for (std::int64_t c = 0; c < width; ++c) {
        auto const z = left[c] + right[c];
        dl[place + c] += g * factors[c] * leaky_slope(z);
        terms[place + c] += g * leaky(z);
      }
    }
  }
};

/// dR += .
template<class T>
struct DynamicColumns {
  Offset const* offsets;
  LocalColumn const* rows;
  Offset const* places;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T const* gradient;
  T* dr;

  KOKKOS_FUNCTION void operator()(std::int64_t column, std::int64_t head) const {
    auto const width = heads.width;
    auto const place = (column * heads.count + head) * width;
    T const* const factors = a + head * width;
    for (auto entry = offsets[column]; entry < offsets[column + 1]; ++entry) {
      auto const g = gradient[places[entry] * heads.count + head];
      T const* const left = l + (rows[entry] * heads.count + head) * width;
      for (std::int64_t c = 0; c < width; ++c)
        dr[place + c] += g * factors[c] * leaky_slope(left[c] + r[place + c]);
    }
  }
};

} // namespace

template<class T>
void static_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                   std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t, Vector<T> const& values) {
  passes.add(pass_of_static(counts_of(block), num_heads, sizeof(T)));
  constexpr auto label = "orthant::pmm::static_scores";
  if constexpr (runs_on_host)
    return for_each_list(exec, label, block.num_rows, host_edges::best_edge_kernels<T>().static_scores,
                         host_edges::HostStaticScores<T>{lists_of_rows(block, {num_heads, 1}), s.data(),
                                                         t.data(), values.data(), nullptr, nullptr});
  for_each_row_and_head(exec, label, block.num_rows, num_heads,
                        StaticScores<T>{block.row_offsets.data(), block.columns.data(), num_heads, s.data(),
                                        t.data(), values.data()});
}

template<class T>
void static_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                            std::int64_t num_heads, Vector<T> const& s, Vector<T> const& t,
                            Vector<T> const& gradient, Vector<T> const& ds, Vector<T> const& dt) {
  passes.add(pass_of_static_backward(counts_of(block), num_heads, sizeof(T)));
  constexpr auto label = "orthant::pmm::static_scores_backward";
  constexpr auto label_of_columns = "orthant::pmm::static_scores_backward/columns";
  if constexpr (runs_on_host) {
    auto const& kernels = host_edges::best_edge_kernels<T>();
    // By column, numbers of edges lie anywhere. One thread adds them row by row: in the same order, as rows ascend in both.
    auto const adds_to_columns = exec.concurrency() == 1;
    if (adds_to_columns)
      Kokkos::deep_copy(exec, runtime::part_of(dt, 0, block.num_columns * num_heads), T{0});
    using Scores = host_edges::HostStaticScores<T>;
    for_each_list(exec, label, block.num_rows, kernels.static_scores_backward,
                  Scores{lists_of_rows(block, {num_heads, 1}), s.data(), t.data(), gradient.data(), ds.data(),
                         adds_to_columns ? dt.data() : nullptr});
    if (adds_to_columns) return;
    return for_each_list(exec, label_of_columns, block.num_columns, kernels.sum_edges,
                         Scores{lists_of_columns(block, {num_heads, 1}), nullptr, nullptr, gradient.data(),
                                dt.data(), nullptr});
  }
  for_each_row_and_head(exec, label, block.num_rows, num_heads,
                        StaticBackward<T>{block.row_offsets.data(), block.columns.data(), num_heads, s.data(),
                                          t.data(), gradient.data(), ds.data()});
  for_each_row_and_head(exec, label_of_columns, block.num_columns, num_heads,
                        SumsOfColumns<T>{block.column_offsets.data(), block.places.data(), num_heads,
                                         gradient.data(), dt.data()});
}

template<class T>
void dynamic_scores(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                    Heads const& heads, DynamicOperands<T> const& operands, Vector<T> const& values) {
  passes.add(pass_of_dynamic(counts_of(block), heads, sizeof(T)));
  constexpr auto label = "orthant::pmm::dynamic_scores";
  if constexpr (runs_on_host)
    return for_each_list(exec, label, block.num_rows, host_edges::best_edge_kernels<T>().dynamic_scores,
                         host_edges::HostDynamicScores<T>{lists_of_rows(block, heads),
                                                          operands.of_rows.data(), operands.of_columns.data(),
                                                          operands.attention.data(), values.data()});
  for_each_row_and_head(exec, label, block.num_rows, heads.count,
                        DynamicScores<T>{block.row_offsets.data(), block.columns.data(), heads,
                                         operands.of_rows.data(), operands.of_columns.data(),
                                         operands.attention.data(), values.data()});
}

template<class T>
void dynamic_scores_backward(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                             Heads const& heads, DynamicOperands<T> const& operands,
                             Vector<T> const& gradient, DynamicGradients<T> const& gradients) {
  passes.add(pass_of_dynamic_backward(counts_of(block), heads, sizeof(T)));
  for_each_row_and_head(exec, "orthant::pmm::dynamic_scores_backward/rows", block.num_rows, heads.count,
                        DynamicRows<T>{block.row_offsets.data(), block.columns.data(), heads,
                                       operands.of_rows.data(), operands.of_columns.data(),
                                       operands.attention.data(), gradient.data(), gradients.of_rows.data(),
                                       gradients.attention_of_rows.data()});
  for_each_row_and_head(exec, "orthant::pmm::dynamic_scores_backward/columns", block.num_columns, heads.count,
                        DynamicColumns<T>{block.column_offsets.data(), block.rows.data(), block.places.data(),
                                          heads, operands.of_rows.data(), operands.of_columns.data(),
                                          operands.attention.data(), gradient.data(),
                                          gradients.of_columns.data()});
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
                              Vector<T> const&, Vector<T> const&, Vector<T> const&);                         \
  template void static_scores_backward(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&,           \
                                       std::int64_t, Vector<T> const&, Vector<T> const&, Vector<T> const&,   \
                                       Vector<T> const&, Vector<T> const&);                                  \
  template void dynamic_scores(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, Heads const&,     \
                               DynamicOperands<T> const&, Vector<T> const&);                                 \
  template void dynamic_scores_backward(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&,          \
                                        Heads const&, DynamicOperands<T> const&, Vector<T> const&,           \
                                        DynamicGradients<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm

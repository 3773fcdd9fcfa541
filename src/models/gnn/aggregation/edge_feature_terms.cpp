// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/attention_scores.hpp"

#include "pmm/edges/edge_kernels_device.hpp"

namespace orthant::models {
namespace {

/// Terms of the edges of row i in the sums dB: E_ef g_eh.
template<class T>
struct StaticTerms {
  std::int64_t num_features, num_heads;
  runtime::Offset const* offsets;
  T const* features;
  T const* gradient;

  KOKKOS_FUNCTION T operator()(std::int64_t row, std::int64_t column) const {
    T sum = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      sum += features[e * num_features + column / num_heads] * gradient[e * num_heads + column % num_heads];
    return sum;
  }
  void add_row(std::int64_t row, T* sums) const {
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      for (std::int64_t f = 0; f < num_features; ++f)
#pragma GCC ivdep
        for (std::int64_t h = 0; h < num_heads; ++h)
          sums[f * num_heads + h] += features[e * num_features + f] * gradient[e * num_heads + h];
  }
};

/// Terms of the edges of row i in the sums dW: E_ef g_eh a_hc leaky'(z_ehc).
template<class T>
struct DynamicTerms {
  pmm::device_edges::FeatureTerm<T> features;
  pmm::Heads heads;
  runtime::Offset const* offsets;
  runtime::LocalColumn const* columns;
  T const* of_rows;
  T const* of_columns;
  T const* attention;
  T const* gradient;

  /// g_eh a_hc leaky'(z_ehc).
  KOKKOS_FUNCTION T slope(std::int64_t row, runtime::Offset edge, std::int64_t c) const {
    auto const z = of_rows[row * heads.columns() + c] + of_columns[columns[edge] * heads.columns() + c] +
                   features(edge, c);
    return gradient[edge * heads.count + c / heads.width] * attention[c] * pmm::device_edges::leaky_slope(z);
  }
  KOKKOS_FUNCTION T operator()(std::int64_t row, std::int64_t column) const {
    auto const f = column / heads.columns();
    auto const c = column % heads.columns();
    T sum = 0;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      sum += features.values[e * features.count + f] * slope(row, e, c);
    return sum;
  }
  void add_row(std::int64_t row, T* sums) const {
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      for (std::int64_t c = 0; c < heads.columns(); ++c) {
        auto const term = slope(row, e, c);
        for (std::int64_t f = 0; f < features.count; ++f)
          sums[f * heads.columns() + c] += features.values[e * features.count + f] * term;
      }
  }
};

} // namespace

template<class T>
pmm::EdgeFeatureTerm<T> edge_feature_term(DefaultExec const& exec, AttentionSteps const& s,
                                          typename NetworkLayerParameters<T>::Attention const& parameters,
                                          Vector<T> const& features, pmm::Workspace<T> const& work) {
  auto const num_features = s.counts.features;
  if (s.num_edge_factors() == 0) return {}; // no features, or no heads
  auto const stride = s.plan.heads().columns();
  auto const first = s.first_head * s.heads.width;
  auto const all = parameters.edge_weight.storage();
  auto const weight = runtime::part_of(all, first, static_cast<std::int64_t>(all.extent(0)) - first);
  if (s.plan.is_dynamic()) return {features, weight, num_features, stride};
  auto const factors = work.lend(pmm::Slot::right, s.num_edge_factors());
  auto const heads = s.heads;
  T const* const w = weight.data();
  T const* const a = parameters.edge_vectors.storage().data() + first;
  T* const to = factors.data();
  for_each_number(
      exec, "orthant::models::edge_factors", s.num_edge_factors(), KOKKOS_LAMBDA(std::int64_t k) {
        auto const begin = k % heads.count * heads.width;
        T sum = 0;
        for (auto c = begin; c < begin + heads.width; ++c)
          sum += a[c] * w[k / heads.count * stride + c];
        to[k] = sum;
      });
  return {features, factors, num_features, heads.count};
}

template<class T>
void edge_parameter_gradients(DefaultExec const& exec, AttentionSteps const& s, pmm::EdgeBlock const& block,
                              typename NetworkLayerParameters<T>::Attention const& parameters,
                              pmm::EdgeFeatureTerm<T> const& term, pmm::DynamicOperands<T> const& operands,
                              Vector<T> const& gradient, pmm::Workspace<T> const& work) {
  auto const num_features = s.counts.features;
  if (num_features == 0) return;
  auto const sums = work.lend(pmm::Slot::left, s.num_edge_factors());
  RowSums<T> const rows{s.counts.rows,
                        s.num_edge_factors(),
                        AttentionSteps::rows_of_sum,
                        work.lend(pmm::Slot::sums, s.num_sums_of(s.counts.rows) * s.num_edge_factors()),
                        "orthant::models::edge_parameters/sums",
                        "orthant::models::edge_parameters/blocks"};
  auto const heads = s.heads;
  auto const stride = s.plan.heads().columns();
  auto const first = s.first_head * heads.width;
  auto const dw = parameters.edge_weight_gradient.storage();
  T* const to = dw.data() + first;
  T const* const from = sums.data();
  Kokkos::deep_copy(exec, dw, T{0}); // also the columns of other ranks' heads
  constexpr auto label = "orthant::models::edge_parameters";
  if (s.plan.is_dynamic()) {
    sum_rows(exec, rows,
             DynamicTerms<T>{{{term.features.data(), term.factors.data(), term.count, term.stride}},
                             heads,
                             block.row_offsets.data(),
                             block.columns.data(),
                             operands.of_rows.data(),
                             operands.of_columns.data(),
                             operands.attention.data(),
                             gradient.data()},
             sums.data());
    return for_each_number(
        exec, label, s.num_edge_factors(),
        KOKKOS_LAMBDA(std::int64_t k) { to[k / heads.columns() * stride + k % heads.columns()] = from[k]; });
  }
  sum_rows(exec, rows,
           StaticTerms<T>{num_features, heads.count, block.row_offsets.data(), term.features.data(),
                          gradient.data()},
           sums.data());
  auto const da = parameters.edge_vectors_gradient.storage();
  Kokkos::deep_copy(exec, da, T{0});
  T* const to_vectors = da.data() + first;
  T const* const w = parameters.edge_weight.storage().data() + first;
  T const* const a = parameters.edge_vectors.storage().data() + first;
  for_each_number(
      exec, label, heads.columns(), KOKKOS_LAMBDA(std::int64_t c) {
        T sum = 0;
        for (std::int64_t f = 0; f < num_features; ++f) {
          auto const db = from[f * heads.count + c / heads.width];
          sum += w[f * stride + c] * db;
          to[f * stride + c] = a[c] * db;
        }
        to_vectors[c] = sum;
      });
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template pmm::EdgeFeatureTerm<T> edge_feature_term(DefaultExec const&, AttentionSteps const&,              \
                                                     NetworkLayerParameters<T>::Attention const&,            \
                                                     Vector<T> const&, pmm::Workspace<T> const&);            \
  template void edge_parameter_gradients(DefaultExec const&, AttentionSteps const&, pmm::EdgeBlock const&,   \
                                         NetworkLayerParameters<T>::Attention const&,                        \
                                         pmm::EdgeFeatureTerm<T> const&, pmm::DynamicOperands<T> const&,     \
                                         Vector<T> const&, pmm::Workspace<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

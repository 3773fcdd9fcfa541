// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_products.hpp"

#include "pmm/edges/host_lists.hpp"

namespace orthant::pmm {
namespace {

template<class T>
struct Dots {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* x;
  T const* y;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    auto const width = heads.width;
    T const* const left = x + (row * heads.count + head) * width;
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      T const* const right = y + (columns[e] * heads.count + head) * width;
      T sum = 0;
      for (std::int64_t c = 0; c < width; ++c)
        sum += left[c] * right[c];
      values[e * heads.count + head] = sum;
    }
  }
};

/// result_kh := sum of w(v_eh) operand_lh over the entries of list k, which name l and the edge e.
template<class T>
struct WeightedSums {
  Offset const* offsets;
  LocalColumn const* others;
  Offset const* places; // null: entry e is edge e
  Heads heads;
  T const* values;
  T factor;
  T const* operand;
  T* result;

  KOKKOS_FUNCTION void operator()(std::int64_t k, std::int64_t head) const {
    auto const width = heads.width;
    T* const sums = result + (k * heads.count + head) * width;
    for (std::int64_t c = 0; c < width; ++c)
      sums[c] = 0;
    for (auto entry = offsets[k]; entry < offsets[k + 1]; ++entry) {
      auto const value = values[(places == nullptr ? entry : places[entry]) * heads.count + head];
      if (!(value > 0)) continue;
      auto const weight = value * factor;
      T const* const from = operand + (others[entry] * heads.count + head) * width;
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] += weight * from[c];
    }
  }
};

} // namespace

template<class T>
void edge_dots(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads, Vector<T> const& x,
               Vector<T> const& y, Vector<T> const& values) {
  constexpr auto label = "orthant::pmm::edge_dots";
  if constexpr (runs_on_host)
    return for_each_list(
        exec, label, block.num_rows, host_edges::best_edge_kernels<T>().dots,
        host_edges::HostDots<T>{lists_of_rows(block, heads), x.data(), y.data(), values.data()});
  for_each_row_and_head(
      exec, label, block.num_rows, heads.count,
      Dots<T>{block.row_offsets.data(), block.columns.data(), heads, x.data(), y.data(), values.data()});
}

template<class T>
void edge_spmm(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
               EdgeWeights<T> const& weights, Vector<T> const& y, Vector<T> const& p) {
  constexpr auto label = "orthant::pmm::edge_spmm";
  if constexpr (runs_on_host)
    return for_each_list(exec, label, block.num_rows, host_edges::best_edge_kernels<T>().weighted_sums,
                         host_edges::HostSums<T>{lists_of_rows(block, heads), weights.values.data(),
                                                 weights.factor, y.data(), p.data()});
  for_each_row_and_head(exec, label, block.num_rows, heads.count,
                        WeightedSums<T>{block.row_offsets.data(), block.columns.data(), nullptr, heads,
                                        weights.values.data(), weights.factor, y.data(), p.data()});
}

template<class T>
void edge_spmm_transposed(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
                          EdgeWeights<T> const& weights, Vector<T> const& x, Vector<T> const& d) {
  constexpr auto label = "orthant::pmm::edge_spmm_transposed";
  if constexpr (runs_on_host)
    return for_each_list(exec, label, block.num_columns, host_edges::best_edge_kernels<T>().weighted_sums,
                         host_edges::HostSums<T>{lists_of_columns(block, heads), weights.values.data(),
                                                 weights.factor, x.data(), d.data()});
  for_each_row_and_head(exec, label, block.num_columns, heads.count,
                        WeightedSums<T>{block.column_offsets.data(), block.rows.data(), block.places.data(),
                                        heads, weights.values.data(), weights.factor, x.data(), d.data()});
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

} // namespace orthant::pmm

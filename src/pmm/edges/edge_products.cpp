// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_products.hpp"

#include "pmm/edges/edge_kernels_device.hpp"
#include "pmm/edges/host_lists.hpp"

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
                                          y.data(), p.data()});
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(),
                      device_edges::WeightedSums<T>{block.row_offsets.data(), block.columns.data(), nullptr,
                                                    heads, weights.values.data(), weights.factor, y.data(),
                                                    p.data()});
}

template<class T>
void edge_spmm_transposed(DefaultExec const& exec, EdgeBlock const& block, Heads const& heads,
                          EdgeWeights<T> const& weights, Vector<T> const& x, Vector<T> const& d) {
  constexpr auto label = "orthant::pmm::edge_spmm_transposed";
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_columns, heads.count,
                  host_edges::best_edge_kernels<T>().weighted_sums,
                  host_edges::HostSums<T>{lists_of_columns(block, heads), weights.values.data(),
                                          weights.factor, x.data(), d.data()});
  else
    device_edges::run(exec, label, block.num_columns, block.num_edges(),
                      device_edges::WeightedSums<T>{block.column_offsets.data(), block.rows.data(),
                                                    block.places.data(), heads, weights.values.data(),
                                                    weights.factor, x.data(), d.data()});
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

} // namespace orthant::pmm

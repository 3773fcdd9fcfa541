// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_softmax.hpp"

#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_softmax_device.hpp"
#include "runtime/comm/collectives.hpp"

namespace orthant::pmm {
namespace {

/// Bytes of the row offsets that a pass reads.
std::int64_t bytes_of_rows(EdgeCounts const& counts) {
  return (counts.rows + 1) * static_cast<std::int64_t>(sizeof(Offset));
}
std::int64_t bytes_of_columns(EdgeCounts const& counts) {
  return counts.edges * static_cast<std::int64_t>(sizeof(LocalColumn));
}

LocalPass pass_of_softmax(EdgeCounts const& counts, std::int64_t num_heads, std::int64_t scalar_bytes) {
  auto const values = counts.edges * num_heads * scalar_bytes;
  return {.name = "edge_softmax",
          .bytes_read = values + (values > 0 ? bytes_of_rows(counts) : 0),
          .bytes_written = values,
          .exponentials = counts.edges * num_heads};
}
LocalPass pass_of_backward(EdgeCounts const& counts, std::int64_t num_heads, std::int64_t scalar_bytes) {
  auto const values = counts.edges * num_heads * scalar_bytes;
  return {"edge_softmax_backward", 2 * values + (values > 0 ? bytes_of_rows(counts) : 0), values};
}
LocalPass pass_of_fill(EdgeCounts const& counts, std::int64_t num_heads, std::int64_t scalar_bytes) {
  auto const values = counts.edges * num_heads * scalar_bytes;
  return {"fill_dropped", values > 0 ? counts.edges * scalar_bytes : 0, values};
}
LocalPass pass_of_drop(EdgeCounts const& counts, std::int64_t num_heads, std::int64_t scalar_bytes) {
  auto const values = counts.edges * num_heads * scalar_bytes;
  auto const ids = (counts.rows + counts.columns) * static_cast<std::int64_t>(sizeof(std::int64_t));
  return {.name = "drop_edges",
          .bytes_read = values + (values > 0 ? bytes_of_rows(counts) + bytes_of_columns(counts) + ids : 0),
          .bytes_written = values,
          .random_numbers = counts.edges * num_heads};
}

template<class T>
struct Drops {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  std::int64_t const* row_ids;
  std::int64_t const* column_ids;
  std::int64_t first_head;
  std::int64_t num_all_heads;
  double probability;
  runtime::RandomStream stream;
  T* values;

  KOKKOS_FUNCTION void drop(Offset e, std::int64_t row, std::int64_t head) const {
    auto const key = column_ids[columns[e]] * num_all_heads + first_head + head;
    if (stream.bernoulli(probability, static_cast<std::uint64_t>(row_ids[row]),
                         static_cast<std::uint64_t>(key)))
      values[e * num_heads + head] = -values[e * num_heads + head];
  }
  /// Drops edges of a whole row; used on hosts. Devices call sum() instead.
  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e)
      drop(e, row, head);
  }
  KOKKOS_FUNCTION T sum(RowTeam const& team, detail::ListPart const& part) const {
    device_edges::for_each_edge(team, part, [&](Offset e) { drop(e, part.list, part.head); });
    return 0;
  }
};

/// Runs the host kernel, which takes all heads of a row at once, or the device kernel.
template<class T, class Rows, class DeviceKernel>
void run_part(DefaultExec const& exec, EdgeBlock const& block, Rows const& rows, char const* label,
              void (*host_edges::HostEdgeKernels<T>::*host_kernel)(Rows const&, std::int64_t, std::int64_t),
              DeviceKernel const& device_kernel) {
  if constexpr (runs_on_host)
    for_each_list(exec, label, block.num_rows, rows.num_heads,
                  host_edges::best_edge_kernels<T>().*host_kernel, rows);
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(), device_kernel);
}

/// The parts of a softmax between its collectives; each uses only this rank's edges.
template<class T>
struct SoftmaxParts {
  DefaultExec const& exec;
  EdgeBlock const& block;
  host_edges::HostSoftmax<T> rows;

  void find_maxima() const {
    run_part(exec, block, rows, "orthant::pmm::edge_softmax/maxima",
             &host_edges::HostEdgeKernels<T>::find_maxima,
             device_edges::Maxima<T>{rows.offsets, rows.num_heads, rows.values, rows.maxima});
  }
  void exponentials() const {
    run_part(
        exec, block, rows, "orthant::pmm::edge_softmax/exponentials",
        &host_edges::HostEdgeKernels<T>::exponentials,
        device_edges::Exponentials<T>{rows.offsets, rows.num_heads, rows.maxima, rows.values, rows.sums});
  }
  void shares() const {
    run_part(exec, block, rows, "orthant::pmm::edge_softmax", &host_edges::HostEdgeKernels<T>::shares,
             device_edges::Shares<T>{rows.offsets, rows.num_heads, rows.sums, rows.values});
  }
};

/// The parts of the adjoint of a softmax between its collectives.
template<class T>
struct SoftmaxBackwardParts {
  DefaultExec const& exec;
  EdgeBlock const& block;
  host_edges::HostSoftmaxBackward<T> rows;

  void find_sums() const {
    run_part(exec, block, rows, "orthant::pmm::edge_softmax_backward/sums",
             &host_edges::HostEdgeKernels<T>::gradient_sums,
             device_edges::GradientSums<T>{rows.offsets, rows.num_heads, rows.values, rows.factor,
                                           rows.gradient, rows.sums});
  }
  void to_scores() const {
    run_part(exec, block, rows, "orthant::pmm::edge_softmax_backward",
             &host_edges::HostEdgeKernels<T>::score_gradients,
             device_edges::ScoreGradients<T>{rows.offsets, rows.num_heads, rows.values, rows.factor,
                                             rows.sums, rows.gradient});
  }
};

} // namespace

template<class T>
void edge_softmax(DefaultExec const& exec, runtime::Communicator const& axis, runtime::PassLedger& passes,
                  EdgeBlock const& block, std::int64_t num_heads, Vector<T> const& values,
                  Workspace<T> const& work) {
  passes.add(pass_of_softmax(counts_of(block), num_heads, sizeof(T)));
  auto const count = block.num_rows * num_heads;
  auto const maxima = work.lend(Slot::left, count);
  auto const sums = work.lend(Slot::right, count);
  SoftmaxParts<T> const parts{
      exec, block, {block.row_offsets.data(), num_heads, values.data(), maxima.data(), sums.data()}};
  // If this rank has all edges of its rows, one kernel runs all parts while each row is in the cache.
  if constexpr (runs_on_host)
    if (axis.size() == 1)
      return for_each_list(exec, "orthant::pmm::edge_softmax", block.num_rows, num_heads,
                           host_edges::best_edge_kernels<T>().softmax, parts.rows);
  parts.find_maxima();
  if (count > 0) runtime::all_reduce(exec, axis, maxima, runtime::Reduction::max);
  parts.exponentials();
  if (count > 0) runtime::all_reduce(exec, axis, sums);
  parts.shares();
}

template<class T>
void edge_softmax_backward(DefaultExec const& exec, runtime::Communicator const& axis,
                           runtime::PassLedger& passes, EdgeBlock const& block, std::int64_t num_heads,
                           EdgeWeights<T> const& weights, Vector<T> const& gradient,
                           Workspace<T> const& work) {
  passes.add(pass_of_backward(counts_of(block), num_heads, sizeof(T)));
  auto const count = block.num_rows * num_heads;
  auto const sums = work.lend(Slot::left, count);
  SoftmaxBackwardParts<T> const parts{exec,
                                      block,
                                      {block.row_offsets.data(), num_heads, weights.values.data(),
                                       weights.factor, gradient.data(), sums.data()}};
  if constexpr (runs_on_host)
    if (axis.size() == 1)
      return for_each_list(exec, "orthant::pmm::edge_softmax_backward", block.num_rows, num_heads,
                           host_edges::best_edge_kernels<T>().softmax_backward, parts.rows);
  parts.find_sums();
  if (count > 0) runtime::all_reduce(exec, axis, sums);
  parts.to_scores();
}

template<class T>
void drop_edges(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                std::int64_t num_heads, EdgeKeys const& keys, double probability,
                runtime::RandomStream const& stream, Vector<T> const& values) {
  passes.add(pass_of_drop(counts_of(block), num_heads, sizeof(T)));
  Drops<T> const drops{block.row_offsets.data(),
                       block.columns.data(),
                       num_heads,
                       keys.row_ids.data(),
                       keys.column_ids.data(),
                       keys.first_head,
                       keys.num_heads,
                       probability,
                       stream,
                       values.data()};
  constexpr auto label = "orthant::pmm::drop_edges";
  if constexpr (runs_on_host)
    for_each_row_and_head(exec, label, block.num_rows, num_heads, drops);
  else
    device_edges::run(exec, label, block.num_rows, block.num_edges(), drops);
}

template<class T>
void fill_dropped(DefaultExec const& exec, runtime::PassLedger& passes, EdgeBlock const& block,
                  std::int64_t num_heads, Vector<T> const& kept, T fill, Vector<T> const& values) {
  passes.add(pass_of_fill(counts_of(block), num_heads, sizeof(T)));
  if (num_heads == 0) return; // more ranks along b than heads
  Kokkos::parallel_for(
      "orthant::pmm::fill_dropped",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, block.num_edges()),
      KOKKOS_LAMBDA(std::int64_t e) {
        for (std::int64_t head = 0; kept[e] == 0 && head < num_heads; ++head)
          values[e * num_heads + head] = fill;
      });
}

void plan_edge_softmax(StepPlan& step, Axis axis, EdgeCounts const& counts, std::int64_t num_heads) {
  step.add_pass(pass_of_softmax(counts, num_heads, step.scalar_bytes(1)));
  auto const bytes = step.scalar_bytes(counts.rows * num_heads);
  for (int i = 0; i < 2 && bytes > 0; ++i)
    step.add_call(runtime::Operation::all_reduce, axis, bytes);
}

void plan_edge_softmax_backward(StepPlan& step, Axis axis, EdgeCounts const& counts, std::int64_t num_heads) {
  step.add_pass(pass_of_backward(counts, num_heads, step.scalar_bytes(1)));
  auto const bytes = step.scalar_bytes(counts.rows * num_heads);
  if (bytes > 0) step.add_call(runtime::Operation::all_reduce, axis, bytes);
}

void plan_fill_dropped(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads) {
  step.add_pass(pass_of_fill(counts, num_heads, step.scalar_bytes(1)));
}

void plan_drop_edges(StepPlan& step, EdgeCounts const& counts, std::int64_t num_heads) {
  step.add_pass(pass_of_drop(counts, num_heads, step.scalar_bytes(1)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void edge_softmax(DefaultExec const&, runtime::Communicator const&, runtime::PassLedger&,         \
                             EdgeBlock const&, std::int64_t, Vector<T> const&, Workspace<T> const&);         \
  template void edge_softmax_backward(DefaultExec const&, runtime::Communicator const&,                      \
                                      runtime::PassLedger&, EdgeBlock const&, std::int64_t,                  \
                                      EdgeWeights<T> const&, Vector<T> const&, Workspace<T> const&);         \
  template void fill_dropped(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, std::int64_t,       \
                             Vector<T> const&, T, Vector<T> const&);                                         \
  template void drop_edges(DefaultExec const&, runtime::PassLedger&, EdgeBlock const&, std::int64_t,         \
                           EdgeKeys const&, double, runtime::RandomStream const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm

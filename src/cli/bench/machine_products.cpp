// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/machine_products.hpp"

#include "cli/bench/bench.hpp"
#include "models/core/activation.hpp"
#include "models/core/device_copy.hpp"
#include "models/core/graph_operands.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

using runtime::Communicator;
using runtime::DefaultExec;

/// A matrix as training holds it.
template<class T>
struct HeldMatrix {
  HeldMatrix(char const* label, std::int64_t rows, std::int64_t columns)
      : numbers(runtime::make_zeros<T>(label, static_cast<std::size_t>(rows * columns))),
        matrix(pmm::as_matrix(numbers, rows, columns)) {}

  runtime::Vector<T> numbers;
  runtime::Matrix<T> matrix; // does not own them
};

constexpr std::int64_t num_rows = 131072; // of tall matrices
constexpr std::int64_t width = 128;

/// Median seconds of one work, over ranks and repeats.
double seconds_of(Communicator const& world, std::int64_t repeat, std::function<void()> work) {
  std::array works{std::move(work)};
  return time_in_turn(world, DefaultExec(), works, repeat).front().median;
}

double launch_seconds(Communicator const& world, std::int64_t repeat) {
  constexpr auto num_kernels = 100;
  DefaultExec const exec;
  return seconds_of(world, repeat,
                    [&] {
                      for (auto i = 0; i < num_kernels; ++i)
                        Kokkos::parallel_for("orthant::cli::launch",
                                             Kokkos::RangePolicy<DefaultExec>(exec, 0, 1),
                                             KOKKOS_LAMBDA(std::int64_t){});
                    }) /
         num_kernels;
}

/// flop / s of a rank in Q = H W, dH = dQ W^T and dW = H^T dQ, with so many columns of Q.
template<class Operand>
double dense_rate(Communicator const& world, std::int64_t num_columns, std::int64_t repeat) {
  using pmm::Transpose;
  using Result = runtime::SumOf<Operand>;
  DefaultExec const exec;
  HeldMatrix<Operand> const h("orthant::cli::h", num_rows, width);
  HeldMatrix<Operand> const q("orthant::cli::q", num_rows, num_columns);
  HeldMatrix<Operand> const w("orthant::cli::w", width, num_columns);
  HeldMatrix<Result> const dw("orthant::cli::dw", width, num_columns);
  auto const seconds = seconds_of(world, repeat, [&] {
    pmm::local_gemm<Operand>(exec, 1, Transpose::no, h.matrix, Transpose::no, w.matrix, 0, q.matrix);
    pmm::local_gemm<Operand>(exec, 1, Transpose::no, q.matrix, Transpose::yes, w.matrix, 0, h.matrix);
    pmm::local_gemm<Operand, Result>(exec, 1, Transpose::yes, h.matrix, Transpose::no, q.matrix, 0,
                                     dw.matrix);
  });
  return 3.0 * 2 * num_rows * width * static_cast<double>(num_columns) / seconds;
}

pmm::WidthTable shares_of_narrow(Communicator const& world, double rate, std::int64_t repeat) {
  pmm::WidthTable shares;
  for (std::int64_t const columns : {8, 16, 32, 64})
    shares.points.push_back({columns, std::min(1.0, dense_rate<float>(world, columns, repeat) / rate)});
  shares.points.push_back({width, 1});
  return shares;
}

/// The first columns of a block, all rows. Through the host.
pmm::SparseBlock<float> first_columns(pmm::SparseBlock<float> const& block, std::int64_t num_columns) {
  models::HostNumbers<runtime::Offset> const offsets_there(block.csr.row_offsets);
  models::HostNumbers<runtime::LocalColumn> const columns_there(block.csr.columns);
  models::HostNumbers<float> const values_there(block.csr.values);
  auto const offsets = offsets_there.values();
  auto const columns = columns_there.values();
  auto const values = values_there.values();
  std::vector<runtime::Offset> kept_offsets{0};
  std::vector<runtime::LocalColumn> kept_columns;
  std::vector<float> kept_values;
  for (std::size_t row = 0; row + 1 < offsets.size(); ++row) {
    for (auto k = offsets[row]; k < offsets[row + 1]; ++k) {
      auto const entry = static_cast<std::size_t>(k);
      if (columns[entry] >= num_columns) break; // they ascend
      kept_columns.push_back(columns[entry]);
      if (!values.empty()) kept_values.push_back(values[entry]);
    }
    kept_offsets.push_back(static_cast<runtime::Offset>(kept_columns.size()));
  }
  auto part = block;
  part.csr.num_columns = num_columns;
  if (block.column_scale.extent(0) > 0)
    part.column_scale =
        Kokkos::subview(block.column_scale, std::pair(std::size_t{0}, static_cast<std::size_t>(num_columns)));
  part.csr.row_offsets = models::to_vector<runtime::Offset>("orthant::cli::row_offsets", kept_offsets);
  part.csr.columns = models::to_vector<runtime::LocalColumn>("orthant::cli::columns", kept_columns);
  part.csr.values = models::to_vector<float>("orthant::cli::values", kept_values);
  return part;
}

/// Seconds of a product with the block, without the passes over operand and result.
double sparse_seconds(Communicator const& world, pmm::LocalSpmm<float> const& kernel, std::int64_t columns,
                      double memory_bytes_per_second, std::int64_t repeat) {
  auto const& csr = kernel.block().csr;
  HeldMatrix<float> const b("orthant::cli::b", csr.num_columns, columns);
  HeldMatrix<float> const c("orthant::cli::c", csr.num_rows, columns);
  auto const multiply = [&] { kernel.apply(DefaultExec(), {0, csr.num_rows}, b.matrix, c.matrix); };
  constexpr auto most_tries = 20; // the first products choose their way
  for (auto i = 0; i < most_tries && kernel.way_of(columns).empty(); ++i)
    multiply();
  auto const seconds = seconds_of(world, repeat, multiply);
  auto const passes = static_cast<double>((csr.num_rows + csr.num_columns) * columns) * sizeof(float) /
                      memory_bytes_per_second;
  return std::max(seconds - passes, seconds / 2);
}

pmm::Machine::SparseProducts sparse_times(Communicator const& world, graph::GraphStore const& store,
                                          double memory_bytes_per_second, std::int64_t repeat) {
  auto const num_vertices = store.facts().num_vertices;
  pmm::ProcessGrid const grid(world, {1, world.size(), 1, 1});
  pmm::Placement const placement{
      {pmm::Axis::x, pmm::Axis::y, pmm::Storage::replicated, models::order_p1, models::order_p2},
      {num_vertices, num_vertices}};
  auto const matrix = models::AdjacencyBlocks<float>(grid, store).get(placement, false);
  auto const& whole = matrix.forward();
  auto const& block = whole.block();
  constexpr auto num_parts = 8;
  pmm::LocalSpmm<float> const part(first_columns(block, std::max<std::int64_t>(num_vertices / num_parts, 1)),
                                   pmm::Contents::fixed);
  auto const most_rows =
      static_cast<double>(runtime::all_reduced(world, block.csr.num_rows, runtime::Reduction::max));
  auto const most_nonzeros = [&](pmm::LocalSpmm<float> const& kernel) {
    return static_cast<double>(
        runtime::all_reduced(world, kernel.block().csr.num_nonzeros(), runtime::Reduction::max));
  };
  auto const nonzeros_of_whole = most_nonzeros(whole);
  auto const nonzeros_of_part = most_nonzeros(part);
  pmm::Machine::SparseProducts times;
  for (std::int64_t const columns : {4, 8, 16, 32, 64, 128}) {
    auto const of_whole = sparse_seconds(world, whole, columns, memory_bytes_per_second, repeat);
    auto const of_part = sparse_seconds(world, part, columns, memory_bytes_per_second, repeat);
    auto const slope = (of_whole - of_part) / std::max(1.0, nonzeros_of_whole - nonzeros_of_part);
    // A row does not take less than no time, and a non-zero no more than if it did all.
    auto const per_nonzero =
        std::clamp(slope, 0.1 * of_whole / nonzeros_of_whole, of_whole / nonzeros_of_whole);
    times.per_nonzero.points.push_back({columns, per_nonzero});
    times.per_row.points.push_back(
        {columns, std::max(0.0, of_whole - nonzeros_of_whole * per_nonzero) / most_rows});
  }
  return times;
}

double random_number_seconds(Communicator const& world, std::int64_t repeat) {
  DefaultExec const exec;
  runtime::PassLedger passes;
  HeldMatrix<float> const z("orthant::cli::z", num_rows, width);
  runtime::Vector<std::int64_t> const ids("orthant::cli::ids", num_rows);
  auto const seconds = [&](double probability) {
    return seconds_of(world, repeat, [&] {
      models::relu_dropout(exec, passes, z.matrix, {.probability = probability}, {.original_ids = ids});
    });
  };
  return std::max(0.0, seconds(0.5) - seconds(0)) / (num_rows * width);
}

} // namespace

void measure_products(Communicator const& world, graph::GraphStore const& store, std::int64_t repeat,
                      pmm::Machine& machine) {
  machine.launch_seconds = launch_seconds(world, repeat);
  machine.dense.fp32 = dense_rate<float>(world, width, repeat);
  machine.dense.of_16_bits = dense_rate<runtime::Bf16Number>(world, width, repeat);
  machine.dense.narrow = shares_of_narrow(world, machine.dense.fp32, repeat);
  machine.random_number_seconds = random_number_seconds(world, repeat);
  machine.sparse = sparse_times(world, store, machine.memory.bytes_per_second, repeat);
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/machine_products.hpp"

#include "cli/bench/bench.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/layers/activation.hpp"
#include "models/parameters/device_copy.hpp"
#include "pmm/attention/attention.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/token_rows/feed_forward.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>

namespace orthant::cli {
namespace {

constexpr std::size_t swept_bytes = std::size_t{96} << 20; // larger than the caches of a core
constexpr std::int64_t repeats_after_sweeps = 25;

} // namespace

MachineTimer::MachineTimer(runtime::Communicator const& world, std::int64_t repeat)
    : world_(world),
      repeat_(repeat) {
  if (world.instruments().clock.machine() != nullptr)
    swept_ = runtime::make_zeros<float>("orthant::cli::swept", swept_bytes / sizeof(float));
}

void MachineTimer::sweep_caches() const {
  runtime::DefaultExec const exec;
  auto const swept = swept_; // a local copy, so that the kernel does not capture `this`
  Kokkos::parallel_for(
      "orthant::cli::sweep", Kokkos::RangePolicy<runtime::DefaultExec>(exec, 0, swept.extent(0)),
      KOKKOS_LAMBDA(std::size_t k) { swept(k) += 1; });
}

double MachineTimer::seconds_of(std::function<void()> work) const {
  runtime::DefaultExec const exec;
  if (!sweeps_caches()) {
    std::array works{std::move(work)};
    return time_in_turn(world_, exec, works, repeat_).front().median;
  }
  work(); // first run: algorithms are chosen
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < (repeat_ > 0 ? repeat_ : repeats_after_sweeps); ++i) {
    sweep_caches();
    seconds.push_back(time_together(world_, exec, work));
  }
  return summarise(world_, std::move(seconds)).median;
}

namespace {

using runtime::Communicator;
using runtime::DefaultExec;

/// A matrix stored as in training.
template<class T>
struct HeldMatrix {
  HeldMatrix(char const* label, std::int64_t rows, std::int64_t columns)
      : numbers(runtime::make_zeros<T>(label, static_cast<std::size_t>(rows * columns))),
        matrix(pmm::as_matrix(numbers, rows, columns)) {}

  runtime::Vector<T> numbers;
  runtime::Matrix<T> matrix; // view of `numbers`
};

constexpr std::int64_t num_rows = 131072; // of tall matrices
constexpr std::int64_t product_width = 128;

/// Seconds of a small pass without the time of its bytes. Passes run one after the other, as in a step; if caches are swept, each pass is
/// timed alone.
double launch_seconds(MachineTimer const& timer, double memory_bytes_per_second) {
  constexpr std::int64_t side = 32;
  auto const num_passes = timer.sweeps_caches() ? 1 : 100;
  DefaultExec const exec;
  runtime::PassLedger passes;
  HeldMatrix<float> const z("orthant::cli::z", side, side);
  auto const seconds = timer.seconds_of([&] {
    for (auto i = 0; i < num_passes; ++i)
      models::relu_dropout(exec, passes, z.matrix, {}, {});
  });
  auto const of_memory = 2.0 * side * side * sizeof(float) / memory_bytes_per_second;
  return std::max(0.0, seconds / num_passes - of_memory);
}

/// Seconds of Q = H W, dH = dQ W^T and dW = H^T dQ, H [rows x inner], Q [rows x columns].
template<class Operand>
double seconds_of_dense(MachineTimer const& timer, std::int64_t rows, std::int64_t inner,
                        std::int64_t columns) {
  using pmm::Transpose;
  using Result = runtime::SumOf<Operand>;
  DefaultExec const exec;
  HeldMatrix<Operand> const h("orthant::cli::h", rows, inner);
  HeldMatrix<Operand> const q("orthant::cli::q", rows, columns);
  HeldMatrix<Operand> const w("orthant::cli::w", inner, columns);
  HeldMatrix<Result> const dw("orthant::cli::dw", inner, columns);
  return timer.seconds_of([&] {
    pmm::local_gemm<Operand>(exec, 1, Transpose::no, h.matrix, Transpose::no, w.matrix, 0, q.matrix);
    pmm::local_gemm<Operand>(exec, 1, Transpose::no, q.matrix, Transpose::yes, w.matrix, 0, h.matrix);
    pmm::local_gemm<Operand, Result>(exec, 1, Transpose::yes, h.matrix, Transpose::no, q.matrix, 0,
                                     dw.matrix);
  });
}

/// The part of these seconds that reading operands and writing results take.
double seconds_of_passes(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                         std::int64_t bytes_of_number, double memory_bytes_per_second) {
  auto const numbers = rows * inner + inner * columns + rows * columns;
  return 3 * static_cast<double>(numbers * bytes_of_number) / memory_bytes_per_second;
}

/// flop / s of a rank in large products, without these passes.
template<class Operand>
double dense_rate(MachineTimer const& timer, std::int64_t num_columns, double memory_bytes_per_second) {
  auto const seconds = seconds_of_dense<Operand>(timer, num_rows, product_width, num_columns);
  auto const passes =
      seconds_of_passes(num_rows, product_width, num_columns, sizeof(Operand), memory_bytes_per_second);
  return 3.0 * 2 * num_rows * product_width * static_cast<double>(num_columns) /
         std::max(seconds - passes, seconds / 2);
}

/// Overhead of a dense product: seconds of a small one without its arithmetic, at the rate of products that narrow, and without its pass.
double dense_launch_seconds(MachineTimer const& timer, pmm::Machine const& machine) {
  using pmm::Transpose;
  constexpr std::int64_t side = 32;
  HeldMatrix<float> const h("orthant::cli::h", side, side);
  HeldMatrix<float> const w("orthant::cli::w", side, side);
  HeldMatrix<float> const q("orthant::cli::q", side, side);
  auto const seconds = timer.seconds_of([&] {
    pmm::local_gemm<float>(DefaultExec(), 1, Transpose::no, h.matrix, Transpose::no, w.matrix, 0, q.matrix);
  });
  auto const arithmetic = 2.0 * side * side * side / (machine.dense.fp32 * machine.dense.narrow.at(side));
  auto const pass = seconds_of_passes(side, side, side, sizeof(float), machine.memory.bytes_per_second) / 3;
  return std::max(0.0, seconds - arithmetic - pass - machine.launch_seconds);
}

/// Seconds and work of attention, forward and backward. The number of tokens is fixed; their sequences have a given length.
struct AttentionRun {
  double seconds = 0; // without bytes and launches
  double flops = 0;
  double rows = 0; // rows of scores
};

AttentionRun run_attention(MachineTimer const& timer, std::int64_t sequence, pmm::Machine const& machine) {
  constexpr std::int64_t num_tokens = 4096;
  pmm::AttentionShape const shape{.num_sequences = num_tokens / sequence,
                                  .sequence = sequence,
                                  .num_heads = 4,
                                  .num_kv_heads = 4,
                                  .head_dim = 32};
  DefaultExec const exec;
  runtime::PassLedger passes;
  auto const columns = shape.query_columns();
  std::vector<HeldMatrix<float>> held;
  for (auto i = 0; i < 8; ++i)
    held.emplace_back("orthant::cli::attention", num_tokens, columns);
  auto const panel = [&](std::size_t i) { return pmm::Panel<float>(held[i].matrix); };
  auto const row_numbers = static_cast<std::size_t>(shape.num_row_numbers());
  auto const log_sums = runtime::make_zeros<float>("orthant::cli::log_sums", row_numbers);
  auto const row_terms = runtime::make_zeros<float>("orthant::cli::row_terms", row_numbers);
  auto const seconds = timer.seconds_of([&] {
    pmm::AttentionOperands<float> const operands{panel(0), panel(1), panel(2)};
    pmm::attention_forward(exec, passes, shape, operands, panel(3), log_sums);
    pmm::attention_backward(exec, passes, shape, operands, panel(3), log_sums, panel(4),
                            {panel(5), panel(6), panel(7)}, row_terms);
  });
  auto const bytes_of_run = 2 * (passes.total.bytes_read + passes.total.bytes_written) / passes.total.passes;
  auto const of_memory = static_cast<double>(bytes_of_run) / machine.memory.bytes_per_second;
  return {std::max(seconds - of_memory - 2 * machine.launch_seconds, seconds / 2),
          static_cast<double>(attention_flops(shape) + attention_backward_flops(shape)),
          2 * static_cast<double>(row_numbers)};
}

/// Measures the seconds of products and of rows of scores; two sequence lengths separate them.
void measure_attention(MachineTimer const& timer, pmm::Machine& machine) {
  auto const brief = run_attention(timer, 32, machine);
  auto const lengthy = run_attention(timer, 256, machine); // same number of rows
  auto const per_flop = (lengthy.seconds - brief.seconds) / (lengthy.flops - brief.flops);
  // Measured times have errors. The bound keeps the time per row from becoming negative.
  machine.dense.attention =
      1 / std::clamp(per_flop, lengthy.seconds / lengthy.flops / 2, lengthy.seconds / lengthy.flops);
  machine.dense.attention_row_seconds =
      std::max(0.0, lengthy.seconds - lengthy.flops / machine.dense.attention) / lengthy.rows;
}

pmm::WidthTable shares_of_narrow(MachineTimer const& timer, double rate, double memory_bytes_per_second) {
  pmm::WidthTable shares;
  for (std::int64_t const columns : {2, 4, 8, 16, 32, 64})
    shares.points.push_back(
        {columns, std::min(1.0, dense_rate<float>(timer, columns, memory_bytes_per_second) / rate)});
  shares.points.push_back({product_width, 1});
  return shares;
}

/// First `num_columns` columns of a block, with all rows. Copies through the host.
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
      if (columns[entry] >= num_columns) break; // columns are sorted
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
double sparse_seconds(MachineTimer const& timer, pmm::LocalSpmm<float> const& kernel, std::int64_t columns,
                      double memory_bytes_per_second) {
  auto const& csr = kernel.block().csr;
  HeldMatrix<float> const b("orthant::cli::b", csr.num_columns, columns);
  HeldMatrix<float> const c("orthant::cli::c", csr.num_rows, columns);
  auto const multiply = [&] { kernel.apply(DefaultExec(), {0, csr.num_rows}, b.matrix, c.matrix); };
  // The first products choose the algorithm, which depends on the content of the caches.
  constexpr auto most_tries = 20;
  for (auto i = 0; i < most_tries && kernel.way_of(columns).empty(); ++i) {
    timer.sweep_caches();
    multiply();
  }
  auto const seconds = timer.seconds_of(multiply);
  auto const passes = static_cast<double>((csr.num_rows + csr.num_columns) * columns) * sizeof(float) /
                      memory_bytes_per_second;
  return std::max(seconds - passes, seconds / 2);
}

pmm::Machine::SparseProducts sparse_times(MachineTimer const& timer, graph::GraphStore const& store,
                                          double memory_bytes_per_second) {
  auto const& world = timer.world();
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
  for (std::int64_t const columns : {2, 4, 8, 16, 32, 64, 128}) {
    if (columns >= pmm::least_weighted_width(store.facts().num_operator_entries(), num_vertices))
      for (auto const& kernel : {whole, part})
        kernel.keep_weights(DefaultExec()); // as in training with this width
    auto const of_whole = sparse_seconds(timer, whole, columns, memory_bytes_per_second);
    auto const of_part = sparse_seconds(timer, part, columns, memory_bytes_per_second);
    auto const slope = (of_whole - of_part) / std::max(1.0, nonzeros_of_whole - nonzeros_of_part);
    // Measured times have errors. The bounds keep the time per row from becoming negative, and the time of non-zeros below the total.
    auto const per_nonzero =
        std::clamp(slope, 0.1 * of_whole / nonzeros_of_whole, of_whole / nonzeros_of_whole);
    times.per_nonzero.points.push_back({columns, per_nonzero});
    times.per_row.points.push_back(
        {columns, std::max(0.0, of_whole - nonzeros_of_whole * per_nonzero) / most_rows});
  }
  return times;
}

/// Measures how long a pass takes per random number, per exponential and per sum of a row, in addition to the time of its bytes. The time
/// of an exponential is that of GELU, including its other arithmetic.
void measure_passes(MachineTimer const& timer, pmm::Machine& machine) {
  DefaultExec const exec;
  runtime::PassLedger ledger;
  HeldMatrix<float> const z("orthant::cli::z", num_rows, product_width);
  runtime::Vector<std::int64_t> const ids("orthant::cli::ids", num_rows);
  auto const dropout = [&](double probability) {
    return timer.seconds_of([&] {
      models::relu_dropout(exec, ledger, z.matrix, {.probability = probability}, {.original_ids = ids});
    });
  };
  auto const beyond_bytes = [&](std::int64_t count, auto const& pass) {
    std::vector<runtime::LocalPass> list;
    ledger.list = &list;
    auto const seconds = timer.seconds_of(pass);
    ledger.list = nullptr;
    auto const of_memory = static_cast<double>(list.front().bytes()) / machine.memory.bytes_per_second;
    return std::max(0.0, seconds - of_memory) / static_cast<double>(count);
  };
  constexpr auto count = num_rows * product_width;
  HeldMatrix<float> const y("orthant::cli::y", num_rows, product_width);
  auto const numbers = z.numbers; // captured by the kernel
  Kokkos::parallel_for(
      "orthant::cli::spread", Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) { numbers(i) = static_cast<float>(i % 601 - 300) / 100; });
  auto const gelu = [&] { pmm::gelu(exec, ledger, z.matrix, y.matrix); };
  constexpr std::int64_t narrow = 32; // few columns, so that rows dominate
  runtime::Matrix<float> const rows(z.numbers.data(), count / narrow, narrow);
  auto const sums = runtime::make_zeros<float>("orthant::cli::sums", 2 * count / narrow);
  auto const moments = [&] { pmm::sum_row_moments(exec, ledger, pmm::RowNorm::layer, rows, sums); };
  machine.passes.exponential = beyond_bytes(count, gelu);
  machine.passes.row_sum = beyond_bytes(count / narrow, moments);
  machine.passes.random_number =
      std::max(0.0, dropout(0.5) - dropout(0)) / count; // last, because it leaves zeros in z
}

} // namespace

void measure_products(MachineTimer const& timer, graph::GraphStore const& store, pmm::Machine& machine,
                      std::function<void(std::string_view)> const& report) {
  auto const memory = machine.memory.bytes_per_second;
  report("dense products");
  machine.launch_seconds = launch_seconds(timer, memory);
  machine.dense.fp32 = dense_rate<float>(timer, product_width, memory);
  machine.dense.of_16_bits = dense_rate<runtime::Bf16Number>(timer, product_width, memory);
  machine.dense.narrow = shares_of_narrow(timer, machine.dense.fp32, memory);
  machine.dense.launch_seconds = dense_launch_seconds(timer, machine);
  report("attention");
  measure_attention(timer, machine);
  report("passes");
  measure_passes(timer, machine);
  report("sparse products");
  machine.sparse = sparse_times(timer, store, memory);
}

} // namespace orthant::cli

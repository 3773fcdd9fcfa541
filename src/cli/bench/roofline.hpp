#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Limits of the machine, measured in the same run as the results that are compared with them, on all ranks at once.
//
// Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009).

#include "cli/options/command.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/comm/communicator.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace orthant::cli {

// Memory and arithmetic:
//
//   stream   host: bytes / s of a_i := b_i + s c_i over arrays larger than the caches, 3 numbers per i
//            (McCalpin's STREAM triad: the read of a cache line before it is written is not counted)
//            device: bytes / s, read and written, of a copy within its memory
//   fma      flop / s of multiply-adds in registers, in our own loop (machine/machine_loops.hpp)
//   gemm     flop / s of a large square product by the library that is chosen for it, called directly
//
// The limit of arithmetic is the larger of fma and gemm. On a host this is fma, so a library with the wrong kernels for the processor
// shows. On a device, the library may use tensor cores, which fma does not.

/// Sizes of the measurements. A device has larger caches and is faster, so it gets more work, which still takes only milliseconds.
struct RooflineOptions {
  std::int64_t stream_mib = pmm::runs_on_host ? 96 : 1024; // of each array, on each rank
  std::int64_t gemm_size = pmm::runs_on_host ? 2048 : 8192;
};

void add_options(Command& command, RooflineOptions& options);

/// Sums over ranks.
struct Roofline {
  double stream_gb_per_s = 0;
  double fma_gflop_per_s = 0;
  double gemm_gflop_per_s = 0;

  [[nodiscard]] double arithmetic_gflop_per_s() const { return std::max(fma_gflop_per_s, gemm_gflop_per_s); }
  /// Lower bound of the seconds for this work: the slower of memory and arithmetic.
  [[nodiscard]] double seconds(double bytes, double flops) const;
  /// Adds the limits to a line, the kind of stream ("triad" or "copy"), and the library's share of the arithmetic limit.
  void describe(nlohmann::ordered_json& line) const;
};

/// Measures the limits, as the best of several runs. Collective.
template<class T>
[[nodiscard]] Roofline measure_roofline(runtime::Communicator const& world, RooflineOptions const& options);

extern template Roofline measure_roofline<float>(runtime::Communicator const&, RooflineOptions const&);
extern template Roofline measure_roofline<double>(runtime::Communicator const&, RooflineOptions const&);

// Limit of the gathers of a sparse product: rows at random places of an array as large as the operand are summed in registers
// (machine/machine_loops.hpp), on all ranks at once. A product also reads its matrix and writes its result. It can still exceed this
// limit, because rows that many others read stay in a nearer cache, which random places do not.

class GatherRoof {
 public:
  explicit GatherRoof(runtime::Communicator const& world) : world_(world) {}

  /// Bytes / s, summed over ranks, for `num_rows` rows of `row_bytes` bytes on each rank (the maximum of all ranks counts), with the best
  /// of several prefetch distances. Returns 0 on a device, where it is not measured. Takes about 20 ms for each new operand. Collective.
  [[nodiscard]] double bytes_per_second(std::int64_t num_rows, std::int64_t row_bytes);

 private:
  [[nodiscard]] double measure(std::int64_t num_rows, std::int64_t lines) const;

  runtime::Communicator const& world_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> measured_; // by number of rows and bytes per row
};

// Bytes that a sparse product moves, by count: with `gathered` a row of B per non-zero (a memory without caches), with `compulsory` the
// matrix, B and C once (a perfect cache). The true number lies between them.

struct SpmmBytes {
  double gathered = 0;
  double compulsory = 0;
};

/// `operand_bytes`, `result_bytes`: bytes per number of B and C.
template<class T>
[[nodiscard]] SpmmBytes bytes_of(pmm::SparseBlock<T> const& block, std::int64_t width,
                                 std::int64_t operand_bytes = sizeof(T),
                                 std::int64_t result_bytes = sizeof(T)) {
  auto const& csr = block.csr;
  auto const row_of_b = static_cast<double>(width * operand_bytes);
  auto const row_of_c = static_cast<double>(width * result_bytes);
  auto const matrix =
      csr.row_offsets.extent(0) * sizeof(runtime::Offset) +
      csr.columns.extent(0) * sizeof(runtime::LocalColumn) +
      (csr.values.extent(0) + block.row_scale.extent(0) + block.column_scale.extent(0)) * sizeof(T);
  return {static_cast<double>(csr.num_nonzeros()) * row_of_b,
          static_cast<double>(matrix) + static_cast<double>(csr.num_rows) * row_of_c +
              static_cast<double>(csr.num_columns) * row_of_b};
}

} // namespace orthant::cli

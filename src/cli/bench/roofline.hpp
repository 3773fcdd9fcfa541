#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the machine can do, measured in the run that is judged by it, by all ranks at once:
//
//   stream   host: bytes / s of a_i := b_i + s c_i over arrays larger than the caches, 3 numbers each i
//            (McCalpin's STREAM triad: a line that is read before it is written is not counted)
//            device: bytes / s, read and written, of a copy within its memory
//   fma      flop / s of multiply-adds in registers, in a loop of our own (fma_loop.hpp)
//   gemm     flop / s of a large square product: the library that is chosen for it, called by itself
//
// The limit of arithmetic is the larger of the last two. On a host that is fma, and a library with the wrong
// kernels for the processor shows. A device's library may use tensor cores, which fma does not reach.
//
// Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009).
//
// What a sparse product's operand can be gathered with: rows at random places of as large an array, added up in
// registers (gather_loop.hpp), by all ranks at once. A product also reads its matrix and writes its result; the
// vertices that many others name stay in a nearer cache, which random places do not, so that a product can exceed it.
//
// What a sparse product moves, by count. Gathered: a row of B for every non-zero, what a memory without
// caches would deliver. Compulsory: the matrix, B and C once, what no cache can save. The truth lies between.

#include "cli/options/command.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/spmm/local_spmm.hpp"
#include "runtime/comm/communicator.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace orthant::cli {

/// A device has larger caches and is faster: it gets more work, still some milliseconds.
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
  /// The least seconds of that much work: the slower of memory and arithmetic.
  [[nodiscard]] double seconds(double bytes, double flops) const;
  /// Adds the figures to a line, what the first is of ("triad" or "copy"), and the library's share of the
  /// limit of arithmetic.
  void describe(nlohmann::ordered_json& line) const;
};

/// The best of several runs. Collective.
template<class T>
[[nodiscard]] Roofline measure_roofline(runtime::Communicator const& world, RooflineOptions const& options);

extern template Roofline measure_roofline<float>(runtime::Communicator const&, RooflineOptions const&);
extern template Roofline measure_roofline<double>(runtime::Communicator const&, RooflineOptions const&);

class GatherRoof {
 public:
  explicit GatherRoof(runtime::Communicator const& world) : world_(world) {}

  /// Bytes / s, summed over ranks, from `num_rows` rows of `row_bytes` on each (the most of all ranks count): with the
  /// best of some distances of prefetch. 0 on a device: not
  /// measured. Takes some 20 ms for each new operand. Collective.
  [[nodiscard]] double bytes_per_second(std::int64_t num_rows, std::int64_t row_bytes);

 private:
  [[nodiscard]] double measure(std::int64_t num_rows, std::int64_t lines) const;

  runtime::Communicator const& world_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> measured_; // by rows and bytes of a row
};

struct SpmmBytes {
  double gathered = 0;
  double compulsory = 0;
};

/// `operand_bytes`: of a number of B, if that is not T.
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

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

#include "cli/options/command.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <cstdint>

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

} // namespace orthant::cli

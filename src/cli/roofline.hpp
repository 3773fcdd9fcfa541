#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the machine can do, measured in the run that is judged by it, by all ranks at once:
//
//   stream   host: bytes / s of a_i := b_i + s c_i over arrays larger than the caches, 3 numbers each i
//            (McCalpin's STREAM triad: a line that is read before it is written is not counted)
//            device: bytes / s, read and written, of a copy within its memory
//   gemm     flop / s of a large square product: OpenBLAS called by itself, on a device the vendor's library
//
// Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009).

#include "cli/command.hpp"
#include "pmm/host_parts.hpp"

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
  double gemm_gflop_per_s = 0;

  /// The least seconds of that much work: the slower of memory and arithmetic.
  [[nodiscard]] double seconds(double bytes, double flops) const;
  /// Adds both figures to a line, and what the first is of ("triad" or "copy").
  void describe(nlohmann::ordered_json& line) const;
};

/// The best of several runs. Collective.
template<class T>
[[nodiscard]] Roofline measure_roofline(runtime::Communicator const& world, RooflineOptions const& options);

extern template Roofline measure_roofline<float>(runtime::Communicator const&, RooflineOptions const&);
extern template Roofline measure_roofline<double>(runtime::Communicator const&, RooflineOptions const&);

} // namespace orthant::cli

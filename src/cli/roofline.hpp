#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the machine can do, measured in the run that is judged by it, by all ranks at once:
//
//   stream   bytes / s of a_i := b_i + s c_i over arrays larger than the caches, 3 numbers each i (McCalpin's
//            STREAM triad: a line that is read before it is written is not counted)
//   gemm     flop / s of a large square product, OpenBLAS called by itself
//
// Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (2009).

#include "cli/command.hpp"

#include <cstdint>

namespace orthant::cli {

struct RooflineOptions {
  std::int64_t stream_mib = 96; // of each of the three arrays, on each rank
  std::int64_t gemm_size = 2048;
};

void add_options(Command& command, RooflineOptions& options);

/// Sums over ranks.
struct Roofline {
  double stream_gb_per_s = 0;
  double gemm_gflop_per_s = 0;

  /// The least seconds of that much work: the slower of memory and arithmetic.
  [[nodiscard]] double seconds(double bytes, double flops) const;
  /// Adds both figures to a line.
  void describe(nlohmann::ordered_json& line) const;
};

/// The best of several runs. Collective.
template<class T>
[[nodiscard]] Roofline measure_roofline(runtime::Communicator const& world, RooflineOptions const& options);

extern template Roofline measure_roofline<float>(runtime::Communicator const&, RooflineOptions const&);
extern template Roofline measure_roofline<double>(runtime::Communicator const&, RooflineOptions const&);

} // namespace orthant::cli

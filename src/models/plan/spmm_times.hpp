#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How long a local product A^ B takes, by the width of B. Every non-zero of A^ is loaded once per product, and memory
// delivers whole cache lines; so a column of a narrow B costs more than a column of a wide one:
//
//   seconds = non-zeros  width  t(width)          t: per non-zero and column, from a table
//
// `orthant bench spmm --table FILE` measures a table. --schedule auto and `orthant plan` weigh it against calls and bytes.

#include "pmm/cost/step_plan.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {

struct SpmmTimes {
  struct Point {
    std::int64_t width = 0;
    double seconds = 0; // per non-zero and column
  };
  std::vector<Point> points; // at least one, by increasing width

  // Where they come from.
  std::string processor, date, dtype, version;

  /// Of one product. Between two widths of the table the time per non-zero grows linearly; a product that is narrower
  /// than the table costs what its narrowest one does, a wider one as much per column as its widest.
  [[nodiscard]] double seconds(std::int64_t num_nonzeros, std::int64_t width) const;
};

/// Where nothing was measured: 0.1 ns per non-zero and column of 32 columns and more, 0.13 ns of 16, and for
/// fewer what 16 columns cost, since a row of B is then less than a cache line. One core of an EPYC (Zen 4) took
/// 0.085 to 0.1 ns, and 0.129 ns (tests/bench/results/2026-11-21-speed.md); the table is on the safe side.
[[nodiscard]] SpmmTimes const& built_in_spmm_times();

/// The products with sparse blocks in a list.
[[nodiscard]] double spmm_seconds(pmm::StepPlan const& step, SpmmTimes const& times);

/// A file of `bench spmm --table`, as text and back. Throws UserError, which names `path`, if the text is anything else
/// or its times are not those of `dtype`, "fp32" or "fp64".
[[nodiscard]] std::string text_of(SpmmTimes const& times);
[[nodiscard]] SpmmTimes parse_spmm_times(std::string_view text, std::filesystem::path const& path,
                                         std::string_view dtype);

/// Rank 0 reads the file; the built-in table if `path` is empty. Collective. Throws UserError on all ranks.
[[nodiscard]] SpmmTimes read_spmm_times(runtime::Communicator const& comm, std::filesystem::path const& path,
                                        std::string_view dtype);

} // namespace orthant::models

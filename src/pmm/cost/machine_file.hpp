#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reader of machine files in TOML, with one table per kind of constant. Each table also names its source:
//
//   name = "perlmutter"            one word
//   ranks_per_node = 4
//   [memory]                       per rank: bytes (optional), bytes_per_second
//   [dense_products]               per rank, in flop per second: fp32, of_16_bits. Optional: narrow = [[shortest side, share of these
//                                  rates], ..], attention (flop per second of products within attention), attention_row_seconds (per
//                                  query and head), launch_seconds (per dense product, in addition to [launch])
//   [sparse_products]              per_nonzero and per_row (optional) = [[width, seconds], ..] for 32-bit operands; linear between widths
//   [launch]                       seconds per product and per pass
//   [passes]                       optional, as is each key: random_number_seconds (per number that dropout draws), exponential_seconds
//                                  (per exponential or similar function), row_sum_seconds (per row that a pass sums)
//   [collectives]                  call_seconds, step_seconds, inside = [[stride, ranks, bytes per second], ..],
//                                  bytes_per_second_between_nodes (all ranks of a node together), overlap (default 0: share of a
//                                  product's seconds during which a call that was started before it makes progress)
//   [storage]                      optional: bytes_per_second, the write rate of all ranks of a job together
//   [emulation]                    optional: seconds_per_processor_second (default 1) of a run that emulates the machine; 0 emulates
//                                  ranks that compute in no time
//
// Orthant includes the files machines/*.toml, which are selected by name.

#include "pmm/cost/machine.hpp"
#include "runtime/comm/communicator.hpp"

#include <span>
#include <string>
#include <string_view>

namespace orthant::pmm {

struct BuiltInMachine {
  std::string_view name;
  std::string_view text;
};
[[nodiscard]] std::span<BuiltInMachine const> built_in_machines();

/// Machine that is used if the user names none: "host", or "perlmutter" in a build for devices.
[[nodiscard]] Machine const& assumed_machine();

/// Parses the text of a machine file. Rates must be above 0 and times must not be negative. Throws UserError, which names `path` and
/// the line or key, if the text is not valid.
[[nodiscard]] Machine parse_machine(std::string_view text, std::string const& path);

/// Returns the machine that Orthant includes under this name, or reads a file on rank 0. Collective over `comm`. Throws UserError on
/// all ranks if there is no such machine or the file is not valid.
[[nodiscard]] Machine read_machine(runtime::Communicator const& comm, std::string const& name_or_path);

} // namespace orthant::pmm

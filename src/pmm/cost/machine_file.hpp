#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Machines as TOML files, one table per kind of constant, each table with its source:
//
//   name = "perlmutter"            one word
//   ranks_per_node = 4
//   [memory]                       of one rank: bytes (may be left out), bytes_per_second
//   [dense_products]               of one rank: fp32, of_16_bits, in flop per second; and what may be left out: narrow =
//                                  [[shortest side, share of these], ..], attention (flop per second of products within its passes),
//                                  attention_row_seconds (of each query's row of a head), launch_seconds (of each product, beside those of
//                                  [launch])
//   [sparse_products]              per_nonzero and per_row (may be left out) = [[width, seconds], ..], operands of 32 bits; linear
//                                  between widths
//   [launch]                       seconds of each product and each pass
//   [passes]                       may be left out, whole or in part: random_number_seconds (of each number that dropout draws),
//                                  exponential_seconds (of each number of which a pass takes an exponential or the like),
//                                  row_sum_seconds (of each row that a pass adds up)
//   [collectives]                  call_seconds, step_seconds, inside = [[stride, ranks, bytes per second], ..],
//                                  bytes_per_second_between_nodes (of all ranks of a node together), overlap (may be left
//                                  out: 0; share of a product's seconds in which a call goes on that was begun before it)
//   [storage]                      may be left out: bytes_per_second that all ranks of a job write together
//   [emulation]                    may be left out: seconds_per_processor_second (1) of a run that emulates it, 0 for
//                                  one whose ranks compute in no time
//
// Some come with Orthant (machines/*.toml) and go by their names.

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

/// Stands in if the user names no machine: "host", or "perlmutter" in a build for devices.
[[nodiscard]] Machine const& assumed_machine();

/// Throws UserError, which names `path` and the line or key, unless the text is a machine. Rates must be above 0 and times must
/// not be negative.
[[nodiscard]] Machine parse_machine(std::string_view text, std::string const& path);

/// Reads a machine that comes with Orthant by its name, or another one from a file. Rank 0 reads the file. Collective. Throws
/// UserError on all ranks.
[[nodiscard]] Machine read_machine(runtime::Communicator const& comm, std::string const& name_or_path);

} // namespace orthant::pmm

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Machines as TOML files, one table per kind of constant, each table with its source:
//
//   name = "perlmutter"            one word
//   ranks_per_node = 4
//   [memory]                       of one rank: bytes (may be left out), bytes_per_second
//   [dense_products]               of one rank: fp32, of_16_bits, in flop per second
//   [sparse_products]              per_nonzero = [[width, seconds], ..], operands of 32 bits; linear between widths
//   [launch]                       seconds of each product and each pass
//   [collectives]                  call_seconds, step_seconds, inside = [[stride, ranks, bytes per second], ..],
//                                  bytes_per_second_between_nodes (of all ranks of a node together)
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

/// The one whose constants stand in for an unknown machine: "host", or of a build for devices "perlmutter".
[[nodiscard]] Machine const& assumed_machine();

/// Throws UserError, which names `path`, line and key, for anything but a machine: rates are above 0, times not below.
[[nodiscard]] Machine parse_machine(std::string_view text, std::string const& path);

/// By the name of one that comes with Orthant, or by a file's. Rank 0 reads. Collective. Throws UserError on all ranks.
[[nodiscard]] Machine read_machine(runtime::Communicator const& comm, std::string const& name_or_path);

} // namespace orthant::pmm

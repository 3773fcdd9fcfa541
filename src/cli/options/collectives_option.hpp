#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --collectives: which algorithms carry out collectives (runtime/comm/rounds.hpp). Its words are an algorithm for all axes, AXIS=algorithm,
// auto:MACHINE for the fastest one by a model of the machine, or a .json file of `bench collectives -o`:
//
//   {"orthant_collectives": 1, "choices": [{"operation": "all_reduce", "nodes": 4, "per_node": 4, "bytes": 65536, "algorithm": "nvrar",
//    "seconds": {"library": 8.1e-5, "nvrar": 5.5e-5, ..}}, ..]}

#include "cli/options/command.hpp"
#include "runtime/comm/algorithm_choice.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

void add_collectives_option(Command& command, std::vector<std::string>& words);

/// Reads the words of --collectives; without any, all collectives are the library's. Collective over `world`. Throws UserError on all ranks
/// if a word is no algorithm, no axis, or no table.
[[nodiscard]] runtime::AlgorithmChoice read_collectives(runtime::Communicator const& world,
                                                        std::vector<std::string> const& words);

/// The node of each rank of the job; of the emulated machine, if there is one. Collective over `world`, which must have all ranks.
[[nodiscard]] std::vector<int> nodes_of_ranks(runtime::Communicator const& world);

/// Text of a table of measurements; `seconds_of` has the seconds of each algorithm, entry by entry.
[[nodiscard]] std::string collectives_table(std::vector<runtime::MeasuredChoice> const& choices,
                                            std::vector<nlohmann::ordered_json> const& seconds_of);

} // namespace orthant::cli

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --collectives: which algorithms carry out collectives (runtime/comm/rounds.hpp). Its words are an algorithm for all axes, AXIS=algorithm,
// auto:MACHINE for the fastest one by a model of the machine, or a .json file of `bench collectives -o`:
//
//   {"orthant_collectives": 1, "choices": [{"operation": "all_reduce", "nodes": 4, "per_node": 4, "bytes": 65536, "algorithm": "nvrar",
//    "seconds": {"library": 8.1e-5, "nvrar": 5.5e-5, ..}}, ..]}
//
// --comm-dtype: number formats of messages. A format alone is that of activations and their gradients; otherwise its words say what they are
// for:
//
//   --comm-dtype bf16        --comm-dtype activations=int8,gradients=fp8

#include "cli/options/command.hpp"
#include "runtime/comm/algorithm_choice.hpp"
#include "runtime/numbers/formats.hpp"

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

/// Formats of messages. gradients: sums of gradients of weights over the ranks that train on other batches.
struct MessageFormats {
  runtime::Wire activations = runtime::Wire::native;
  runtime::Wire gradients = runtime::Wire::native;

  friend bool operator==(MessageFormats const&, MessageFormats const&) = default;
};

void add_message_formats_option(Command& command, std::string& words);
/// Reads the words of --comm-dtype, which must have passed its check; otherwise throws Error.
[[nodiscard]] MessageFormats message_formats_of(std::string_view words);
/// Words of --comm-dtype for these formats, the same for all spellings: "bf16", "activations=fp32,gradients=int8".
[[nodiscard]] std::string text_of(MessageFormats const& formats);
/// The format with this name, such as "bf16".
[[nodiscard]] runtime::Wire format_named(std::string_view word);

} // namespace orthant::cli

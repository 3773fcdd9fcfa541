#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Settings from outside the command line. Precedence: flag > environment ORTHANT_* > --config TOML > default.
//
// A configuration file holds keys as the flags are called, `weight-decay` or `weight_decay`: flat, for every
// subcommand that knows them, or in a table of one subcommand, which wins. `plan` and `bench epoch` read the table
// of `train`, too, and `plan-lm` that of `train-lm`; their own tables win. The variable of `--weight-decay`
// is ORTHANT_WEIGHT_DECAY; empty counts as unset.
//
//   seed = 7
//   [train]
//   hidden = 128
//   lr = 0.01
//   random-split = [0.6, 0.2, 0.2]
//   bias = true

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

/// What an option's value is; values are checked against it wherever they come from. A list is of numbers or
/// words, separated by commas where it is text.
enum class ValueKind : std::uint8_t { text, integer, number, flag, list, integer_or_word, number_or_word };

struct OptionDescription {
  std::string name; // as the flag, without the dashes: "weight-decay"
  ValueKind kind = ValueKind::text;
};

struct CommandDescription {
  std::string name; // "train"; "bench collectives" is the table [bench.collectives]
  std::vector<OptionDescription> options;
  /// Another command, whose table counts for this one, too, as far as it has such options and no table of its own gives
  /// them; empty: none.
  std::string also_table{};
};

enum class SettingSource : std::uint8_t { default_value, file, environment, flag };
[[nodiscard]] std::string_view name_of(SettingSource source);

struct Setting {
  std::string value; // as it would follow the flag; "true" or "false" for ValueKind::flag
  SettingSource source = SettingSource::default_value;
  std::string origin; // "run.toml:12", "ORTHANT_LR", "--lr": for messages
};
using Settings = std::map<std::string, Setting, std::less<>>; // by option

/// What the environment and the file at `config_path` (empty: ORTHANT_CONFIG's, or none) say about the
/// options of `command`. Rank 0 reads both and the others are told, so thousands of ranks neither meet in the
/// file system nor differ. The whole file is checked against `commands`, all there are. Throws UserError on
/// all ranks, naming file, line and what would be right, for a file that cannot be read or is not TOML, an
/// option or table that no command knows, and a value of the wrong kind. Collective.
[[nodiscard]] Settings read_settings(Communicator const& comm, std::string const& config_path,
                                     std::string_view command, std::span<CommandDescription const> commands);

/// The same for a text in memory and given variables, on the calling rank alone. `path` is for messages.
[[nodiscard]] Settings parse_settings(std::string_view toml, std::string const& path,
                                      std::map<std::string, std::string> const& variables,
                                      std::string_view command, std::span<CommandDescription const> commands);

/// Whether `text` is written as a value of that kind: digits for a whole number, however many there are.
/// Whether it fits is for the option's own check to say.
[[nodiscard]] bool is_written_as(ValueKind kind, std::string_view text);

/// The name of an option's variable: "weight-decay" is ORTHANT_WEIGHT_DECAY.
[[nodiscard]] std::string variable_of(std::string_view option);

/// {"configuration": {"lr": 0.01, ..}, "sources": {"lr": "flag", ..}} for the metrics' first line: every
/// option of `command` that `settings` has, in the command's order, as JSON of its kind.
[[nodiscard]] nlohmann::ordered_json resolved_json(Settings const& settings,
                                                   CommandDescription const& command);

} // namespace orthant::runtime

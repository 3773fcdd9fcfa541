#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Settings from outside the command line. Precedence: flag > environment ORTHANT_* > --config TOML > default.
//
// The keys of a configuration file are the names of the flags, `weight-decay` or `weight_decay`. They stand outside any table, for every
// subcommand that has such an option, or in the table of one subcommand, which takes precedence. `plan` and `bench epoch` also read the
// table of `train`, and `plan-lm` the table of `train-lm`; their own tables take precedence. The environment variable of `--weight-decay`
// is ORTHANT_WEIGHT_DECAY; an empty variable counts as unset.
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

/// Kind of an option's value. Values from all sources are checked against it. A list holds numbers or words; in text they are separated by
/// commas.
enum class ValueKind : std::uint8_t {
  text,
  integer,
  number,
  flag,
  list,
  integer_or_word,
  number_or_word,
  flag_or_word
};

struct OptionDescription {
  std::string name; // the flag without its dashes: "weight-decay"
  ValueKind kind = ValueKind::text;
};

struct CommandDescription {
  std::string name; // "train"; "bench collectives" is the table [bench.collectives]
  std::vector<OptionDescription> options;
  /// Another command whose table this command also reads, for options that it has and that its own table does not give; empty if none.
  std::string also_table{};
};

enum class SettingSource : std::uint8_t { default_value, file, environment, flag };
[[nodiscard]] std::string_view name_of(SettingSource source);

struct Setting {
  std::string value; // as after the flag; "true" or "false" for ValueKind::flag
  SettingSource source = SettingSource::default_value;
  std::string origin; // "run.toml:12", "ORTHANT_LR", "--lr": for messages
};
using Settings = std::map<std::string, Setting, std::less<>>; // key: the option

/// The values that the environment and the file at `config_path` (if empty: the file named by ORTHANT_CONFIG, or none) give for the options
/// of `command`. Only rank 0 reads them and then broadcasts, so that thousands of ranks do not load the file system and cannot differ. The
/// whole file is checked against `commands`, the list of all commands.
/// Throws UserError on all ranks, with file, line and a correction, if the file cannot be read or is not TOML, if no command knows an
/// option or table, or if a value has the wrong kind. Collective.
[[nodiscard]] Settings read_settings(Communicator const& comm, std::string const& config_path,
                                     std::string_view command, std::span<CommandDescription const> commands);

/// read_settings() for a text in memory and given variables, on the calling rank alone. `path` is for messages.
[[nodiscard]] Settings parse_settings(std::string_view toml, std::string const& path,
                                      std::map<std::string, std::string> const& variables,
                                      std::string_view command, std::span<CommandDescription const> commands);

/// True if `text` is written as a value of that kind; an integer may have any number of digits. The option's own check decides whether the
/// value is in range.
[[nodiscard]] bool is_written_as(ValueKind kind, std::string_view text);

/// The environment variable of an option: "weight-decay" has ORTHANT_WEIGHT_DECAY.
[[nodiscard]] std::string variable_of(std::string_view option);

/// {"configuration": {"lr": 0.01, ..}, "sources": {"lr": "flag", ..}} for the first line of the metrics: every option of `command` that is
/// in `settings`, in the command's order, as JSON of its kind.
[[nodiscard]] nlohmann::ordered_json resolved_json(Settings const& settings,
                                                   CommandDescription const& command);

} // namespace orthant::runtime

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A subcommand: its options, each with a name, a kind, a default and a check of its values, and the function that it runs.
//
// CLI11 reads the options from the command line, runtime/job/config reads them from the environment and a TOML file;
// both pass the same checks.

#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"
#include "runtime/job/config.hpp"
#include "runtime/job/environment.hpp"
#include "runtime/report/metrics.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

// Options that name files. Every command checks them before it reads or writes anything: an output must not be one of the inputs,
// and must not replace an older file unless the user asks for that.

struct FileOption {
  enum class Use : std::uint8_t { input, output, output_folder };
  std::string name; // "--graph"
  Use use;
  std::string const* path; // points to an empty string if not given
};

/// Throws UserError on all ranks if an output is the file or folder that another option names, by its path or by device and inode
/// (links). An output inside an input folder must not be one of the files of the graph there, nor an input inside an output folder.
/// Collective.
void require_distinct_files(runtime::Communicator const& comm, std::span<FileOption const> files);

/// Throws UserError on all ranks if an output file exists and is not empty. Folders, devices and pipes are not checked. Collective.
/// `may_replace` is called on rank 0 only; if it returns true, existing files are accepted. `advice` ends the message.
void require_new_files(runtime::Communicator const& comm, std::span<FileOption const> files,
                       std::function<bool()> const& may_replace, std::string_view advice = "");

/// Environment of a running subcommand. Metrics are open, the trace is on and Kokkos is initialized (unless the command needs no device).
struct Context {
  runtime::Environment& environment;
  runtime::MetricsWriter& metrics;
  /// First line of the metrics, without grid and seed: version, command, configuration, sources, ranks and backends.
  nlohmann::ordered_json run_record;
  bool replaces_outputs = false; // --force
  /// Timelines of simulated ranks. If there are any, --trace writes them instead of this run's own.
  std::deque<runtime::Trace> timelines{};

  [[nodiscard]] runtime::Communicator const& world() const { return environment.world(); }
  [[nodiscard]] runtime::Log& log() const { return environment.instruments()->log; }
};

/// Options that every subcommand takes.
struct CommonOptions {
  std::string config;
  std::string log_level = "info";
  double timeout_seconds = runtime::default_timeout_seconds;
  std::string metrics;
  std::string trace;
  std::vector<std::string> collectives; // of commands that need a device, or plan for one
  bool force = false;
};

/// Checks the text of an option's value. Returns an empty string if it is valid, else a message that says what is expected.
using Check = std::function<std::string(std::string const&)>;

/// Default bound of numbers: far below the largest single-precision number, so that results computed from it are finite.
inline constexpr double largest_number = 1e30;
inline constexpr double longest_timeout_seconds = 1e9; // 30 years
/// Upper bound of epochs: more than any run needs.
inline constexpr std::int64_t most_epochs = 1'000'000'000;

/// Whole numbers from `low` to `high`, both allowed.
[[nodiscard]] Check whole_number(std::int64_t low,
                                 std::int64_t high = std::numeric_limits<std::int64_t>::max());
/// Numbers from `low` to `high`, both allowed. Both bounds must be finite, so accepted values are finite.
[[nodiscard]] Check in_range(double low, double high = largest_number);
/// Numbers greater than `low` and at most `high`.
[[nodiscard]] Check above(double low, double high = largest_number);
/// Accepts one of `words`.
[[nodiscard]] Check one_of(std::vector<std::string> words);

class Command {
 public:
  /// `name` as typed after "orthant"; two words for a command of a group ("bench collectives").
  Command(std::string name, std::string description);
  Command(Command const&) = delete;
  Command& operator=(Command const&) = delete;
  ~Command();

  /// Starts a group of options with this title in the help.
  void begin_group(std::string title) { group_ = std::move(title); }

  /// Declares an option with one value, "--lr" or "-o,--output", or a positional argument, "graph" (without dashes). `value` holds the
  /// default and receives the given value; it must outlive this object. A std::optional has no default. A list is separated by commas; a
  /// positional list takes all positional arguments.
  void option(std::string const& names, std::string& value, std::string const& description, Check check = {});
  void option(std::string const& names, std::int64_t& value, std::string const& description,
              Check check = {});
  void option(std::string const& names, double& value, std::string const& description, Check check = {});
  void option(std::string const& names, std::optional<double>& value, std::string const& description,
              Check check = {});
  void option(std::string const& names, std::optional<std::int64_t>& value, std::string const& description,
              Check check = {});
  void option(std::string const& names, std::vector<double>& value, std::string const& description,
              Check check = {});
  void option(std::string const& names, std::vector<std::string>& value, std::string const& description,
              Check check = {});
  /// Declares an option with one text that may be given several times. The environment and files give it once.
  void repeatable(std::string const& names, std::vector<std::string>& values, std::string const& description);
  /// Declares an option that takes one of `words`, or a number that passes `check` (a whole number unless `kind` is number_or_word).
  void number_or_word(std::string const& names, std::string& value, std::string const& description,
                      std::vector<std::string> words, Check check,
                      runtime::ValueKind kind = runtime::ValueKind::integer_or_word);
  /// Declares an option that takes one of `words`, or no value or "true" for words[1], or "false" for words[0].
  void flag_or_word(std::string const& names, std::string& value, std::string const& description,
                    std::vector<std::string> words);
  /// Declares an option that names a file or folder to read, a file to write, or a folder to write. require_new_files() does not check
  /// folders: each command decides what may already be in its folder.
  void input(std::string const& names, std::string& path, std::string const& description);
  void output(std::string const& names, std::string& path, std::string const& description);
  void output_folder(std::string const& names, std::string& path, std::string const& description);
  [[nodiscard]] std::vector<FileOption> const& files() const { return files_; }
  /// Declares a flag: "--residual", or "--bias,!--no-bias".
  void flag(std::string const& names, bool& value, std::string const& description);

  /// Declares --config and the other options of every command; must be called once, after the command's own options.
  void add_common_options();

  /// Makes this command accept the command line of another one, whose options have been declared. `used`: names of options, or titles of
  /// groups. All other options are accepted, checked and then ignored; the help does not show them, and a note lists those that were
  /// given.
  void pass_over_all_but(std::span<std::string_view const> used);
  /// Ignores one more option (common options included) if `is_idle` returns true after the options have been read.
  void pass_over(std::string name, std::function<bool()> is_idle);
  /// Returns the ignored options that were given ("--lr"); files that ignored options name are neither read nor written from now on. Call
  /// it after apply().
  [[nodiscard]] std::vector<std::string> drop_passed_over();
  /// Applies the table of `command` in a configuration file also to this command; its own table takes precedence.
  void read_table_of(std::string command) { description_.also_table = std::move(command); }

  /// Sets the function that runs the command after the options have been read. It returns the exit status.
  void set_run(std::function<int(Context&)> run) { run_ = std::move(run); }
  [[nodiscard]] int run(Context& context) const { return run_(context); }
  /// For a command whose metrics file describes one run. Both functions are called after the options have been read. `may_go_on()` returns
  /// true if the run may append to the metrics of an earlier one; otherwise the metrics file must not exist. `goes_on()`, called on rank 0
  /// only, returns true if the run continues an earlier one; then its other outputs may exist as well.
  void set_goes_on(std::function<bool()> may_go_on, std::function<bool()> goes_on) {
    may_go_on_ = std::move(may_go_on);
    goes_on_ = std::move(goes_on);
  }
  /// True if the command appends to an existing metrics file: without set_goes_on() always.
  [[nodiscard]] bool adds_to_metrics() const { return !may_go_on_ || may_go_on_(); }
  /// True for a training that may continue an earlier one (--resume).
  [[nodiscard]] bool may_go_on() const { return may_go_on_ && may_go_on_(); }
  /// True for a command with --resume, whether or not the option was given.
  [[nodiscard]] bool is_resumable() const { return static_cast<bool>(may_go_on_); }
  [[nodiscard]] bool goes_on() const { return goes_on_ && goes_on_(); }
  /// Commands that need no device run without Kokkos.
  void set_needs_device(bool needs) { needs_device_ = needs; }
  /// For commands that need no device and predict the seconds of collectives.
  void set_predicts_collectives() { predicts_collectives_ = true; }
  [[nodiscard]] bool needs_device() const { return needs_device_; }

  [[nodiscard]] std::string const& name() const { return description_.name; }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] std::string help() const;
  [[nodiscard]] CommonOptions const& common() const { return common_; }
  [[nodiscard]] runtime::CommandDescription const& description() const { return description_; }

  /// Reads the arguments after the command's name. Returns false if they ask for help. Throws UserError for unknown options and invalid
  /// values.
  [[nodiscard]] bool parse(std::vector<std::string> arguments);
  /// Applies settings to the options that the command line did not give. Throws UserError for invalid values.
  void apply(runtime::Settings const& settings);
  /// Value and source of every option.
  [[nodiscard]] runtime::Settings resolved() const;

 private:
  struct Entry;
  struct Parser; // hides CLI11, which takes seconds to compile

  template<class T>
  void add(std::string const& names, T& value, std::string const& description, Check check);
  void add_file(std::string const& names, std::string& path, std::string const& description,
                FileOption::Use use);
  void refuse_unknown(std::vector<std::string> const& extras) const;

  std::unique_ptr<Parser> parser_;
  std::string group_ = "Options";
  runtime::CommandDescription description_; // same order as the parser's entries
  CommonOptions common_;
  bool needs_device_ = true;
  bool predicts_collectives_ = false;
  std::function<int(Context&)> run_;
  std::function<bool()> may_go_on_, goes_on_;
  std::vector<FileOption> files_;
  std::map<std::string, std::function<bool()>> passed_over_; // by name
};

} // namespace orthant::cli

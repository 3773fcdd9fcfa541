#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options that name files, and the checks that no output is one of the inputs, and that none replaces an older
// file unasked. Made once for every command, before anything is read or written.
//
// One subcommand: its options, each with a name, a kind, a default and the values it takes, and what it does.
// Options are read by CLI11 from the command line and by runtime/job/config from the environment and a TOML file;
// either way they pass the same checks.

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
#include <type_traits>
#include <vector>

namespace orthant::cli {

struct FileOption {
  enum class Use : std::uint8_t { input, output, output_folder };
  std::string name; // "--graph"
  Use use;
  std::string const* path; // empty: not given
};

/// Throws UserError, the same on all ranks, if an output is the file or folder that another option names: by
/// its name, or by device and inode, as through a link. An output in an input's folder must not be one of the
/// files that make up a graph, and likewise an input in an output's folder. Collective.
void require_distinct_files(runtime::Communicator const& comm, std::span<FileOption const> files);

/// Throws UserError, the same on all ranks, if a file to be written is there already and is not empty. Folders
/// have rules of their own; devices and pipes are taken. Collective.
/// `may_replace`: asked on one rank whether they may be there all the same.
void require_new_files(runtime::Communicator const& comm, std::span<FileOption const> files,
                       std::function<bool()> const& may_replace);

/// What a subcommand runs in. Metrics are open, the trace is on, Kokkos has started.
struct Context {
  runtime::Environment& environment;
  runtime::MetricsWriter& metrics;
  /// The metrics' first line, without grid and seed: version, command, configuration, sources, ranks,
  /// backends.
  nlohmann::ordered_json run_record;
  bool replaces_outputs = false; // --force
  /// What --trace writes in place of this run's own times, if there are any: those of simulated ranks.
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
  bool force = false;
};

/// A check of an option's text: empty, or what is wrong and what would be right.
using Check = std::function<std::string(std::string const&)>;

/// What a number may be unless an option says otherwise: far from the largest single precision number, so
/// that what is computed of it is finite.
inline constexpr double largest_number = 1e30;
inline constexpr double longest_timeout_seconds = 1e9; // 30 years
/// The most epochs: no run takes as many.
inline constexpr std::int64_t most_epochs = 1'000'000'000;

/// Whole numbers from `low` to `high`, both allowed.
[[nodiscard]] Check whole_number(std::int64_t low,
                                 std::int64_t high = std::numeric_limits<std::int64_t>::max());
/// Numbers from `low` to `high`, both allowed. Both are finite, and so is what passes.
[[nodiscard]] Check in_range(double low, double high = largest_number);
/// The same without `low` itself.
[[nodiscard]] Check above(double low, double high = largest_number);
/// One of `words`; those in `later` are known, but not built yet.
[[nodiscard]] Check one_of(std::vector<std::string> words, std::vector<std::string> later = {});

class Command {
 public:
  /// `name` as typed after "orthant"; two words for a command of a group ("bench collectives").
  Command(std::string name, std::string description);
  Command(Command const&) = delete;
  Command& operator=(Command const&) = delete;
  ~Command();

  /// Heads the options that follow in the help.
  void begin_group(std::string title) { group_ = std::move(title); }

  /// "--lr" or "-o,--output" with one value; "graph" (no dashes) is a word of its own. `value` holds the
  /// default and receives what is given; it must live as long as this. A std::optional has no default; a list
  /// is separated by commas, or if it has no dashes is all such words.
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
  /// A number that `check` takes (a whole one, unless `kind` is number_or_word), or one of the words.
  void number_or_word(std::string const& names, std::string& value, std::string const& description,
                      std::vector<std::string> words, Check check,
                      runtime::ValueKind kind = runtime::ValueKind::integer_or_word);
  /// Options that name a file or a folder to read, a file to write, or a folder to write, which has a rule of its
  /// own for what is there already.
  void input(std::string const& names, std::string& path, std::string const& description);
  void output(std::string const& names, std::string& path, std::string const& description);
  void output_folder(std::string const& names, std::string& path, std::string const& description);
  [[nodiscard]] std::vector<FileOption> const& files() const { return files_; }
  /// "--residual", or "--bias,!--no-bias".
  void flag(std::string const& names, bool& value, std::string const& description);

  /// --config and the others that every command takes; called once, after its own options.
  void add_common_options();

  /// For a command that accepts the command line of another one, whose options have been added. `used`: names of options, or
  /// titles of groups. All others are still checked, are left out of the help, and have no effect; a note lists those that were
  /// given.
  void pass_over_all_but(std::span<std::string_view const> used);
  /// Passes over one more, any that every command takes included, if `is_idle` says so once the options are read.
  void pass_over(std::string name, std::function<bool()> is_idle);
  /// Of the options to be passed over those that were given ("--lr"); no file of theirs is read or written from now on.
  /// After apply().
  [[nodiscard]] std::vector<std::string> drop_passed_over();
  /// The table of that command in a configuration file counts for this one, too, unless its own table says otherwise.
  void read_table_of(std::string command) { description_.also_table = std::move(command); }

  /// What it does with the options, once these are read. Returns the exit status.
  void set_run(std::function<int(Context&)> run) { run_ = std::move(run); }
  [[nodiscard]] int run(Context& context) const { return run_(context); }
  /// For a command whose metrics are the record of one run, asked once the options are read. `may_go_on()`: it adds
  /// to the metrics of an earlier run; otherwise they must not be there. `goes_on()`, asked on one rank: it continues
  /// an earlier run, whose other outputs may be there.
  void set_goes_on(std::function<bool()> may_go_on, std::function<bool()> goes_on) {
    may_go_on_ = std::move(may_go_on);
    goes_on_ = std::move(goes_on);
  }
  /// All other commands add lines.
  [[nodiscard]] bool adds_to_metrics() const { return !may_go_on_ || may_go_on_(); }
  /// True for a training that may continue an earlier one (--resume).
  [[nodiscard]] bool may_go_on() const { return may_go_on_ && may_go_on_(); }
  [[nodiscard]] bool goes_on() const { return goes_on_ && goes_on_(); }
  /// Host-only commands do not start Kokkos, so they need no device.
  void set_needs_device(bool needs) { needs_device_ = needs; }
  [[nodiscard]] bool needs_device() const { return needs_device_; }

  [[nodiscard]] std::string const& name() const { return description_.name; }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] std::string help() const;
  [[nodiscard]] CommonOptions const& common() const { return common_; }
  [[nodiscard]] runtime::CommandDescription const& description() const { return description_; }

  /// Reads the arguments after the command's name. Returns false where they ask for help.
  /// Throws UserError for what it does not know or take.
  [[nodiscard]] bool parse(std::vector<std::string> arguments);
  /// Takes over settings for options that the command line did not give. Throws UserError as parse().
  void apply(runtime::Settings const& settings);
  /// Every option's value and where it came from.
  [[nodiscard]] runtime::Settings resolved() const;

 private:
  struct Entry;
  struct Parser; // CLI11, which takes seconds to compile

  template<class T>
  void add(std::string const& names, T& value, std::string const& description, Check check);
  void add_file(std::string const& names, std::string& path, std::string const& description,
                FileOption::Use use);
  void refuse_unknown(std::vector<std::string> const& extras) const;

  std::unique_ptr<Parser> parser_;
  std::string group_ = "Options";
  runtime::CommandDescription description_; // of the parser's entries, in their order
  CommonOptions common_;
  bool needs_device_ = true;
  std::function<int(Context&)> run_;
  std::function<bool()> may_go_on_, goes_on_;
  std::vector<FileOption> files_;
  std::map<std::string, std::function<bool()>> passed_over_; // by name
};

/// For the run of a subcommand that is still to come.
[[noreturn]] void refuse_unbuilt(std::string const& what);

} // namespace orthant::cli

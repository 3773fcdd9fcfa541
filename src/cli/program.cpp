// SPDX-License-Identifier: Apache-2.0
#include "cli/program.hpp"

#include "cli/commands/build_info.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/machine/blas_core.hpp"
#include "cli/machine/emulated_machine.hpp"
#include "cli/options/collectives_option.hpp"
#include "cli/options/gemm_options.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/job/job_end.hpp"
#include "runtime/machine/binding.hpp"
#include "runtime/report/metrics.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/ranges.h>
#include <set>
#include <string_view>

namespace orthant::cli {
namespace {

using runtime::throw_user;
using Commands = std::vector<std::unique_ptr<Command>>;
using Words = std::vector<std::string>;

Commands make_commands() {
  Commands commands;
  for (auto* make : {make_generate,       make_partition,
                     make_export,         make_train,
                     make_evaluate,       make_export_weights,
                     make_import_weights, make_plan,
                     make_plan_lm,        make_tokenize,
                     make_train_lm,       make_evaluate_lm,
                     make_plot,           make_bench_collectives,
                     make_bench_spmm,     make_bench_gemm,
                     make_bench_epoch,    make_bench_machine,
                     make_study_init,     make_study_submit,
                     make_study_status,   make_study_collect,
                     make_doctor,         make_study_report,
                     make_complete,       make_info})
    commands.push_back(make());
  for (auto const& command : commands)
    command->add_common_options();
  return commands;
}

bool asks_for_help(std::string const& word) {
  return word == "-h" || word == "--help" || word == "help";
}

void print(runtime::Communicator const& world, std::string const& text) {
  if (!world.is_root()) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// One line per command whose name begins with `prefix` ("" or "bench ").
std::string list(Commands const& commands, std::string const& prefix) {
  std::string text;
  for (auto const& command : commands)
    if (command->name().starts_with(prefix))
      text += fmt::format("  {:<20}{}\n", command->name(), command->summary());
  return text;
}

std::string overview(Commands const& commands) {
  return fmt::format(
      "orthant trains graph neural networks and language models on supercomputers.\n"
      "Usage: orthant COMMAND [OPTIONS], on any number of ranks: mpirun -n 4 orthant ..\n\n"
      "Commands:\n{}\n"
      "Options:\n"
      "  {:<20}{}\n  {:<20}{}\n  {:<20}{}\n\n"
      "`orthant COMMAND --help` lists a command's options. They are read from flags, from the\n"
      "environment (ORTHANT_LR) and from a TOML file (--config), in this order of precedence.\n",
      list(commands, ""), "-h,--help", "Print this help", "--version", "Print version and backends",
      "--kokkos-..", "Passed on to Kokkos");
}

/// First words of two-word commands: "bench".
std::set<std::string> groups_of(Commands const& commands) {
  std::set<std::string> groups;
  for (auto const& command : commands)
    if (auto const space = command->name().find(' '); space != std::string::npos)
      groups.insert(command->name().substr(0, space));
  return groups;
}

Command* find(Commands const& commands, std::string const& name) {
  auto const found = std::ranges::find(commands, name, &Command::name);
  return found == commands.end() ? nullptr : found->get();
}

[[noreturn]] void refuse(Commands const& commands, std::string const& word) {
  if (word.starts_with('-')) {
    std::vector<std::string> const flags{"help", "version"};
    auto const hint =
        runtime::did_you_mean(std::string_view(word).substr(word.find_first_not_of('-')), flags, "--");
    throw_user("there is no option '{}'{}", word,
               hint.empty() ? "; options follow the command: see `orthant --help`" : hint);
  }
  std::vector<std::string> names;
  for (auto const& command : commands)
    names.push_back(command->name());
  auto const groups = groups_of(commands);
  names.insert(names.end(), groups.begin(), groups.end());
  auto const hint = runtime::did_you_mean(word, names);
  throw_user("there is no command '{}'{}", word, hint.empty() ? "; see `orthant --help`" : hint);
}

/// Returns the command that `words` begin with and removes its name from them; returns nullptr if help was printed instead.
Command* take_command(runtime::Communicator const& world, Commands const& commands, Words& words) {
  auto const groups = groups_of(commands);
  if (groups.contains(words[0])) {
    auto const group = words[0];
    if (words.size() > 1 && asks_for_help(words[1])) {
      print(world, fmt::format("Commands:\n{}", list(commands, group + " ")));
      return nullptr;
    }
    if (words.size() < 2) throw_user("what to {}? See `orthant {} --help`", group, group);
    auto const name = group + " " + words[1];
    auto* const command = find(commands, name);
    if (command == nullptr) refuse(commands, words[1].starts_with('-') ? words[1] : name);
    words.erase(words.begin(), words.begin() + 2);
    return command;
  }
  auto* const command = find(commands, words[0]);
  if (command == nullptr) refuse(commands, words[0]);
  words.erase(words.begin());
  return command;
}

/// Reads the options that flags do not give from the environment and the file.
void read_settings(runtime::Communicator const& world, Commands const& commands, Command& command) {
  std::vector<runtime::CommandDescription> descriptions;
  for (auto const& each : commands)
    descriptions.push_back(each->description());
  auto path = command.common().config;
  if (auto const* const variable = std::getenv("ORTHANT_CONFIG"); path.empty() && variable != nullptr)
    path = variable;
  command.apply(runtime::read_settings(world, path, command.name(), descriptions));
}

nlohmann::ordered_json run_record(runtime::Communicator const& world, Command const& command) {
  nlohmann::ordered_json record;
  record["version"] = version();
  record["command"] = command.name();
  auto const resolved = runtime::resolved_json(command.resolved(), command.description());
  for (auto const& [key, value] : resolved.items())
    record[key] = value;
  record["ranks"] = world.size();
  if (auto const* const machine = world.instruments().clock.machine())
    record["emulated_machine"] = machine->name;
  else if (!command.common().metrics.empty() && runtime::is_oversubscribed(world))
    record["oversubscribed"] = true; // seconds then include waiting for a core
  record["backends"] = backends();
  return record;
}

/// Renames the trace of an earlier run at `path`. Collective.
void set_aside_older_trace(runtime::Communicator const& world, std::string const& path) {
  runtime::together(world, [&] {
    if (!world.is_root()) return;
    auto const older = runtime::set_aside_if_any(path);
    if (!older.empty())
      world.instruments().log.info("'{}' has the trace of an earlier run: it is '{}' from now on", path,
                                   older.string());
  });
}

int run_command(runtime::Environment& environment, Command& command) {
  auto const& world = environment.world();
  auto const& common = command.common();
  auto& instruments = *environment.instruments();
  instruments.log.set_level(runtime::parse_log_level(common.log_level));
  environment.set_timeout(common.timeout_seconds);
  auto const passed_over = command.drop_passed_over();
  if (!passed_over.empty() && world.is_root())
    instruments.log.info("{} ignores what has no effect here: {}", command.name(),
                         fmt::join(passed_over, ", "));
  auto const algorithms = read_collectives(world, common.collectives);
  if (command.needs_device()) emulate_machine(environment, algorithms);
  if (!common.collectives.empty()) world.use_algorithms(algorithms, nodes_of_ranks(world));
  require_distinct_files(world, command.files());
  // Check now which files cannot be written, rather than after hours of training.
  auto const adds_to_metrics = command.adds_to_metrics();
  if (!common.force) {
    auto files = command.files();
    std::erase_if(files, [&](FileOption const& file) {
      return (adds_to_metrics && file.path == &common.metrics) ||
             (command.may_go_on() && file.path == &common.trace);
    });
    require_new_files(
        world, files, [&] { return command.goes_on(); },
        command.is_resumable() ? "; or continue the training with --checkpoint DIR --resume auto" : "");
  }
  runtime::MetricsWriter metrics(
      world, common.metrics, adds_to_metrics ? runtime::OlderMetrics::kept : runtime::OlderMetrics::replaced);
  if (!common.trace.empty()) {
    runtime::require_writable(world, common.trace, "trace");
    auto const& clock = instruments.clock;
    instruments.trace.start(runtime::Trace::default_capacity, clock.shared_origin());
  }
  if (command.needs_device()) {
    environment.start_kokkos();
    warn_of_slow_core(instruments.log);
  }

  Context context{environment, metrics, run_record(world, command), common.force};
  if (command.needs_device()) choose_gemm_libraries(context, "");
  auto const status = command.run(context);

  if (command.may_go_on()) set_aside_older_trace(world, common.trace);
  if (!common.trace.empty() && context.timelines.empty())
    runtime::write_trace(world, instruments.trace, common.trace);
  else if (!common.trace.empty())
    runtime::write_timelines(world, context.timelines, common.trace);
  metrics.close(world);
  return status;
}

} // namespace

int run_program(runtime::Environment& environment) {
  auto const& world = environment.world();
  auto words = environment.arguments();
  auto const commands = make_commands();
  if (words.empty()) throw_user("name a command, such as train; see `orthant --help`");
  if (asks_for_help(words[0])) {
    print(world, overview(commands));
    return runtime::exit_done;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    print(world, describe_build());
    return runtime::exit_done;
  }
  auto* const command = take_command(world, commands, words);
  if (command == nullptr) return runtime::exit_done;
  if (!command->parse(words)) {
    print(world, command->help());
    return runtime::exit_done;
  }
  read_settings(world, commands, *command);
  return run_command(environment, *command);
}

int main_of(int argc, char** argv) {
  restart_with_better_core();
  // Help and error messages need no device, so Kokkos starts only after the command line has been read.
  runtime::EnvironmentOptions options;
  options.starts_kokkos = false;
  options.checks_launch = argc < 2 || std::string_view(argv[1]) != "doctor"; // doctor has its own checks
  return runtime::run_main(argc, argv, options, run_program);
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// orthant info: what this program and this job are, or what is in a file.

#include "cli/build_info.hpp"
#include "cli/subcommands.hpp"
#include "runtime/binding.hpp"
#include "runtime/collectives.hpp"

#include <cstdio>
#include <set>

namespace orthant::cli {
namespace {

struct InfoOptions {
  std::string file;
  bool verify = false;
};

void describe_job(Context& context) {
  auto& environment = context.environment;
  auto const bindings = runtime::gather_bindings(context.world(), environment.binding());
  if (!context.world().is_root()) return;
  std::set<std::string> hosts;
  for (auto const& binding : bindings)
    hosts.insert(binding.host.data());
  auto const text = fmt::format(
      "{}"
      "GPU-aware   {}\n"
      "threads     {}{}\n"
      "ranks       {} on {} host{}\n\n{}",
      describe_build(), runtime::mpi_is_device_aware() ? "yes" : "no (device buffers are staged)",
      runtime::name_of_thread_level(environment.thread_level()),
      environment.watchdog().talks_to_others() ? "" : " (a hang is reported rank by rank)",
      context.world().size(), hosts.size(), hosts.size() == 1 ? "" : "s", runtime::format_bindings(bindings));
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

int run(InfoOptions const& options, Context& context) {
  if (options.file.empty()) {
    if (options.verify) runtime::throw_user("info: --verify needs the file to check");
    context.environment.start_kokkos(); // the table shows its device
    describe_job(context);
    return runtime::exit_done;
  }
  refuse_unbuilt("orthant info of a file");
}

} // namespace

std::unique_ptr<Command> make_info() {
  auto command =
      std::make_unique<Command>("info", "Show build, backends, devices and bindings, or what is in a file");
  auto const options = std::make_shared<InfoOptions>();
  command->option("file", options->file, "Store or weights to describe");
  command->flag("--verify", options->verify, "Check the file's checksums, too");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// orthant doctor: finds problems that make jobs slow or fail, before they run. Start it in the same way as the job.

#include "cli/commands/subcommands.hpp"
#include "cli/doctor/checks.hpp"
#include "cli/training/train_settings.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/machine/processor.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <set>

namespace orthant::cli {
namespace {

struct DoctorOptions {
  std::string grid;
  std::string machine;
  std::string checkpoint;
};

char const* variable(char const* name) {
  return std::getenv(name);
}

bool can_load(std::string const& library) {
  auto* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

bool has_slingshot() {
  std::error_code error;
  return std::filesystem::exists("/sys/class/cxi", error);
}

std::string huge_page_setting() {
  std::string line;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), line);
  return line;
}

Diagnosis axes(DoctorOptions const& o, Context const& context) {
  auto const& world = context.world();
  if (o.grid.empty()) return {"axes", "not measured: name a grid with --grid"};
  auto const shape = pmm::parse_grid(o.grid, world.size());
  if (!o.machine.empty() && !is_known_machine(o.machine))
    return {"axes", "not measured: there is no such machine"};
  auto const machine = machine_of(world, o.machine);
  pmm::ProcessGrid const grid(world, shape);
  return check_axes(measure_axes(grid, machine), machine.name);
}

int run(DoctorOptions const& o, Context& context) {
  auto const& world = context.world();
  auto const facts = gather_facts(context.environment);
  auto const offsets = measure_clocks(world, context.environment.binding().node_rank == 0);
  auto const of_axes = axes(o, context);
  auto const num_wrong = runtime::together(world, [&] {
    if (!world.is_root()) return 0;
    std::set<std::string> hosts;
    for (auto const& rank : facts)
      hosts.insert(rank.host);
    auto const num_hosts = static_cast<int>(hosts.size());
    std::vector<Diagnosis> const checks{
        check_launcher(world.size(), num_hosts, variable),
        check_cores(facts),
        check_numa(facts),
        check_blas(pmm::find_blas_library(), runtime::find_processor(), variable),
        check_device_mpi(!pmm::runs_on_host, runtime::mpi_is_device_aware()),
        check_nccl(ORTHANT_HAS_NCCL, num_hosts, has_slingshot(), variable, can_load),
        check_fabric_files(o.machine, variable),
        check_huge_pages(huge_page_setting()),
        check_clocks(offsets),
        check_storage(o.checkpoint),
        of_axes};
    auto const count = num_findings(checks);
    if (is_first_process(variable))
      say(context, "{}{}\n", text_of(checks),
          count == 0 ? "nothing is wrong" : fmt::format("{} finding{}", count, count == 1 ? "" : "s"));
    return count;
  });
  return runtime::all_reduced(world, std::int64_t{num_wrong}, runtime::Reduction::max) == 0
             ? runtime::exit_done
             : runtime::exit_internal;
}

} // namespace

std::unique_ptr<Command> make_doctor() {
  auto command =
      std::make_unique<Command>("doctor", "Find problems that make jobs slow or fail, and how to fix them");
  auto const o = std::make_shared<DoctorOptions>();
  command->option("--grid", o->grid, "Grid DxXxYxZ of the ranks; the bandwidth of its axes is measured");
  command->option("--machine", o->machine,
                  "Machine file to compare the measured bandwidths with, by name (perlmutter, frontier, "
                  "tuolumne, alps, h200-node, host) or .toml file");
  command->option("--checkpoint", o->checkpoint,
                  "Folder for checkpoints; measures how fast it can be written");
  command->set_run([o](Context& context) { return run(*o, context); });
  return command;
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/checks.hpp"

#include "cli/machine/units.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace orthant::cli {

std::vector<RankFacts> gather_facts(runtime::Environment const& environment) {
  auto const& world = environment.world();
  auto const& binding = environment.binding();
  nlohmann::json const own{{"rank", world.rank()},
                           {"host", binding.host.data()},
                           {"cores", runtime::parse_cpu_list(binding.cores.data())},
                           {"numa", runtime::parse_cpu_list(binding.numa.data())},
                           {"threads", Kokkos::DefaultHostExecutionSpace().concurrency()},
                           {"online", sysconf(_SC_NPROCESSORS_ONLN)}};
  std::string all;
  runtime::gather_text(world, own.dump() + "\n", [&](std::string_view piece) { all += piece; });
  std::vector<RankFacts> facts;
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    auto const json = nlohmann::json::parse(line);
    facts.push_back({json.at("rank"), json.at("host"), json.at("cores"), json.at("numa"), json.at("threads"),
                     json.at("online")});
  }
  return facts;
}

namespace {

constexpr double least_share = 0.5;

/// Median over several calls of the slowest rank's seconds.
double time_all_reduce(pmm::ProcessGrid const& grid, runtime::Communicator const& comm,
                       std::size_t num_floats) {
  constexpr auto num_repeats = 7;
  auto const data = runtime::make_zeros<float>("orthant::cli::data", num_floats);
  runtime::DefaultExec const exec;
  std::vector<double> seconds;
  for (auto repeat = 0; repeat <= num_repeats; ++repeat) {
    runtime::barrier(runtime::host, grid.world());
    auto const begin = std::chrono::steady_clock::now();
    runtime::all_reduce(exec, comm, data);
    runtime::compat::fence(exec, "orthant::cli::time_all_reduce (timing)");
    if (repeat > 0) // the first call sets up connections
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  return runtime::all_reduced(grid.world(), seconds[seconds.size() / 2], runtime::Reduction::max);
}

} // namespace

std::vector<AxisSpeed> measure_axes(pmm::ProcessGrid const& grid, pmm::Machine const& machine) {
  constexpr std::size_t num_floats = std::size_t{2} << 20;
  std::vector<AxisSpeed> speeds;
  for (auto const& [axis, name] :
       {std::pair(pmm::Axis::data, "data"), {pmm::Axis::x, "x"}, {pmm::Axis::y, "y"}, {pmm::Axis::z, "z"}}) {
    auto const size = grid.shape().size(axis);
    if (size == 1) continue;
    auto const span = pmm::span_of(grid.shape(), axis);
    auto const seconds = time_all_reduce(grid, grid.over(axis), num_floats);
    auto const sent = 2.0 * (size - 1) / size * static_cast<double>(num_floats * sizeof(float)); // ring
    speeds.push_back({name, span, sent / seconds, pmm::bytes_per_second(machine, span, grid.world().size())});
  }
  return speeds;
}

Diagnosis check_axes(std::vector<AxisSpeed> const& speeds, std::string const& machine) {
  Diagnosis check{"axes", speeds.empty() ? "the grid has none of more than one rank" : ""};
  for (auto const& [axis, span, measured, expected] : speeds) {
    check.fact +=
        fmt::format("{}{} ({} ranks, stride {}) {:.2f} GB/s of {:.2f}", check.fact.empty() ? "" : "; ", axis,
                    span.num_ranks, span.stride, measured / giga, expected / giga);
    if (measured < least_share * expected)
      check.findings.push_back(
          {fmt::format("along {} each rank sends {:.2f} GB/s, and the machine '{}' has {:.2f}", axis,
                       measured / giga, machine, expected / giga),
           "see to binding and to the network first; if this is what the machine can do, measure it: "
           "`orthant bench machine -o FILE.toml`"});
  }
  return check;
}

namespace {

std::string text_of(char const* value) {
  return value == nullptr ? std::string() : std::string(value);
}

/// Variables of communication libraries that name a file or a folder.
constexpr std::array file_variables{"NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "FI_PROVIDER_PATH",
                                    "MPICH_RANK_REORDER_FILE"};
/// Variables of Orthant that name a machine or a file.
constexpr std::array machine_variables{"ORTHANT_MACHINE", "ORTHANT_EMULATE"};

} // namespace

Diagnosis check_blas(pmm::BlasLibrary const& library, runtime::Processor const& processor,
                     Variable const& variable) {
  Diagnosis check{"BLAS", fmt::format("{}{} on {}", library.name,
                                      library.core.empty() ? "" : ", kernels of " + library.core,
                                      processor.name.empty() ? "this processor" : processor.name)};
  if (!pmm::has_slow_core(library, processor)) return check;
  auto const better = pmm::better_core(library, processor, std::nullopt);
  auto const coretype = text_of(variable("OPENBLAS_CORETYPE"));
  check.findings.push_back(
      {fmt::format("the kernels of {} use {}, and the processor has {}", library.core,
                   name_of(pmm::vectors_of_core(library.core)), name_of(processor.vectors)),
       !better            ? "it was built for these alone: use an OpenBLAS that was built with DYNAMIC_ARCH=1"
       : coretype.empty() ? fmt::format("set OPENBLAS_CORETYPE={}", *better)
                          : fmt::format("unset OPENBLAS_CORETYPE, which is {}: the program then takes {}",
                                        coretype, *better)});
  return check;
}

Diagnosis check_device_mpi(bool has_devices, bool is_device_aware) {
  if (!has_devices) return {"GPU-aware MPI", "not needed: ranks compute on host processors"};
  Diagnosis check{"GPU-aware MPI",
                  is_device_aware ? "MPI reads device memory" : "MPI reads host memory only"};
  if (!is_device_aware)
    check.findings.push_back({"messages of devices are copied through host memory",
                              "set MPICH_GPU_SUPPORT_ENABLED=1 (Cray MPICH), take an Open MPI that was built "
                              "with CUDA or ROCm, or build "
                              "with ORTHANT_ENABLE_NCCL"});
  return check;
}

Diagnosis check_nccl(bool has_nccl, int num_hosts, bool has_slingshot, Variable const& variable,
                     std::function<bool(std::string const&)> const& can_load) {
  if (!has_nccl) return {"NCCL", "not in this build"};
  auto const plugin = text_of(variable("NCCL_NET_PLUGIN"));
  if (plugin == "none") return {"NCCL", "its network plug-in is turned off by NCCL_NET_PLUGIN=none"};
  auto const file = plugin.empty()                            ? std::string("libnccl-net.so")
                    : plugin.find(".so") != std::string::npos ? plugin
                                                              : fmt::format("libnccl-net-{}.so", plugin);
  auto const is_there = can_load(file);
  Diagnosis check{"NCCL",
                  fmt::format("network plug-in {} {}", file, is_there ? "can be loaded" : "is not there")};
  if (is_there) return check;
  if (!plugin.empty())
    check.findings.push_back(
        {fmt::format("NCCL_NET_PLUGIN={}, but {} cannot be loaded: NCCL falls back to sockets", plugin, file),
         "put its folder in LD_LIBRARY_PATH, or unset NCCL_NET_PLUGIN"});
  else if (has_slingshot && num_hosts > 1)
    check.findings.push_back(
        {"the network is Slingshot, and NCCL has no plug-in for it: it falls back to sockets",
         "load the module of aws-ofi-nccl (aws-ofi-rccl), or put its folder in LD_LIBRARY_PATH"});
  return check;
}

bool is_known_machine(std::string const& name_or_path) {
  auto const machines = pmm::built_in_machines();
  return std::ranges::find(machines, name_or_path, &pmm::BuiltInMachine::name) != machines.end() ||
         std::filesystem::exists(name_or_path);
}

Diagnosis check_fabric_files(std::string const& machine, Variable const& variable) {
  Diagnosis check{"fabric files", ""};
  std::vector<std::string> found;
  for (auto const* const name : file_variables) {
    auto const path = text_of(variable(name));
    if (path.empty()) continue;
    if (std::filesystem::exists(path))
      found.emplace_back(name);
    else
      check.findings.push_back(
          {fmt::format("{} names '{}', which is not there", name, path),
           fmt::format("correct it, or unset {}: the library then finds out by itself", name)});
  }
  auto const add_machine = [&](std::string const& name, std::string const& value) {
    if (value.empty()) return;
    std::vector<std::string_view> names;
    for (auto const& each : pmm::built_in_machines())
      names.push_back(each.name);
    if (is_known_machine(value))
      found.push_back(name);
    else
      check.findings.push_back(
          {fmt::format("{} names the machine file '{}', which is not there", name, value),
           fmt::format(
               "give one of {}, or write a file with `mpirun -n 2 orthant bench machine -o FILE.toml`",
               fmt::join(names, ", "))});
  };
  add_machine("--machine", machine);
  for (auto const* const name : machine_variables)
    if (auto const value = text_of(variable(name)); value != machine) add_machine(name, value);
  check.fact = found.empty() ? "none is named" : fmt::format("{} found", fmt::join(found, ", "));
  if (!check.findings.empty() && found.empty()) check.fact = "named, and missing";
  return check;
}

namespace {

struct Launcher {
  char const* size; // variable with the number of processes of the job step
  char const* rank;
  char const* name;
  char const* fix;
};

// SLURM_NTASKS is not used, because it is also set in batch scripts and for mpirun inside an allocation. The first variable that is set is
// used: mpirun comes first because under Slurm it sets variables of its own for the ranks.
constexpr std::array launchers{
    Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun",
             "start it with the mpirun of the MPI library that `orthant --version` names"},
    Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun",
             "start it with `srun --mpi=pmix` (`srun --mpi=list` shows what there is), or with mpirun"},
    Launcher{"PMI_SIZE", "PMI_RANK", "a launcher with PMI",
             "start it with the launcher of the MPI library that `orthant --version` names"},
    Launcher{"FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run",
             "load the MPI library's PMI for Flux: `flux run -o mpi=none` or `-o pmi=pmix`"}};

int number_of(char const* text) {
  return text == nullptr ? -1 : std::atoi(text);
}

Launcher const* find_launcher(Variable const& variable) {
  auto const found =
      std::ranges::find_if(launchers, [&](Launcher const& each) { return variable(each.size) != nullptr; });
  return found == launchers.end() ? nullptr : &*found;
}

std::map<std::string, std::vector<RankFacts const*>> by_host(std::vector<RankFacts> const& facts) {
  std::map<std::string, std::vector<RankFacts const*>> hosts;
  for (auto const& each : facts)
    hosts[each.host].push_back(&each);
  return hosts;
}

} // namespace

bool is_first_process(Variable const& variable) {
  auto const* const launcher = find_launcher(variable);
  return launcher == nullptr || number_of(variable(launcher->rank)) <= 0;
}

Diagnosis check_launcher(int num_ranks, int num_hosts, Variable const& variable) {
  Diagnosis check{"launcher", fmt::format("{} rank{} on {} host{}", num_ranks, num_ranks == 1 ? "" : "s",
                                          num_hosts, num_hosts == 1 ? "" : "s")};
  auto const* const launcher = find_launcher(variable);
  if (launcher == nullptr) return check;
  auto const num_started = number_of(variable(launcher->size));
  check.fact += fmt::format(", started by {}", launcher->name);
  if (num_started > 1 && num_started != num_ranks)
    check.findings.push_back(
        {fmt::format("{} started {} processes, but to MPI {} ({}={})", launcher->name, num_started,
                     num_ranks == 1 ? "each is a job of its own"
                                    : fmt::format("they are {} ranks", num_ranks),
                     launcher->size, num_started),
         launcher->fix});
  return check;
}

Diagnosis check_cores(std::vector<RankFacts> const& facts) {
  Diagnosis check{"cores", ""};
  for (auto const& [host, ranks] : by_host(facts)) {
    std::set<int> cores;
    auto num_threads = 0, most = 0;
    for (auto const* rank : ranks) {
      cores.insert(rank->cores.begin(), rank->cores.end());
      num_threads += rank->num_threads;
      most = std::max(most, rank->num_threads);
    }
    if (check.fact.empty())
      check.fact = fmt::format("{} rank{} x {} thread{} on {} of {} cores of {}", ranks.size(),
                               ranks.size() == 1 ? "" : "s", most, most == 1 ? "" : "s", cores.size(),
                               ranks.front()->num_host_cores, host);
    if (cores.empty()) continue; // unknown
    auto const num_cores = static_cast<int>(cores.size());
    if (num_threads > num_cores) {
      auto const is_bound = num_cores < ranks.front()->num_host_cores;
      check.findings.push_back(
          {fmt::format("{}: {} threads of {} rank{} share {} core{}", host, num_threads, ranks.size(),
                       ranks.size() == 1 ? "" : "s", num_cores, num_cores == 1 ? "" : "s"),
           is_bound
               ? fmt::format("the host has {} cores: bind each rank to cores of its own (mpirun --map-by "
                             "core --bind-to core, srun "
                             "--cpus-per-task N --cpu-bind=cores)",
                             ranks.front()->num_host_cores)
               : fmt::format(
                     "start at most {} rank{} per host, or fewer threads (OMP_NUM_THREADS); without mpirun's "
                     "--oversubscribe this would be refused",
                     std::max(1, num_cores / most), num_cores / most <= 1 ? "" : "s")});
      continue;
    }
    for (auto const* rank : ranks)
      if (!rank->cores.empty() && std::ssize(rank->cores) < rank->num_threads) {
        check.findings.push_back(
            {fmt::format("{}: rank {} has {} threads on {} core{}", host, rank->rank, rank->num_threads,
                         rank->cores.size(), rank->cores.size() == 1 ? "" : "s"),
             "give each rank as many cores as threads (mpirun --map-by slot:PE=N, srun --cpus-per-task N)"});
        break;
      }
  }
  return check;
}

Diagnosis check_numa(std::vector<RankFacts> const& facts) {
  Diagnosis check{"NUMA", ""};
  for (auto const& [host, ranks] : by_host(facts)) {
    std::set<int> nodes;
    for (auto const* rank : ranks)
      nodes.insert(rank->numa_nodes.begin(), rank->numa_nodes.end());
    if (check.fact.empty())
      check.fact = nodes.empty() ? "not told by the system"
                                 : fmt::format("ranks of {} use NUMA node{} {}", host,
                                               nodes.size() == 1 ? "" : "s", fmt::join(nodes, ", "));
    if (ranks.size() < 2) continue;
    for (auto const* rank : ranks)
      if (rank->numa_nodes.size() > 1) {
        check.findings.push_back(
            {fmt::format("{}: the cores of rank {} are of NUMA nodes {}, so its memory may be far away", host,
                         rank->rank, fmt::join(rank->numa_nodes, ", ")),
             "bind ranks to cores of one NUMA node (mpirun --map-by numa --bind-to numa, srun "
             "--cpu-bind=cores)"});
        break;
      }
  }
  return check;
}

} // namespace orthant::cli

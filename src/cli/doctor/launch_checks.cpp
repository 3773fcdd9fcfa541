// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/launch_checks.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/ranges.h>
#include <map>
#include <set>
#include <string_view>

namespace orthant::cli {
namespace {

struct Launcher {
  char const* size; // variable with the number of processes of the job step
  char const* rank;
  char const* name;
  char const* fix;
};

// Not SLURM_NTASKS: batch scripts and mpirun inside an allocation have it, too. The first one that is set counts: mpirun under Slurm
// sets variables of its own for the ranks.
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
    if (cores.empty()) continue; // the system does not say
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

// SPDX-License-Identifier: Apache-2.0
#include "cli/study/launch.hpp"

#include "cli/options/option_text.hpp"
#include "runtime/error.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <random>

namespace orthant::cli {

std::string template_of(Study const& study, std::string const& machine) {
  std::vector<std::string> names;
  for (auto const& [name, text] : built_in_templates()) {
    if (name == machine) return std::string(text);
    names.emplace_back(name);
  }
  auto text = text_of_file(study.home() / machine);
  if (text.empty())
    runtime::throw_user("there is no template of batch jobs '{}'; give one of {}, or a script{}", machine,
                        fmt::join(names, ", "), runtime::did_you_mean(machine, names));
  return text;
}

Scheduler scheduler_of(std::string_view script) {
  return script.find("\n#flux:") != std::string_view::npos ? Scheduler::flux : Scheduler::slurm;
}

namespace {

std::string command_of(std::string const& program, std::vector<std::string> const& arguments) {
  auto text = quoted(program);
  for (auto const& word : arguments)
    text += fmt::format(" {}", quoted(word));
  return text;
}

} // namespace

std::string point_script(Study const& study, StudyPoint const& point, std::string const& program) {
  auto const& jobs = study.jobs;
  auto const folder = study.folder.lexically_proximate(study.home()).string();
  auto text =
      fmt::format("#!/usr/bin/env bash\n"
                  "# Point {0} of the study {1}, on {2} rank{3}. `orthant study submit` wrote this file.\n"
                  "set -uo pipefail\n"
                  "cd {4} || exit 1\n"
                  "folder={5} key={6}\n"
                  "[ -e \"$folder/results/$key.jsonl\" ] && exit 0\n",
                  point.key, study.name, point.ranks, point.ranks == 1 ? "" : "s",
                  quoted(study.home().string()), quoted(folder), quoted(point.key));
  if (!jobs.launcher.empty()) text += fmt::format("ORTHANT_LAUNCH={}\n", quoted(jobs.launcher));
  if (!jobs.emulate.empty()) text += fmt::format("export ORTHANT_EMULATE={}\n", quoted(jobs.emulate));
  text += fmt::format("launch() {{ ${{ORTHANT_LAUNCH:-mpirun -n}} {} \"$@\"; }}\n\n"
                      "run() {{\n",
                      point.ranks);
  if (!point.generated.empty())
    // Another point may generate the same graph at the same time. If this one then fails, it finds the file of the other.
    text += fmt::format("  [ -e {0} ] || launch {1} || [ -e {0} ] || return\n", quoted(point.generated),
                        command_of(program, point.generation));
  text += fmt::format("  launch {} --metrics \"$part\"\n"
                      "}}\n\n"
                      "part=$folder/parts/$key.${{SLURM_JOB_ID:-here}}.$$.jsonl\n"
                      "rm -f \"$folder/failures/$key\"\n"
                      "run > \"$folder/logs/$key.log\" 2>&1\n"
                      "status=$?\n"
                      "if [ \"$status\" -eq 0 ]; then\n"
                      "  sync \"$part\" && mv -n \"$part\" \"$folder/results/$key.jsonl\" || [ -e "
                      "\"$folder/results/$key.jsonl\" ] || status=1\n"
                      "fi\n"
                      "[ \"$status\" -eq 0 ] || echo \"$status\" > \"$folder/failures/$key\"\n"
                      "rm -f \"$part\"\n"
                      "exit \"$status\"\n",
                      command_of(program, point.arguments));
  return text;
}

namespace {

std::string program_of(Study const& study) {
  if (!study.jobs.program.empty()) return study.jobs.program;
  std::error_code error;
  auto const path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    runtime::throw_user("the path of this program is not known: set `program` of [jobs] in the study file");
  return path.string();
}

void write_scripts(Study const& study, StudyFolder const& folder, std::vector<StudyPoint> const& points) {
  auto const program = program_of(study);
  for (auto const& point : points) {
    write_file(folder.script(point), point_script(study, point, program), true);
    std::filesystem::remove(folder.failure(point)); // left by an earlier attempt
  }
}

/// Unused path for a list of points: an earlier list must stay, since it is only read when its job starts.
std::filesystem::path new_list(StudyFolder const& folder, std::int64_t num_nodes) {
  for (auto number = 1;; ++number)
    if (auto path = folder.at("jobs", fmt::format("{}-nodes-{}.txt", num_nodes, number));
        !std::filesystem::exists(path))
      return path;
}

/// Unique job name.
std::string new_job_name(Study const& study) {
  return fmt::format("{}-{:08x}", study.name, std::random_device{}());
}

} // namespace

std::vector<StudyPoint> points_to_start(std::vector<StudyPoint> const& points,
                                        std::vector<PointStatus> const& states) {
  std::vector<StudyPoint> chosen;
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto const state = states[i].state;
    if (state == PointState::to_do || state == PointState::failed || state == PointState::lost)
      chosen.push_back(points[i]);
  }
  return chosen;
}

std::vector<BatchJob> submit_points(Study const& study, StudyFolder const& folder,
                                    std::vector<StudyPoint> const& points, std::string const& machine) {
  auto const script = template_of(study, machine);
  write_scripts(study, folder, points);
  auto const script_path = folder.at("jobs", "job.sh");
  write_file(script_path, script, true);

  std::map<std::int64_t, std::vector<StudyPoint const*>> by_nodes;
  for (auto const& point : points)
    by_nodes[(point.ranks + study.jobs.ranks_per_node - 1) / study.jobs.ranks_per_node].push_back(&point);
  std::vector<BatchJob> jobs;
  for (auto const& [num_nodes, of_nodes] : by_nodes) {
    std::string list;
    std::vector<std::string> keys;
    for (auto const* point : of_nodes) {
      list += folder.script(*point).string() + "\n";
      keys.push_back(point->key);
    }
    auto const list_path = new_list(folder, num_nodes);
    write_file(list_path, list);
    jobs.push_back(submit({.scheduler = scheduler_of(script),
                           .name = new_job_name(study),
                           .script = script_path,
                           .list = list_path,
                           .folder = study.home(),
                           .logs = study.folder / "logs",
                           .num_nodes = num_nodes,
                           .ranks_per_node = study.jobs.ranks_per_node,
                           .options = study.jobs.options},
                          std::move(keys)));
    folder.add(jobs.back()); // recorded now, because the next submission may fail
  }
  return jobs;
}

int run_points_here(Study const& study, StudyFolder const& folder, std::vector<StudyPoint> const& points,
                    std::string const& launcher, std::function<void(StudyPoint const&, int)> const& report) {
  // Open MPI refuses more ranks than cores unless one of the last two variables is set: the first one up to version 4, the second one
  // from version 5 on. Other launchers (Hydra of MPICH and Intel MPI) start any number.
  std::vector<std::pair<std::string, std::string>> const variables{
      {"ORTHANT_LAUNCH", launcher},
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}};
  write_scripts(study, folder, points);
  int num_failed = 0;
  for (auto const& point : points) {
    auto const status = run_child({"bash", folder.script(point).string()}, variables).status;
    num_failed += status == 0 ? 0 : 1;
    report(point, status);
  }
  return num_failed;
}

} // namespace orthant::cli

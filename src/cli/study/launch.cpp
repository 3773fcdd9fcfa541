// SPDX-License-Identifier: Apache-2.0
#include "cli/study/launch.hpp"

#include "cli/study/child_process.hpp"
#include "cli/study/job_templates.hpp"
#include "cli/study/point_script.hpp"
#include "runtime/error.hpp"

#include <fmt/format.h>
#include <random>

namespace orthant::cli {
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
    std::filesystem::remove(folder.failure(point)); // the next try decides
  }
}

/// A name that no earlier submission has: its list is read when its job starts.
std::filesystem::path new_list(StudyFolder const& folder, std::int64_t num_nodes) {
  for (auto number = 1;; ++number)
    if (auto path = folder.at("jobs", fmt::format("{}-nodes-{}.txt", num_nodes, number));
        !std::filesystem::exists(path))
      return path;
}

/// That no other job has, whatever its id.
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
    folder.add(jobs.back()); // at once: what is submitted is known, even if the next job is refused
  }
  return jobs;
}

int run_points_here(Study const& study, StudyFolder const& folder, std::vector<StudyPoint> const& points,
                    std::string const& launcher, std::function<void(StudyPoint const&, int)> const& report) {
  // Open MPI refuses more ranks than cores unless it is told so: the first one up to version 4, the second one from 5 on. Other
  // launchers (Hydra of MPICH and Intel MPI) start any number.
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

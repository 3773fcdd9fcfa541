// SPDX-License-Identifier: Apache-2.0
#include "cli/study/point_script.hpp"

#include "cli/options/shell_word.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace orthant::cli {
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
    // Another point may make it at the same time: whoever is second finds it there.
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

} // namespace orthant::cli

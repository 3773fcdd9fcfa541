// SPDX-License-Identifier: Apache-2.0
#include "cli/study/job_templates.hpp"

#include "cli/study/study_folder.hpp"
#include "runtime/error.hpp"
#include "runtime/suggestion.hpp"

#include <fmt/ranges.h>

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

} // namespace orthant::cli

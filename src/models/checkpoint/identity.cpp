// SPDX-License-Identifier: Apache-2.0
#include "models/checkpoint/identity.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace orthant::models {

void require_same_training(std::filesystem::path const& path, Identity const& recorded,
                           Identity const& wanted, std::vector<std::string> const& may_differ) {
  std::vector<std::string> differences;
  std::vector<std::string> groups; // of the differences; "" if one may not differ
  for (auto const& part : wanted) {
    auto const found = std::ranges::find(recorded, part.name, &IdentityPart::name);
    if (found == recorded.end() || found->value == part.value) continue;
    if (!part.group.empty() && std::ranges::find(may_differ, part.group) != may_differ.end()) continue;
    differences.push_back(fmt::format("its {} is {}, here it is {}", part.name, found->value, part.value));
    if (std::ranges::find(groups, part.group) == groups.end()) groups.push_back(part.group);
  }
  if (differences.empty()) return;
  auto const may_be_allowed = std::ranges::find(groups, std::string()) == groups.end();
  runtime::throw_user(
      "'{}' is a checkpoint of another training: {}{}", path.string(), fmt::join(differences, "; "),
      may_be_allowed ? fmt::format(" (--resume-override {} goes on all the same)", fmt::join(groups, ","))
                     : std::string());
}

} // namespace orthant::models

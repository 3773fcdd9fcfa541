// SPDX-License-Identifier: Apache-2.0
#include "models/checkpoint/identity.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <string_view>

namespace orthant::models {
namespace {

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Numbers of options by their value: 1 is 1.0.
bool are_same(std::string_view name, std::string_view left, std::string_view right) {
  if (left == right || !name.starts_with("--")) return left == right;
  auto const number = number_of(left);
  return number && number == number_of(right);
}

} // namespace

void require_same_training(std::filesystem::path const& path, Identity const& recorded,
                           Identity const& wanted, std::vector<std::string> const& may_differ) {
  std::vector<std::string> differences;
  std::set<std::string> groups; // of the differences; "" if one may not differ
  auto const compare = [&](IdentityPart const& part, std::string const* found, std::string const* here) {
    if (found != nullptr && here != nullptr && are_same(part.name, *found, *here)) return;
    auto const is_one_sided = found == nullptr || here == nullptr;
    if (is_one_sided && part.group == if_both_have_it) return;
    if (std::ranges::find(may_differ, part.group) != may_differ.end()) return;
    differences.push_back(fmt::format("its {} is {}, here it is {}", part.name,
                                      found == nullptr ? "not given" : *found,
                                      here == nullptr ? "not given" : *here));
    groups.insert(part.group == if_both_have_it ? std::string() : part.group);
  };
  for (auto const& part : wanted) {
    auto const found = std::ranges::find(recorded, part.name, &IdentityPart::name);
    if (found != recorded.end())
      compare(part, &found->value, &part.value);
    else if (!part.is_default)
      compare(part, nullptr, &part.value);
  }
  for (auto const& part : recorded)
    if (std::ranges::find(wanted, part.name, &IdentityPart::name) == wanted.end())
      compare(part, &part.value, nullptr);
  if (differences.empty()) return;
  runtime::throw_user(
      "'{}' is a checkpoint of another training: {}{}", path.string(), fmt::join(differences, "; "),
      groups.contains(std::string())
          ? std::string()
          : fmt::format(" (--resume-override {} goes on all the same)", fmt::join(groups, ",")));
}

} // namespace orthant::models

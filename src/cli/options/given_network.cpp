// SPDX-License-Identifier: Apache-2.0
#include "cli/options/given_network.hpp"

#include <algorithm>
#include <charconv>

namespace orthant::cli {
namespace {

bool is_same(nlohmann::ordered_json const& given, std::string const& recorded) {
  if (given.is_string()) return given.get<std::string>() == recorded;
  if (given.is_boolean()) return recorded == (given.get<bool>() ? "yes" : "no") || recorded == given.dump();
  double number = 0;
  auto const* const end = recorded.data() + recorded.size();
  auto const [last, error] = std::from_chars(recorded.data(), end, number);
  return error == std::errc() && last == end && given.is_number() && given.get<double>() == number;
}

} // namespace

void require_given_network(Context const& context, std::string const& path,
                           models::Architecture const& of_weights) {
  auto const& sources = context.run_record.at("sources");
  auto const& configuration = context.run_record.at("configuration");
  for (auto const& [part, recorded] : of_weights) {
    auto option = part;
    std::ranges::replace(option, '_', '-');
    if (sources.value(option, std::string("default")) == "default" || !configuration.contains(option))
      continue;
    auto const& given = configuration.at(option);
    if (!is_same(given, recorded))
      runtime::throw_user("--{} {}: the weights of '{}' are of another network, whose {} is {}; leave out "
                          "--{}, or give that value",
                          option, given.is_string() ? given.get<std::string>() : given.dump(), path, part,
                          recorded, option);
  }
}

} // namespace orthant::cli

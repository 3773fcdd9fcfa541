// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/dataset.hpp"

#include "graph/generate/generators.hpp"
#include "graph/generate/karate.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/checked.hpp"
#include "runtime/suggestion.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <string>

namespace orthant::graph {

using runtime::checked_range;
using runtime::throw_user;

namespace {

using Values = std::map<std::string, std::string, std::less<>>;

struct Description {
  std::string kind;
  Values values;
};

Description parse(std::string_view text) {
  Description result;
  auto const colon = text.find(':');
  result.kind = text.substr(0, colon);
  auto rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    auto const comma = rest.find(',');
    auto const pair = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    auto const equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size())
      throw_user("data set {}: \"{}\" is not key=value", text, pair);
    auto const key = std::string(pair.substr(0, equals));
    if (!result.values.emplace(key, pair.substr(equals + 1)).second)
      throw_user("data set {}: {} is given twice", text, key);
  }
  return result;
}

double to_number(std::string const& key, std::string const& value) {
  char* end = nullptr;
  auto const number = std::strtod(value.c_str(), &end);
  if (end != value.c_str() + value.size() || !std::isfinite(number))
    throw_user("data set: {}={} is not a number", key, value);
  return number;
}

/// Whole numbers may be written as 1e6.
std::int64_t to_count(std::string const& key, std::string const& value) {
  auto const* const end = value.data() + value.size();
  auto count = std::int64_t{0};
  auto const digits = std::from_chars(value.data(), end, count);
  if (digits.ec == std::errc() && digits.ptr == end && count >= 0) return count;
  auto const number = to_number(key, value);
  constexpr auto all_whole = 0x1p53; // beyond it a double skips whole numbers
  if (number < 0 || number != std::floor(number) || number > all_whole)
    throw_user("data set: {}={} is not a whole number from 0 to {}", key, value,
               std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(number);
}

using Setters =
    std::map<std::string, std::function<void(std::string const& key, std::string const& value)>, std::less<>>;

void apply_values(Description const& description, Setters const& setters) {
  std::vector<std::string> known;
  for (auto const& [key, set] : setters)
    known.push_back(key);
  for (auto const& [key, value] : description.values) {
    auto const setter = setters.find(key);
    if (setter == setters.end())
      throw_user("data set {}: unknown key '{}'{}", description.kind, key, runtime::did_you_mean(key, known));
    setter->second(key, value);
  }
}

} // namespace

std::unique_ptr<GraphSource> open_dataset(runtime::Communicator const& comm, std::string_view text,
                                          std::uint64_t seed) {
  auto const description = parse(text);
  auto const count_into = [](std::int64_t& target) {
    return [&target](std::string const& key, std::string const& value) { target = to_count(key, value); };
  };
  auto const number_into = [](double& target) {
    return [&target](std::string const& key, std::string const& value) { target = to_number(key, value); };
  };
  if (description.kind == "karate") {
    std::int64_t num_classes = 2;
    Setters setters;
    setters.emplace("classes", count_into(num_classes));
    apply_values(description, setters);
    return karate_club(comm, num_classes);
  }
  std::vector<std::string> const known{"karate", "sbm", "rmat", "grid2d", "ring"};
  if (std::ranges::find(known, description.kind) == known.end())
    throw_user("unknown data set \"{}\"{}; known: karate, sbm, rmat, grid2d, ring", description.kind,
               runtime::did_you_mean(description.kind, known));

  GeneratorOptions options;
  options.kind = parse_generator_kind(description.kind);
  options.num_vertices = 2000;
  options.num_features = 32;
  options.num_classes = 8;
  options.seed = seed;
  auto seed_given = static_cast<std::int64_t>(seed);
  std::int64_t directed = 0;
  Setters setters{{"vertices", count_into(options.num_vertices)},
                  {"edges", count_into(options.num_edges)},
                  {"features", count_into(options.num_features)},
                  {"classes", count_into(options.num_classes)},
                  {"seed", count_into(seed_given)},
                  {"train", number_into(options.split_fractions[0])},
                  {"valid", number_into(options.split_fractions[1])},
                  {"test", number_into(options.split_fractions[2])},
                  {"separation", number_into(options.separation)}};
  bool const is_drawn = options.kind == GeneratorKind::rmat || options.kind == GeneratorKind::sbm;
  if (is_drawn) setters.emplace("directed", count_into(directed));
  if (options.kind == GeneratorKind::sbm) setters.emplace("homophily", number_into(options.homophily));
  if (options.kind == GeneratorKind::rmat)
    for (std::size_t i = 0; i < 3; ++i)
      setters.emplace(std::string(1, "abc"[i]), number_into(options.corners[i]));
  apply_values(description, setters);
  options.seed = static_cast<std::uint64_t>(seed_given);
  options.is_directed = checked_range(directed, 0, 1, "data set: directed") == 1;
  return generate_graph(comm, options);
}

} // namespace orthant::graph

// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/rank_facts.hpp"

#include "runtime/comm/text_exchange.hpp"

#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
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

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/expert_report.hpp"

#include "cli/training/train_run.hpp"
#include "models/experts/expert_placement.hpp"
#include "runtime/error.hpp"
#include "runtime/files/table_file.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>
#include <tuple>

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;
using LoadsByLayer = std::map<std::int64_t, std::vector<std::int64_t>>;

/// Adds the tokens of one layer of one step. Throws nlohmann's exceptions if the record is another one.
void add_loads(LoadsByLayer& sums, Json const& experts, std::string const& path) {
  auto const layer = experts.at("layer").get<std::int64_t>();
  auto const tokens = experts.at("tokens").get<std::vector<std::int64_t>>();
  auto& sum = sums.try_emplace(layer, tokens.size(), 0).first->second;
  auto const is_count = [](std::int64_t number) { return number >= 0; };
  if (sum.size() != tokens.size() || !std::ranges::all_of(tokens, is_count))
    runtime::throw_user("--expert-loads '{}': the tokens of layer {} are not {} counts in each step", path,
                        layer, sum.size());
  for (std::size_t e = 0; e < tokens.size(); ++e)
    sum[e] += tokens[e];
}

LoadsByLayer parse_loads(std::string_view text, std::string const& path) {
  LoadsByLayer sums;
  std::istringstream lines{std::string(text)};
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      auto const record = Json::parse(line);
      if (record.at("event") != "step" || !record.contains("experts")) continue;
      for (auto const& experts : record.at("experts"))
        add_loads(sums, experts, path);
    } catch (Json::exception const&) {
      runtime::throw_user("--expert-loads '{}': line {} is no record of train-lm --metrics", path, number);
    }
  }
  return sums;
}

std::vector<std::vector<std::int64_t>> loads_of_model(LoadsByLayer const& sums, std::string const& path,
                                                      models::TransformerSettings const& model) {
  auto const& experts = model.experts;
  std::vector<std::vector<std::int64_t>> loads;
  for (std::int64_t l = 0; l < model.num_layers; ++l) {
    if (!experts.has_layer(l)) continue;
    auto const found = sums.find(l);
    if (found == sums.end() || std::ssize(found->second) != experts.num_experts)
      runtime::throw_user("--expert-loads '{}' has no step with tokens of {} experts in layer {}; give the "
                          "metrics of a run with the same --layers, --experts and --moe-every",
                          path, experts.num_experts, l);
    loads.push_back(found->second);
  }
  return loads;
}

/// What the placement gains in a layer.
struct Gain {
  std::int64_t layer = 0;
  double in_order = 1;
  double placed = 1;
};

std::vector<Gain> gains_of(models::TransformerSettings const& model, int num_ranks) {
  auto const& experts = model.experts;
  std::vector<Gain> gains;
  if (experts.past_loads.empty()) return gains;
  for (std::int64_t l = 0; l < model.num_layers; ++l) {
    if (!experts.has_layer(l)) continue;
    auto const& loads = experts.past_loads[gains.size()];
    gains.push_back(
        {l, models::imbalance_of_ranks(loads, {}, num_ranks),
         models::imbalance_of_ranks(loads, models::balanced_places(loads, num_ranks), num_ranks)});
  }
  return gains;
}

} // namespace

std::vector<std::vector<std::int64_t>> read_expert_loads(runtime::Communicator const& world,
                                                         std::string const& path,
                                                         models::TransformerSettings const& model) {
  auto const parse = [&](std::string_view text) {
    return loads_of_model(parse_loads(text, path), path, model);
  };
  auto const text =
      runtime::read_table_file(world, path, [&](std::string_view of_root) { std::ignore = parse(of_root); });
  return parse(text);
}

void describe_placement(Context const& context, models::TransformerSettings const& model, int num_ranks) {
  for (auto const& gain : gains_of(model, num_ranks))
    say(context,
        "experts of layer {:<4}  fullest rank of {} by past loads: {:.3f} times the mean in order, {:.3f} as "
        "placed\n",
        gain.layer, num_ranks, gain.in_order, gain.placed);
}

nlohmann::ordered_json record_of_placement(models::TransformerSettings const& model, int num_ranks) {
  Json record;
  for (auto const& gain : gains_of(model, num_ranks))
    record.push_back(
        {{"layer", gain.layer}, {"rank_imbalance_in_order", gain.in_order}, {"rank_imbalance", gain.placed}});
  return record;
}

void describe_experts(Context const& context, std::vector<models::ExpertLoad> const& loads) {
  for (auto const& load : loads) {
    auto const num_choices = std::accumulate(load.chosen.begin(), load.chosen.end(), std::int64_t{0});
    if (num_choices == 0) continue; // no pass
    say(context,
        "experts of layer {:<4}  imbalance {:.3f}, entropy {:.3f} of {:.3f} nats, {:.2f} % of the choices "
        "dropped\n",
        load.layer, load.imbalance(), load.entropy(), std::log(static_cast<double>(load.chosen.size())),
        100 * static_cast<double>(load.num_dropped) / static_cast<double>(num_choices));
  }
}

} // namespace orthant::cli

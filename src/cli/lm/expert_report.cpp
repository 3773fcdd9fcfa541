// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/train_lm_run.hpp"

#include "cli/training/train_settings.hpp"
#include "models/lm/plan/expert_plan.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;
using LoadsByLayer = std::map<std::int64_t, std::vector<std::int64_t>>;

// Upper bound of the choices of an expert in all steps, larger than in any training; sums over experts stay in range.
constexpr auto most_choices = std::int64_t{1} << 48;

/// Adds the tokens of one layer and one step to `sums`. Throws nlohmann's exceptions if the record has another form.
void add_loads(LoadsByLayer& sums, Json const& experts, std::string const& path) {
  auto const layer = experts.at("layer").get<std::int64_t>();
  auto const& tokens = experts.at("tokens");
  auto& sum = sums.try_emplace(layer, tokens.size(), 0).first->second;
  auto is_valid = tokens.is_array() && sum.size() == tokens.size();
  for (std::size_t e = 0; is_valid && e < sum.size(); ++e) {
    auto const& number = tokens[e];
    is_valid = number.is_number_unsigned() &&
               number.get<std::uint64_t>() <= static_cast<std::uint64_t>(most_choices - sum[e]);
    if (is_valid) sum[e] += number.get<std::int64_t>();
  }
  if (!is_valid)
    runtime::throw_user("--expert-loads '{}': the tokens of layer {} are not {} counts in each step", path,
                        layer, sum.size());
}

LoadsByLayer read_loads(std::string const& path) {
  if (!std::filesystem::is_regular_file(path))
    runtime::throw_user("cannot read --expert-loads '{}': there is no such file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) runtime::throw_user("cannot read --expert-loads '{}': it cannot be opened", path);
  LoadsByLayer sums;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
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
  if (file.bad())
    runtime::throw_user("cannot read --expert-loads '{}' to its end: {}", path, std::strerror(errno));
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

/// Imbalance of the ranks in a layer, with experts in order and as placed.
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
  auto const& experts = model.experts;
  std::vector<std::vector<std::int64_t>> loads;
  for (std::int64_t l = 0; l < model.num_layers; ++l)
    if (experts.has_layer(l)) loads.emplace_back(static_cast<std::size_t>(experts.num_experts), 0);
  runtime::together(world, [&] {
    if (world.is_root()) loads = loads_of_model(read_loads(path), path, model);
  });
  for (auto& of_layer : loads)
    runtime::broadcast(runtime::host, world, of_layer, 0);
  return loads;
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

bool has_chosen(std::vector<models::ExpertLoad> const& loads) {
  return std::ranges::any_of(loads, [](models::ExpertLoad const& load) {
    return std::ranges::any_of(load.chosen, [](std::int64_t count) { return count > 0; });
  });
}

void describe_experts(Context const& context, std::vector<models::ExpertLoad> const& loads) {
  for (auto const& load : loads) {
    auto const num_choices = std::accumulate(load.chosen.begin(), load.chosen.end(), std::int64_t{0});
    if (num_choices == 0) continue; // there was no training pass
    say(context,
        "experts of layer {:<4}  imbalance {:.3f}, entropy {:.3f} of {:.3f} nats, {:.2f} % of the choices "
        "dropped\n",
        load.layer, load.imbalance(), load.entropy(), std::log(static_cast<double>(load.chosen.size())),
        100 * static_cast<double>(load.num_dropped) / static_cast<double>(num_choices));
  }
}

} // namespace orthant::cli

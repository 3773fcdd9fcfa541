// SPDX-License-Identifier: Apache-2.0
//
// Options of train-lm that have no effect without others.
#include "cli/lm/train_lm_options.hpp"

#include <fmt/ranges.h>

namespace orthant::cli {

void require_effective_expert_options(Context const& context, TrainLmOptions const& o) {
  auto const& sources = context.run_record.at("sources");
  auto const is_given = [&](char const* name) {
    auto const source = sources.value(name, std::string("default"));
    return source != "default" && source != "preset";
  };
  if (o.experts > 0) {
    if (o.balance == "bias" && is_given("balance-loss"))
      runtime::throw_user("--balance-loss is for --balance loss; leave it out");
    if (is_given("capacity-group") && o.capacity == "none")
      runtime::throw_user("--capacity-group {} without a limit to count for; give --capacity R, too",
                          o.capacity_group);
    auto const is_balanced = o.expert_placement == "balanced";
    if (is_balanced && o.expert_loads.empty())
      runtime::throw_user("--expert-placement balanced needs the loads of an earlier run; give its metrics "
                          "with --expert-loads FILE");
    if (is_balanced && o.expert_axis == 1)
      runtime::throw_user("--expert-placement balanced places experts on the ranks of --expert-axis, which "
                          "is 1; give a larger one");
    if (o.expert_imbalance != "auto" && std::stod(o.expert_imbalance) > 1 && o.expert_axis == 1)
      runtime::throw_user("--expert-imbalance {} is of the ranks of --expert-axis, which is 1; give a larger "
                          "one",
                          o.expert_imbalance);
    if (!is_balanced && !o.expert_loads.empty())
      runtime::throw_user("--expert-loads is for --expert-placement balanced; give that, too");
    return;
  }
  for (auto const* const name :
       {"expert-axis", "top-k", "top-k-weights", "moe-every", "shared-experts", "capacity", "capacity-group",
        "balance", "balance-loss", "sequence-balance-loss", "z-loss", "router-noise", "expert-imbalance",
        "expert-placement", "expert-loads"})
    if (is_given(name)) runtime::throw_user("--{} is for layers with experts; give --experts, too", name);
}

void require_effective_adapter_options(Context const& context, TrainLmOptions const& o) {
  auto const& sources = context.run_record.at("sources");
  if (o.lora_rank == 0) {
    for (auto const* const name : {"lora-alpha", "lora-targets"})
      if (sources.value(name, std::string("default")) != "default")
        runtime::throw_user("--{} is of adapters; give --lora-rank, too", name);
    return;
  }
  if (o.init_from.empty() && (o.resume == "never" || o.resume == "auto"))
    runtime::throw_user("--lora-rank {} adapts weights that are trained; name them with --init-from",
                        o.lora_rank);
  if (!o.freeze.empty())
    runtime::throw_user(
        "--freeze {}: with --lora-rank all weights are frozen, and only adapters are trained; "
        "leave it out",
        fmt::join(o.freeze, ","));
}

} // namespace orthant::cli

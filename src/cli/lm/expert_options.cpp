// SPDX-License-Identifier: Apache-2.0
//
// Options of train-lm for experts.
#include "cli/lm/train_lm_options.hpp"

namespace orthant::cli {
namespace {

constexpr std::int64_t most_experts = 1 << 14;

void add_experts(Command& command, TrainLmOptions& o) {
  command.begin_group("Experts");
  command.option("--experts", o.experts,
                 "Number of experts per layer (feed-forward networks without biases), of which each token "
                 "uses --top-k; 0: one ordinary feed-forward network",
                 whole_number(0, most_experts));
  command.option("--top-k", o.top_k, "Number of experts per token", whole_number(1, most_experts));
  command.option(
      "--top-k-weights", o.top_k_weights,
      "Weights of a token's experts: normalized (their sum is 1) or softmax (as the router gives them)",
      one_of({"normalized", "softmax"}));
  command.option("--moe-every", o.moe_every,
                 "Every N-th layer has experts; the others have an ordinary feed-forward network",
                 whole_number(1, most_layers_of_model));
  command.option("--top-k-scale", o.top_k_scale, "Factor of the weights of a token's experts",
                 above(0, largest_number));
  command.option("--dense-layers", o.dense_layers,
                 "The first N layers have an ordinary feed-forward network in place of experts",
                 whole_number(0, most_layers_of_model));
  command.option("--expert-width", o.expert_width,
                 "Width of the feed-forward network of an expert; 0: --feed-forward",
                 whole_number(0, widest_model));
  command.option("--shared-experts", o.shared_experts,
                 "Number of additional experts that every token uses, in layers with experts",
                 whole_number(0, most_experts));
  command.number_or_word("--capacity", o.capacity,
                         "Most tokens per expert in a training pass, as a multiple of the mean load; later "
                         "tokens are dropped; none: no limit",
                         {"none"}, above(0, largest_number), runtime::ValueKind::number_or_word);
  command.option("--capacity-group", o.capacity_group,
                 "Tokens over which --capacity is computed: step (all ranks of a pass) or rank (each data "
                 "rank separately; the dropped tokens then depend on the number of data ranks)",
                 one_of({"step", "rank"}));
  command.option("--balance", o.balance,
                 "How loads of experts are balanced: loss (softmax gates, with --balance-loss) or bias "
                 "(sigmoid gates; experts are chosen with a bias, which each step lowers by 0.001 if the "
                 "expert has more than the mean load and else raises)",
                 one_of({"loss", "bias"}));
  command.option("--balance-loss", o.balance_loss, "Coefficient of the load-balancing loss of the experts",
                 in_range(0));
  command.option("--sequence-balance-loss", o.sequence_balance_loss,
                 "Coefficient of the balance loss of each sequence, for --balance bias; DeepSeek-V3 has 1e-4",
                 in_range(0));
  command.option("--z-loss", o.z_loss, "Coefficient of the z-loss, which keeps the router's logits small",
                 in_range(0));
  command.option("--router-noise", o.router_noise,
                 "Standard deviation of noise that is added to the router's logits for the choice of "
                 "experts, in training",
                 in_range(0));
  command.number_or_word(
      "--expert-imbalance", o.expert_imbalance,
      "Load of the fullest rank over the mean load (`imbalance` in the metrics), for predictions "
      "of memory and time; auto: 1 for the time, and for the memory the middle between 1 and the "
      "largest possible value",
      {"auto"}, in_range(1, largest_number), runtime::ValueKind::number_or_word);
}

void add_expert_placement(Command& command, TrainLmOptions& o) {
  command.option("--expert-placement", o.expert_placement,
                 "Placement of experts on the ranks of --expert-axis: order (by number) or balanced (equal "
                 "loads by --expert-loads)",
                 one_of({"order", "balanced"}));
  command.input("--expert-loads", o.expert_loads,
                "Metrics file of an earlier run, whose tokens per expert determine the placement");
}

} // namespace

void add_expert_options(Command& command, TrainLmOptions& o) {
  add_experts(command, o);
  add_expert_placement(command, o);
}

models::ExpertSettings experts_of(TrainLmOptions const& o) {
  models::ExpertSettings experts;
  if (o.experts == 0) return experts;
  experts.num_experts = o.experts;
  experts.top_k = o.top_k;
  experts.every = o.moe_every;
  experts.num_dense = o.dense_layers;
  experts.width = o.expert_width;
  experts.weight_scale = o.top_k_scale;
  experts.num_shared = o.shared_experts;
  experts.normalizes_weights = o.top_k_weights == "normalized";
  if (o.capacity != "none") experts.capacity = std::stod(o.capacity);
  if (o.capacity_group == "rank") experts.capacity_group = models::CapacityGroup::rank;
  experts.has_biases = o.balance == "bias";
  experts.balance_loss = experts.has_biases ? 0 : o.balance_loss;
  experts.z_loss = o.z_loss;
  experts.sequence_loss = o.sequence_balance_loss;
  experts.noise = o.router_noise;
  if (o.expert_imbalance != "auto") experts.planned_imbalance = std::stod(o.expert_imbalance);
  return experts;
}

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
       {"expert-axis", "top-k", "top-k-weights", "top-k-scale", "moe-every", "dense-layers", "expert-width",
        "shared-experts", "capacity", "capacity-group", "balance", "balance-loss", "sequence-balance-loss",
        "z-loss", "router-noise", "expert-imbalance", "expert-placement", "expert-loads"})
    if (is_given(name)) runtime::throw_user("--{} is for layers with experts; give --experts, too", name);
}

} // namespace orthant::cli

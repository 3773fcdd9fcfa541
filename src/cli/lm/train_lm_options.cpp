// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/train_lm_options.hpp"

#include "cli/options/collectives_option.hpp"
#include "cli/options/option_text.hpp"
#include "cli/options/shared_options.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/stragglers.hpp"
#include "cli/training/train_settings.hpp"

#include <cinttypes>
#include <cstdio>
#include <fmt/ranges.h>
#include <map>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_passes = 1'000'000;
constexpr std::int64_t longest_inner_axis = std::int64_t{1} << 20;

void add_model(Command& command, TrainLmOptions& o) {
  command.begin_group("Model");
  command.option("--preset", o.preset,
                 fmt::format("Model, batches and optimizer by name, for all options that are not given: {}",
                             fmt::join(names_of(language_model_presets()), ", ")),
                 one_of(names_of(language_model_presets())));
  command.option(
      "--arch", o.arch,
      "gpt2 (learned positions, LayerNorm, GELU, biases, the head shares the embedding's table) or llama "
      "(rotary positions, RMSNorm, SwiGLU, no biases, a head of its own)",
      one_of({"gpt2", "llama"}));
  command.option("--layers", o.layers, "Number of blocks", whole_number(1, most_layers_of_model));
  command.option("--hidden", o.hidden, "Width of the residual stream", whole_number(1, widest_model));
  command.option("--heads", o.heads, "Number of attention heads; divides --hidden",
                 whole_number(1, widest_model));
  command.option("--kv-heads", o.kv_heads, "Number of heads of keys and values; divides --heads; 0: --heads",
                 whole_number(0, widest_model));
  command.option("--feed-forward", o.feed_forward,
                 "Width of the feed-forward network; 0: 4 times --hidden (gpt2) or 8/3 times (llama)",
                 whole_number(0, widest_model));
  command.option("--positions", o.positions, "Longest sequence of the model; 0: --sequence", whole_number(0));
  command.flag("--bias,!--no-bias", o.bias, "Biases of linear layers and norms (default of gpt2)");
  command.flag("--tied-head,!--no-tied-head", o.tied_head,
               "The head shares the table of the embedding (default of gpt2)");
  command.option("--dropout", o.dropout, "Probability that an activation is dropped", in_range(0, 0.999));
  command.option("--norm-epsilon", o.norm_epsilon, "Epsilon that norms add to the variance", in_range(0, 1));
  command.option("--rotary-base", o.rotary_base, "Base of the wavelengths of rotary positions",
                 above(1, 1e12));
  command.option("--rotary-scaling", o.rotary_scaling,
                 "Scaling of the long wavelengths of rotary positions, as in Llama 3: none, or "
                 "FACTOR,LOW,HIGH,POSITIONS such as 8,1,4,8192");
  command.option("--head-width", o.head_width, "Width of an attention head; 0: --hidden / --heads",
                 whole_number(0, widest_model));
  command.flag("--qk-norm", o.qk_norm, "RMSNorm of queries and keys");
  command.option("--qk-norm-over", o.qk_norm_over,
                 "Numbers that --qk-norm normalizes together: those of a head, as in Qwen3, or of all heads, "
                 "as in OLMoE: head, all",
                 one_of({"head", "all"}));
  command.option(
      "--activation", o.activation,
      "Activation of the feed-forward network: gelu, gelu_tanh (GPT-2's approximation), swiglu, or auto "
      "(gelu for gpt2, swiglu for llama)",
      one_of({"auto", "gelu", "gelu_tanh", "swiglu"}));
}

void add_inner_axes_options(Command& command, TrainLmOptions& o) {
  command.option("--pipeline", o.pipeline,
                 "Number of stages of a pipeline, each a --grid of its own with a part of the layers",
                 whole_number(1, most_layers_of_model));
  command.option("--pipeline-schedule", o.pipeline_schedule,
                 "Order of the passes of --pipeline: 1f1b, or zero-bubble: gradients of weights are computed "
                 "while other stages are waited for, and each stage keeps as much as the first",
                 one_of({"1f1b", "zero-bubble"}));
  command.option("--expert-axis", o.expert_axis,
                 "Number of data ranks over which the experts are distributed; must divide the data axis and "
                 "--experts",
                 whole_number(1, longest_inner_axis));
  command.option(
      "--context-axis", o.context_axis,
      "Number of data ranks that share each sequence, for long sequences: each has two of 2 C chunks of its "
      "tokens; must divide the data axis, and 2 C must divide --sequence",
      whole_number(1, longest_inner_axis));
  command.option(
      "--context-exchange", o.context_exchange,
      "What the ranks of --context-axis C exchange: key-values (gathered), heads (all-to-all; C must "
      "divide those of keys), or auto, the faster by prediction",
      one_of({"auto", "key-values", "heads"}));
}

void add_zero_options(Command& command, TrainLmOptions& o) {
  constexpr std::int64_t last_stage = 3;
  command.option(
      "--zero", o.zero,
      "States that ranks along data shard (ZeRO): 0 none, 1 moments of the optimizer, 2 also sums of "
      "gradients, 3 also weights: the data ranks of --grid then lie along Z",
      whole_number(0, last_stage));
  command.option("--zero-group", o.zero_group,
                 "Ranks that --zero 3 shards weights over: all data ranks, or those of a node: all, node",
                 one_of({"all", "node"}));
}

void add_loss(Command& command, TrainLmOptions& o) {
  constexpr double largest_smoothing = 0.999;
  command.begin_group("Loss");
  command.option("--label-smoothing", o.label_smoothing,
                 "Share of a target that is spread over all tokens of the vocabulary, in training",
                 in_range(0, largest_smoothing));
  command.option("--logit-z-loss", o.logit_z_loss,
                 "Coefficient of the z-loss of the logits, which keeps them small: training adds it times "
                 "log(sum of exp(logits))^2 to the loss of a token",
                 in_range(0));
  command.option(
      "--goldfish", o.goldfish,
      "Goldfish loss, against memorizing passages: leave one in K tokens out of the training loss, "
      "chosen by a hash of the H tokens before it: none, or K,H such as 4,13");
}

/// The value of --goldfish.
models::Goldfish parse_goldfish(std::string const& text) {
  models::Goldfish goldfish;
  if (text == "none") return goldfish;
  int end = 0;
  constexpr std::int64_t most_history = 1'000'000;
  auto const found =
      std::sscanf(text.c_str(), "%" SCNd64 ",%" SCNd64 "%n", &goldfish.one_in, &goldfish.history, &end);
  if (found != 2 || end != static_cast<int>(text.size()) || goldfish.one_in < 2 || goldfish.history < 1 ||
      goldfish.history > most_history)
    runtime::throw_user(
        "--goldfish '{}': give none, or K,H such as 4,13: one in K tokens, K at least 2, and H "
        "tokens before it, H at least 1",
        text);
  return goldfish;
}

void add_fine_tuning(Command& command, TrainLmOptions& o) {
  command.begin_group("Fine-tuning");
  command.option(
      "--lora-rank", o.lora_rank,
      "Rank of low-rank adapters (LoRA) of the weights of --init-from; only these are trained; 0: no "
      "adapters",
      whole_number(0, widest_model));
  command.option("--lora-alpha", o.lora_alpha,
                 "Scale of the adapters: they are multiplied by --lora-alpha / --lora-rank",
                 above(0, largest_number));
  command.option("--lora-targets", o.lora_targets,
                 "Weights with adapters: queries, keys, values and output of attention (q, k, v, o), and the "
                 "matrices of the feed-forward network (gate, up, down)",
                 one_of({"q", "k", "v", "o", "gate", "up", "down"}));
  command.option("--freeze", o.freeze,
                 "Weights, biases and scales that the training does not change: names or patterns, such as "
                 "wte.*,h.0.*");
}

void add_batches(Command& command, TrainLmOptions& o) {
  command.begin_group("Batches");
  // Evaluations also accept 0, their default.
  auto const is_open = o.sequence == 0;
  command.option("--sequence", o.sequence,
                 is_open ? "Tokens per sequence; 0: as in training" : "Tokens per sequence",
                 whole_number(is_open ? 0 : 1));
  command.option("--global-batch", o.global_batch,
                 is_open ? "Sequences per pass, over all ranks; affects only speed and memory; 0: 16 or more"
                         : "Sequences per step, over all ranks",
                 whole_number(is_open ? 0 : 1));
  command.flag("--document-mask", o.document_mask,
               "Attention stays within documents, which the end token separates; positions restart in each");
  command.option("--accumulate", o.accumulate, "Number of passes per step; divides --global-batch",
                 whole_number(1, most_passes));
}

void add_checkpointing_option(Command& command, TrainLmOptions& o) {
  command.number_or_word(
      "--activation-checkpointing", o.activation_checkpointing,
      "Activation checkpointing: keep only the input of every N-th layer for the backward pass, "
      "and recompute the rest: none, full (N = 1) or N",
      {"none", "full"}, whole_number(1, most_layers_of_model));
  command.option("--recompute", o.recompute,
                 "Results of every layer that the backward pass computes again instead of keeping them: "
                 "norms, activations, attention",
                 one_of({"norms", "activations", "attention"}));
  command.flag("--keep-collectives", o.keep_collectives,
               "Also keep the results of the collectives of layers that --activation-checkpointing "
               "recomputes, so that "
               "they send nothing again (communication-aware checkpointing)");
}

void add_training(Command& command, TrainLmOptions& o) {
  add_batches(command, o);
  command.option("--steps", o.steps, "Number of steps", whole_number(0, most_epochs));
  command.begin_group("Optimizer");
  add_optimizer_option(command, o);
  command.option("--lr", o.lr, "Learning rate", above(0, largest_rate));
  add_betas_option(command, o);
  command.option("--weight-decay", o.weight_decay,
                 "Weight decay of matrices and of the tables of tokens and positions; biases and scales of "
                 "norms have none",
                 in_range(0));
  command.option("--no-decay", o.no_decay,
                 "Weights without weight decay: names or patterns, such as wte.weight,*.c_proj.weight");
  command.option("--clip-norm", o.clip_norm, "Scale gradients down to this global norm; 0: do not",
                 in_range(0));
  add_rate_schedule_options(command, o, "");
  command.option("--seed", o.seed, "Seed of all randomness", whole_number(0));
}

void add_running(Command& command, TrainLmOptions& o) {
  command.begin_group("Running");
  command.option("--eval-every", o.eval_every,
                 "Steps between evaluations on the whole validation part; 0: never",
                 whole_number(0, most_epochs));
  command.option("--patience", o.patience,
                 "Stop after N evaluations without a lower validation loss; 0: never",
                 whole_number(0, most_epochs));
  command.option("--log-every", o.log_every,
                 "Steps between lines of progress if the output is a file or pipe",
                 whole_number(1, most_epochs));
  add_checkpointing_option(command, o);
  command.option("--compute-dtype", o.compute_dtype, "Type of numbers in the computation: fp32 or fp64",
                 one_of({"fp32", "fp64"}));
  add_message_formats_option(command, o.comm_dtype, false);
  add_gemm_math_option(command, o.gemm_math);
  add_gemm_table_option(command, o.gemm_table);
  add_stragglers_option(command, o.stragglers, "step");
  add_force_memory_option(command, o.force_memory);
}

/// Sets the option `name`.
void set(TrainLmOptions& o, std::string const& name, nlohmann::ordered_json const& value) {
  using Options = TrainLmOptions;
  static std::map<std::string_view, std::int64_t Options::*> const integers{
      {"layers", &Options::layers},
      {"hidden", &Options::hidden},
      {"heads", &Options::heads},
      {"kv-heads", &Options::kv_heads},
      {"feed-forward", &Options::feed_forward},
      {"sequence", &Options::sequence},
      {"global-batch", &Options::global_batch},
      {"steps", &Options::steps},
      {"warmup-steps", &Options::warmup_steps},
      {"experts", &Options::experts},
      {"top-k", &Options::top_k},
      {"dense-layers", &Options::dense_layers},
      {"expert-width", &Options::expert_width},
      {"shared-experts", &Options::shared_experts}};
  static std::map<std::string_view, double Options::*> const numbers{{"dropout", &Options::dropout},
                                                                     {"lr", &Options::lr},
                                                                     {"min-lr", &Options::min_lr},
                                                                     {"weight-decay", &Options::weight_decay},
                                                                     {"balance-loss", &Options::balance_loss},
                                                                     {"norm-epsilon", &Options::norm_epsilon},
                                                                     {"rotary-base", &Options::rotary_base}};
  if (auto const found = integers.find(name); found != integers.end())
    o.*found->second = value;
  else if (auto const number = numbers.find(name); number != numbers.end())
    o.*number->second = value;
  else if (name == "arch")
    o.arch = value;
  else if (name == "top-k-weights")
    o.top_k_weights = value;
  else if (name == "lr-schedule")
    o.lr_schedule = value;
  else if (name == "bias")
    o.bias = value;
  else if (name == "tied-head")
    o.tied_head = value;
  else if (name == "betas")
    o.betas = value.get<std::vector<double>>();
  else if (name == "clip-norm")
    o.clip_norm = value.get<double>();
  else
    ORTHANT_REQUIRE(false, "a preset sets ", name, ", which nobody reads");
}

std::int64_t kept_every(std::string const& word) {
  if (word == "none" || word == "full") return word == "full" ? 1 : 0;
  return parse_count("--activation-checkpointing", word, most_layers_of_model);
}

} // namespace

TrainLmOptions::TrainLmOptions() {
  optimizer = "adamw";
  lr = 1e-3;
  lr_schedule = "cosine";
  betas = {0.9, 0.95};
  weight_decay = 0.1;
  clip_norm = 1;
}

void add_options(Command& command, TrainLmOptions& o) {
  command.input("--tokens", o.tokens, "Token file, as orthant tokenize writes it");
  add_grid_options(command, o, "--grid auto");
  add_inner_axes_options(command, o);
  add_zero_options(command, o);
  add_model(command, o);
  add_expert_options(command, o);
  add_loss(command, o);
  add_fine_tuning(command, o);
  add_training(command, o);
  add_running(command, o);
  add_weight_options(command, o, "step", "step with the lowest validation loss");
  add_checkpoint_options(command, o, "step");
}

void apply_preset(Context& context, TrainLmOptions& options) {
  auto const& preset = options_of(language_model_presets(), options.preset);
  auto const set_option = [&](std::string const& name, nlohmann::ordered_json const& value) {
    set(options, name, value);
  };
  set_unless_given(context, preset, set_option);
  fit_preset(context, options);
  set_unless_given(context, options_implied_by(options.arch), set_option);
  // The record does not know the defaults of lists and of optional values.
  auto& configuration = context.run_record.at("configuration");
  auto const record = [&](char const* name, nlohmann::ordered_json const& value) {
    if (configuration.contains(name)) return;
    configuration[name] = value;
    context.run_record.at("sources")[name] = "default";
  };
  record("betas", options.betas);
  if (options.clip_norm) record("clip-norm", *options.clip_norm);
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

models::TransformerSettings model_of(TrainLmOptions const& o) {
  constexpr std::int64_t vocabulary = 1;
  auto const num_positions = o.positions > 0 ? o.positions : o.sequence;
  auto const num_kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads;
  auto settings =
      o.arch == "llama"
          ? models::llama_settings(o.layers, o.hidden, o.heads, num_kv_heads, vocabulary, num_positions)
          : models::gpt2_settings(o.layers, o.hidden, o.heads, vocabulary, num_positions);
  settings.num_kv_heads = num_kv_heads;
  if (o.feed_forward > 0) settings.feed_forward = o.feed_forward;
  settings.has_bias = o.bias;
  settings.tied_head = o.tied_head;
  settings.dropout = o.dropout;
  settings.norm_epsilon = o.norm_epsilon;
  settings.rotary_base = o.rotary_base;
  settings.rotary_scaling = models::parse_rotary_scaling(o.rotary_scaling);
  settings.head_width = o.head_width;
  if (!o.qk_norm && o.qk_norm_over != "head")
    runtime::throw_user("--qk-norm-over {} is for --qk-norm: give that, too", o.qk_norm_over);
  if (o.qk_norm)
    settings.query_key_norm =
        o.qk_norm_over == "all" ? models::QueryKeyNorm::all : models::QueryKeyNorm::head;
  if (o.activation != "auto") settings.activation = models::parse_feed_forward(o.activation);
  settings.context_exchange = models::parse_context_exchange(o.context_exchange);
  if (o.context_exchange != "auto" && o.context_axis == 1)
    runtime::throw_user("--context-exchange {} is for --context-axis: give that, too", o.context_exchange);
  settings.recomputed = models::parse_recomputation(o.recompute);
  settings.splits_backward = o.pipeline_schedule == "zero-bubble";
  if (settings.splits_backward && o.pipeline == 1)
    runtime::throw_user("--pipeline-schedule zero-bubble is for --pipeline: give that, too");
  settings.checkpoint_every = kept_every(o.activation_checkpointing);
  settings.keeps_collectives = o.keep_collectives;
  settings.experts = experts_of(o);
  settings.masks_documents = o.document_mask;
  settings.frozen = o.freeze;
  if (o.lora_rank > 0) settings.adapters = {o.lora_rank, o.lora_alpha, o.lora_targets};
  models::require_valid(settings);
  return settings;
}

models::SequenceSettings sequences_of(TrainLmOptions const& o) {
  return {o.sequence, o.global_batch, o.accumulate, static_cast<std::uint64_t>(o.seed),
          parse_goldfish(o.goldfish)};
}

} // namespace orthant::cli

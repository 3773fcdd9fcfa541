// SPDX-License-Identifier: Apache-2.0
//
// orthant evaluate-lm: the loss of a language model over a whole validation part.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "cli/lm/lm_inference.hpp"
#include "cli/lm/log_likelihood.hpp"
#include "cli/lm/train_lm_options.hpp"
#include "cli/lm/train_lm_run.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_settings.hpp"
#include "graph/arrays/npy.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>

namespace orthant::cli {
namespace {

constexpr std::int64_t usual_lm_batch = 16;

struct EvaluateLmOptions : TrainLmOptions {
  EvaluateLmOptions() { sequence = global_batch = 0; } // 0: as in training, and 16 or more

  std::string weights;
  std::string ids;    // file of sequences, read instead of a token file
  std::string logits; // file to write
  LikelihoodFiles likelihood;
  std::int64_t stride = 0; // 0: the length of the sequences
};

/// Whether attention ends with documents: sequences of --ids, requests and windows of --stride are one document each.
bool masks_documents(EvaluateLmOptions const& o) {
  return o.document_mask && !o.tokens.empty() && o.stride == 0;
}

/// Options of train-lm that evaluate-lm uses: options of the evaluation, then options of the model, which must match the weights.
constexpr std::array<std::string_view, 39> used_by_evaluate_lm{
    "tokens",        "grid",           "expert-axis",     "sequence",     "global-batch", "compute-dtype",
    "gemm-math",     "gemm-table",     "force-memory",    "preset",       "arch",         "layers",
    "hidden",        "heads",          "kv-heads",        "feed-forward", "positions",    "bias",
    "tied-head",     "norm-epsilon",   "rotary-base",     "experts",      "top-k",        "moe-every",
    "machine",       "shared-experts", "head-width",      "qk-norm",      "activation",   "rotary-scaling",
    "top-k-weights", "balance",        "document-mask",   "top-k-scale",  "dense-layers", "expert-width",
    "qk-norm-over",  "context-axis",   "context-exchange"};

InferenceOptions inference_of(EvaluateLmOptions const& options) {
  return {"evaluate-lm", options.weights, options, static_cast<int>(options.expert_axis),
          options.force_memory};
}

/// Throws UserError if given options of the model differ from the weights.
void require_same_model(Context& context, models::TransformerSettings const& model,
                        EvaluateLmOptions const& options) {
  auto const is_llama = model.positions == models::Positions::rotary;
  TrainLmOptions preset = options;
  preset.precision = "fp32";     // not of evaluations, which have --gemm-math alone
  apply_preset(context, preset); // sets options in the run's record
  models::Architecture parts{{"arch", is_llama ? "llama" : "gpt2"}};
  for (auto const& part : record_of(model))
    parts.push_back(part);
  // A size of 0 is derived from other sizes, so it matches any weights.
  auto const usual = is_llama
                         ? models::llama_settings(1, model.hidden, model.num_heads, model.num_heads, 1, 1)
                         : models::gpt2_settings(1, model.hidden, model.num_heads, 1, 1);
  auto const is_open = [&](auto const& part) {
    if (part.first == "positions") return preset.positions == 0;
    if (part.first == "kv_heads") return preset.kv_heads == 0 && model.num_kv_heads == model.num_heads;
    return part.first == "feed_forward" && preset.feed_forward == 0 &&
           model.feed_forward == usual.feed_forward;
  };
  std::erase_if(parts, is_open);
  require_given_network(context, options.weights, parts);
  auto const& sources = context.run_record.at("sources");
  for (auto const* const option :
       {"top-k", "top-k-scale", "moe-every", "dense-layers", "expert-width", "shared-experts", "balance"})
    if (!model.experts.is_on() && sources.value(option, std::string()) == "flag")
      runtime::throw_user("--{} is for layers with experts, and the weights of '{}' have none: leave it out",
                          option, options.weights);
}

/// The model of --weights. Throws UserError if options of the model that the user gave contradict it.
RecordedModel recorded_model(EvaluateLmOptions const& options, Context& context) {
  if (options.weights.empty())
    runtime::throw_user("give --weights W.h5, which train-lm --save-weights or a checkpoint writes");
  auto const recorded = read_model(context.world(), options.weights);
  require_same_model(context, recorded.settings, options);
  return recorded;
}

void report_score(EvaluateLmOptions const& options, Context& context, tokens::TokenFile const& file,
                  models::SplitScore const& score, double seconds) {
  if (!std::isfinite(score.loss))
    runtime::throw_user("{} on {}: the loss is not finite; the weights have diverged", options.weights,
                        options.tokens);
  // The first token is not predicted, so the bytes are reduced by its share.
  auto const& facts = file.facts().of(tokens::Part::valid);
  auto const bytes_per_token = static_cast<double>(facts.num_bytes) / static_cast<double>(facts.num_tokens);
  auto const bits_per_byte = score.loss / std::numbers::ln2 / bytes_per_token;
  say(context, "{}", describe(file));
  say(context, "loss              {:.6f} nats per token, of {} predicted\n", score.loss, score.num_counted);
  say(context, "perplexity        {:.6f}\n", std::exp(score.loss));
  say(context, "bits per byte     {:.6f}\n", bits_per_byte);
  say(context, "accuracy          {:.6f}\n", score.accuracy());
  context.metrics.write("evaluate-lm", {{"val_loss", score.loss},
                                        {"perplexity", std::exp(score.loss)},
                                        {"bits_per_byte", bits_per_byte},
                                        {"val_acc", score.accuracy()},
                                        {"num_tokens", score.num_counted},
                                        {"seconds", seconds}});
}

/// Scores the validation part in windows that begin every --stride tokens, and reports the score.
template<class T>
int evaluate_windows(EvaluateLmOptions const& options, Context& context, tokens::TokenFile& file,
                     models::SequenceSettings const& sequences) {
  if (options.stride > sequences.sequence)
    runtime::throw_user("--stride {} is longer than the sequences of {} tokens: it would leave tokens out",
                        options.stride, sequences.sequence);
  auto& clock = context.world().instruments().clock;
  auto const begin = clock.now();
  auto const score = score_windows<T>(context, inference_of(options), file, sequences.sequence,
                                      options.stride, sequences.global_batch);
  auto const seconds = std::chrono::duration<double>(clock.now() - begin).count();
  context.metrics.write("run", context.run_record);
  report_score(options, context, file, score, seconds);
  return runtime::exit_done;
}

template<class T>
int evaluate(EvaluateLmOptions const& options, Context& context) {
  auto const& world = context.world();
  pmm::set_gemm_threads(1);
  auto [model, trained_sequence] = recorded_model(options, context);
  model.masks_documents = masks_documents(options);
  model.context_exchange = models::parse_context_exchange(options.context_exchange);
  auto file = open_tokens(context, options.tokens);
  require_vocabulary(world, options.weights, options.tokens, file);
  warn_of_attention(context, model, file, options.gemm_math);
  if (file.num_tokens(tokens::Part::valid) < 2)
    runtime::throw_user("'{}' has no validation part to evaluate: tokenize with a smaller --train-fraction",
                        options.tokens);
  models::SequenceSettings sequences;
  sequences.sequence = options.sequence > 0 ? options.sequence : trained_sequence;
  sequences.global_batch =
      options.global_batch > 0 ? options.global_batch : std::max(usual_lm_batch, std::int64_t{world.size()});
  if (options.stride > 0) return evaluate_windows<T>(options, context, file, sequences);
  models::OptimizerSettings optimizer; // without moments, since nothing is trained
  optimizer.kind = models::OptimizerKind::sgd;
  optimizer.momentum = 0;
  auto const inner = inner_axes_of(options);
  if (inner.expert > 1 && !model.experts.is_on())
    runtime::throw_user("--expert-axis {}: the model of '{}' has no experts to deal to ranks; leave it out",
                        inner.expert, options.weights);
  auto const [shape, exchange, measured] = predicted_language_grid<T>(
      context, {options.grid, options.machine, model, sequences, optimizer, 0, inner});
  model.context_exchange = exchange;
  pmm::ProcessGrid const grid(world, shape);
  if (options.global_batch == 0)
    sequences.global_batch =
        std::max(usual_lm_batch, std::int64_t{shape.size(pmm::sequence_axes(shape).with(pmm::Axis::z))});
  auto const plan = models::plan_sequences(grid.shape(), grid.coordinates(), model, sequences);
  if (!options.force_memory)
    require_memory(context, "evaluate-lm", models::estimate_memory<T>(grid, plan, sequences, optimizer));

  models::Transformer<T> network(grid, model, sequences.num_sequences(), sequences.sequence, 0);
  models::load_weights(grid, options.weights, network.parameters());
  pmm::RowLoss<T> loss(grid, network.logits_placement(), pmm::LossKind::softmax);
  models::SequenceRows<T> rows(network, loss, file, 1);
  auto& clock = context.world().instruments().clock;
  auto const begin = clock.now();
  auto const score = models::evaluate_sequences(grid, network, loss, rows, file, sequences.num_sequences());
  auto const seconds = std::chrono::duration<double>(clock.now() - begin).count();
  auto record = context.run_record;
  record["grid"] = models::grid_text(grid.shape());
  context.metrics.write("run", record);
  report_score(options, context, file, score, seconds);
  return runtime::exit_done;
}

/// Writes the logits of the sequences of --ids, [sequences x tokens x vocabulary].
template<class T>
int write_logits(EvaluateLmOptions const& options, Context& context) {
  auto const& world = context.world();
  std::ignore = recorded_model(options, context);
  auto const [ids, length] = runtime::together(world, [&] {
    graph::NpyArray file(std::filesystem::path(options.ids));
    if (file.shape().size() != 2 || !file.is_integer() || file.num_elements() == 0)
      file.fail_shape("[sequences, tokens] of whole numbers");
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(file.num_elements()));
    file.read(0, numbers);
    return std::pair(numbers, file.shape()[1]);
  });
  std::vector<TokenIds> sequences;
  for (std::size_t begin = 0; begin < ids.size(); begin += static_cast<std::size_t>(length)) {
    auto& sequence = sequences.emplace_back();
    for (std::int64_t t = 0; t < length; ++t)
      sequence.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(
          ids[begin + static_cast<std::size_t>(t)], -1, std::numeric_limits<std::int32_t>::max())));
  }
  Inference<T> model(context, inference_of(options), std::ssize(sequences), length);
  auto staged = runtime::StagedFile::create(world, options.logits, "logits");
  auto const header = graph::npy_header(sizeof(T) == sizeof(float) ? "<f4" : "<f8",
                                        {std::ssize(sequences), length, model.vocabulary()});
  runtime::together(world, [&] {
    if (world.is_root()) staged.file().write_at(0, std::as_bytes(std::span(header)));
  });
  model.forward(sequences);
  auto const bytes = length * model.vocabulary() * std::int64_t{sizeof(T)};
  for (std::int64_t s = 0; s < std::ssize(sequences); ++s) {
    auto const logits = model.logits(s, {0, length});
    runtime::together(world, [&] {
      if (world.is_root())
        staged.file().write_at(std::ssize(header) + s * bytes, std::as_bytes(std::span(logits)));
    });
  }
  staged.publish(world);
  return runtime::exit_done;
}

int evaluate_requests(EvaluateLmOptions const& options, Context& context) {
  auto const& files = options.likelihood;
  if (files.requests.empty() || files.output.empty())
    runtime::throw_user(
        "evaluate-lm: --log-likelihood and --output go together: JSONL with the requests, and "
        "the file for their scores");
  if (!options.ids.empty() || !options.tokens.empty())
    runtime::throw_user("evaluate-lm: --log-likelihood excludes --tokens and --ids");
  std::ignore = recorded_model(options, context);
  auto const batch = options.global_batch > 0 ? options.global_batch : usual_lm_batch;
  options.compute_dtype == "fp32" ? score_requests<float>(context, inference_of(options), files, batch)
                                  : score_requests<double>(context, inference_of(options), files, batch);
  return runtime::exit_done;
}

int run(EvaluateLmOptions const& options, Context& context) {
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  if (options.ids.empty() != options.logits.empty())
    runtime::throw_user(
        "evaluate-lm: --ids and --logits go together: sequences of tokens, and the file for their logits");
  auto const& sources = context.run_record.at("sources");
  auto const is_flag = [&](char const* option) { return sources.value(option, std::string()) == "flag"; };
  if (is_flag("document-mask") && !masks_documents(options))
    runtime::throw_user("--document-mask is for --tokens without --stride: leave it out");
  if (options.document_mask && !masks_documents(options) && context.world().is_root())
    context.log().info("document-mask has no effect here: it is for --tokens without --stride");
  if (is_flag("context-axis") && (options.stride > 0 || options.tokens.empty()))
    runtime::throw_user("--context-axis is for the loss over sequences of --tokens: leave it out with --ids, "
                        "--log-likelihood and --stride");
  for (auto const* const option : {"tokens", "sequence", "global-batch", "stride"})
    if (!options.ids.empty() && is_flag(option))
      runtime::throw_user("--{} is for a token file: leave it out with --ids", option);
  for (auto const* const option : {"sequence", "stride"})
    if (!options.likelihood.requests.empty() && is_flag(option))
      runtime::throw_user("--{} is for --tokens: leave it out with --log-likelihood", option);
  if (options.likelihood.requests.empty() && is_flag("tokenizer"))
    runtime::throw_user("--tokenizer is for the texts of --log-likelihood: leave it out");
  if (!options.likelihood.requests.empty() || !options.likelihood.output.empty())
    return evaluate_requests(options, context);
  if (!options.ids.empty())
    return options.compute_dtype == "fp32" ? write_logits<float>(options, context)
                                           : write_logits<double>(options, context);
  return options.compute_dtype == "fp32" ? evaluate<float>(options, context)
                                         : evaluate<double>(options, context);
}

} // namespace

std::unique_ptr<Command> make_evaluate_lm() {
  auto command = std::make_unique<Command>(
      "evaluate-lm", "Compute loss, perplexity and bits per byte of a language model on a validation part");
  auto const options = std::make_shared<EvaluateLmOptions>();
  add_options(*command, *options);
  command->read_table_of("train-lm");
  command->pass_over_all_but(used_by_evaluate_lm);
  command->begin_group("Evaluation");
  command->input("--weights", options->weights,
                 "Weights or checkpoint of train-lm, or weights of import-weights");
  command->input("--ids", options->ids,
                 "Sequences of tokens [sequences x tokens] (.npy), in place of --tokens");
  command->output("--logits", options->logits,
                  "File (.npy) for the logits of --ids, [sequences x tokens x vocabulary]");
  command->input("--log-likelihood", options->likelihood.requests,
                 "JSONL with a context and a continuation per line, in place of --tokens");
  command->output("-o,--output", options->likelihood.output,
                  "JSONL to write: log_likelihood, is_greedy and num_tokens of each continuation");
  command->option(
      "--tokenizer", options->likelihood.tokenizer,
      "A tokenizer.json, a folder with one, a token file, or byte; default: the one in --weights");
  command->option("--stride", options->stride,
                  "Distance in tokens between the beginnings of windows of --sequence tokens; if it is less "
                  "than --sequence, windows overlap; 0: --sequence",
                  whole_number(0));
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

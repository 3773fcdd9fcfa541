// SPDX-License-Identifier: Apache-2.0
//
// orthant complete: continues sequences of tokens with a language model. Each new token costs a forward pass over the whole sequence: keys
// and values are not cached so far.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_inference.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/options/option_text.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_settings.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <set>
#include <sstream>

namespace orthant::cli {
namespace {

struct CompleteOptions : InferenceOptions {
  std::string prompt_ids;
  std::string print = "ids";
  std::int64_t max_tokens = 16;
  std::string stop_ids;
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::int64_t seed = 0;
  std::int64_t expert_ranks = 1;
  std::string compute_dtype = "fp32";
  std::string gemm_math = "fp32";
  std::string gemm_table;
};

/// Ids such as "5,17,3".
TokenIds parse_ids(std::string_view option, std::string const& text) {
  TokenIds ids;
  for (std::size_t begin = 0; begin <= text.size();) {
    auto const end = std::min(text.find(',', begin), text.size());
    std::int32_t id = 0;
    auto const [last, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end || id < 0)
      runtime::throw_user("{} '{}': numbers of tokens are needed, such as 5,17,3", option, text);
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

template<class T>
void complete(CompleteOptions const& options, Context& context) {
  std::vector<TokenIds> sequences;
  std::istringstream prompts(options.prompt_ids);
  for (std::string text; std::getline(prompts, text, ';');)
    sequences.push_back(parse_ids("--prompt-ids", text));
  std::int64_t longest = 0;
  std::vector<std::size_t> starts;
  for (auto const& ids : sequences) {
    longest = std::max(longest, std::ssize(ids));
    starts.push_back(ids.size());
  }
  Inference<T> model(context, options, std::ssize(sequences), longest + options.max_tokens);
  Sampling const sampling{options.temperature, options.top_k, options.top_p, options.min_p,
                          static_cast<std::uint64_t>(options.seed)};
  auto const stop_ids = options.stop_ids.empty() ? TokenIds() : parse_ids("--stop-ids", options.stop_ids);
  std::set<std::int32_t> const stops(stop_ids.begin(), stop_ids.end());
  auto const has_ended = [&](std::size_t s) {
    return sequences[s].size() > starts[s] && stops.contains(sequences[s].back());
  };
  auto const have_ended = [&] {
    for (std::size_t s = 0; s < sequences.size(); ++s)
      if (!has_ended(s)) return false;
    return true;
  };
  for (std::int64_t step = 0; step < options.max_tokens && !have_ended(); ++step) {
    model.forward(sequences);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      if (has_ended(s)) continue;
      auto const last = std::ssize(sequences[s]) - 1;
      auto const logits = model.logits(static_cast<std::int64_t>(s), {last, last + 1});
      sequences[s].push_back(next_token(logits, sampling, static_cast<std::int64_t>(s), step));
    }
  }
  for (std::size_t s = 0; s < sequences.size(); ++s)
    say(context, "{}\n",
        fmt::join(sequences[s].begin() + static_cast<std::ptrdiff_t>(starts[s]), sequences[s].end(), ","));
}

int run(CompleteOptions& options, Context& context) {
  if (options.prompt_ids.empty()) runtime::throw_user("complete: give --prompt-ids, such as 5,17,3");
  require_choice(options.grid, options.grid.grid == "auto", "--grid auto");
  options.command = "complete";
  options.expert_axis = static_cast<int>(options.expert_ranks);
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  options.compute_dtype == "fp32" ? complete<float>(options, context) : complete<double>(options, context);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_complete() {
  auto command = std::make_unique<Command>("complete", "Continue sequences of tokens with a language model");
  auto const options = std::make_shared<CompleteOptions>();
  auto& o = *options;
  command->input("--weights", o.weights, "Weights of train-lm or import-weights");
  command->option("--prompt-ids", o.prompt_ids,
                  "Tokens to continue, such as 5,17,3; several prompts are separated by semicolons");
  command->option("--print", o.print, "What is printed, a line for each prompt: ids (of the new tokens)",
                  one_of({"ids"}));
  command->option("--max-tokens", o.max_tokens, "Number of new tokens",
                  whole_number(1, std::int64_t{1} << 20));
  command->option("--stop-ids", o.stop_ids, "Tokens that end a completion, such as 0,2");
  command->option("--temperature", o.temperature, "Divisor of the logits; 0: always the most probable token",
                  in_range(0, 1e3));
  command->option("--top-k", o.top_k, "Draw from the K most probable tokens; 0: all", whole_number(0));
  command->option("--top-p", o.top_p,
                  "Draw from the smallest set of most probable tokens with at least this total probability",
                  above(0, 1));
  command->option("--min-p", o.min_p, "Draw from tokens with at least this share of the largest probability",
                  in_range(0, 1));
  command->option("--seed", o.seed, "Seed of the draws", whole_number(0));
  command->option("--grid", o.grid.grid, "Ranks along data, X, Y and Z as DxXxYxZ, or auto");
  command->input("--machine", o.grid.machine,
                 "Machine model for the predictions of --grid auto, as in train-lm");
  command->option(
      "--expert-axis", o.expert_ranks,
      "Number of data ranks over which the experts are distributed; divides the data axis and the experts",
      whole_number(1, std::int64_t{1} << 20));
  command->option("--compute-dtype", o.compute_dtype, "Type of numbers in the computation: fp32 or fp64",
                  one_of({"fp32", "fp64"}));
  add_gemm_math_option(*command, o.gemm_math);
  add_gemm_table_option(*command, o.gemm_table);
  add_force_memory_option(*command, o.force_memory);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

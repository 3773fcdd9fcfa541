// SPDX-License-Identifier: Apache-2.0
//
// orthant complete: continues texts, or sequences of tokens, with a language model.

#include "cli/commands/subcommands.hpp"
#include "cli/lm/completions.hpp"
#include "cli/lm/json_lines.hpp"
#include "cli/lm/lm_files.hpp"
#include "cli/options/option_text.hpp"
#include "cli/options/shared_options.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_settings.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/files/text_file.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <sstream>

namespace orthant::cli {
namespace {

struct CompleteOptions : InferenceOptions {
  std::string prompt;
  std::string prompt_file;
  std::string prompt_ids;
  std::string prompts; // a file
  std::string output;
  std::int64_t batch = 64;
  std::string tokenizer;
  std::string print = "auto";
  std::int64_t max_tokens = 16;
  std::string stop_ids;
  std::vector<std::string> stops;
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

/// What is completed, and with which tokenizer.
struct Prompts {
  std::vector<TokenIds> ids;
  std::vector<std::string> places;                // lines of --prompts, for messages
  std::optional<tokens::TextTokenizer> tokenizer; // without one, only ids can be printed

  [[nodiscard]] tokens::TextTokenizer const* text_tokenizer() const {
    return tokenizer ? &*tokenizer : nullptr;
  }
};

/// Throws UserError unless exactly one of the options that give prompts is given.
void require_one_prompt(Context const& context) {
  auto const& sources = context.run_record.at("sources");
  std::vector<std::string> given;
  for (auto const* const option : {"prompt", "prompt-file", "prompt-ids", "prompts"})
    if (sources.value(option, std::string("default")) != "default")
      given.push_back(fmt::format("--{}", option));
  if (given.empty())
    runtime::throw_user(
        "complete: give --prompt TEXT, --prompt-file F, --prompt-ids 5,17,3, or --prompts F.jsonl");
  if (given.size() > 1) runtime::throw_user("complete: {} exclude each other", fmt::join(given, " and "));
}

/// The prompts of --prompts.
void read_prompt_lines(std::vector<JsonLine> const& lines, Prompts& prompts) {
  for (auto const& line : lines) {
    if (auto const ids = line.ids("prompt_ids"))
      prompts.ids.push_back(*ids);
    else if (auto const text = line.text("prompt"))
      prompts.ids.push_back(prompts.tokenizer->encode(*text));
    else
      runtime::throw_user("{}: it has neither a prompt nor prompt_ids", line.place);
    if (prompts.ids.back().empty())
      runtime::throw_user("{}: its prompt is empty: a completion needs a token to begin with", line.place);
    prompts.places.push_back(line.place);
  }
}

Prompts read_prompts(CompleteOptions const& options, Context const& context, std::int64_t vocabulary) {
  auto const& world = context.world();
  Prompts prompts;
  std::istringstream lists(options.prompt_ids);
  for (std::string text; std::getline(lists, text, ';');)
    prompts.ids.push_back(parse_ids("--prompt-ids", text));
  auto const lines =
      options.prompts.empty() ? std::vector<JsonLine>() : read_json_lines(world, options.prompts);
  auto const has_texts =
      options.prompts.empty()
          ? options.prompt_ids.empty()
          : std::ranges::any_of(lines, [](auto const& line) { return line.object.contains("prompt"); });
  if (has_texts || options.print == "text" || !options.tokenizer.empty())
    prompts.tokenizer = open_tokenizer(world, options.tokenizer, options.weights, vocabulary);
  if (!prompts.tokenizer && !options.stops.empty())
    runtime::throw_user("--stop compares texts: give --tokenizer, or --stop-ids");
  read_prompt_lines(lines, prompts);
  if (!prompts.ids.empty()) return prompts;
  auto const text = options.prompt_file.empty()
                        ? options.prompt
                        : runtime::read_table_file(world, options.prompt_file, [](auto) {});
  prompts.ids.push_back(prompts.tokenizer->encode(text));
  if (prompts.ids.back().empty())
    runtime::throw_user("{} is empty: a completion needs a token to begin with",
                        options.prompt_file.empty() ? "--prompt" : options.prompt_file);
  return prompts;
}

CompletionSettings settings_of(CompleteOptions const& options, Prompts const& prompts) {
  CompletionSettings settings;
  settings.sampling = {options.temperature, options.top_k, options.top_p, options.min_p,
                       static_cast<std::uint64_t>(options.seed)};
  settings.max_tokens = options.max_tokens;
  settings.stops = options.stops;
  if (std::ranges::any_of(settings.stops, &std::string::empty))
    runtime::throw_user("--stop is empty: name a text that ends a completion");
  if (!options.stop_ids.empty()) {
    auto const ids = parse_ids("--stop-ids", options.stop_ids);
    settings.stop_ids.insert(ids.begin(), ids.end());
  }
  if (prompts.tokenizer && prompts.tokenizer->end_token())
    settings.stop_ids.insert(*prompts.tokenizer->end_token());
  return settings;
}

/// Prints the completions of the prompts in one batch. A single text is printed as it arrives.
template<class T>
void print_completions(CompleteOptions const& options, Context& context, Inference<T>& model,
                       Prompts const& prompts, CompletionSettings const& settings) {
  auto const prints_ids = options.print == "ids" || (options.print == "auto" && !options.prompt_ids.empty());
  auto const streams = !prints_ids && prompts.ids.size() == 1;
  auto const completions = complete(model, prompts.ids, 0, settings, prompts.text_tokenizer(),
                                    [&](std::size_t, std::string const& text) {
                                      if (streams) say(context, "{}", text);
                                    });
  for (auto const& completion : completions)
    if (prints_ids)
      say(context, "{}\n", fmt::join(completion.ids, ","));
    else
      say(context, "{}\n", streams ? std::string() : completion.text);
}

/// Writes the completions of --prompts to --output, a batch after the other.
template<class T>
void write_completions(CompleteOptions const& options, Context& context, Inference<T>& model,
                       Prompts const& prompts, CompletionSettings const& settings) {
  auto staged = runtime::StagedFile::create(context.world(), options.output, "completions");
  std::string text;
  auto const batch = static_cast<std::size_t>(options.batch);
  for (std::size_t begin = 0; begin < prompts.ids.size(); begin += batch) {
    auto const first = prompts.ids.begin() + static_cast<std::ptrdiff_t>(begin);
    auto const count = std::min(batch, prompts.ids.size() - begin);
    std::vector<TokenIds> const part(first, first + static_cast<std::ptrdiff_t>(count));
    for (auto const& completion :
         complete(model, part, static_cast<std::int64_t>(begin), settings, prompts.text_tokenizer(),
                  [](std::size_t, std::string const&) {})) {
      nlohmann::ordered_json line;
      if (prompts.tokenizer) line["text"] = completion.text;
      line["ids"] = completion.ids;
      line["has_ended"] = completion.has_ended;
      text += line_of(line);
    }
  }
  runtime::together(context.world(), [&] {
    if (context.world().is_root()) staged.file().write_at(0, std::as_bytes(std::span(text)));
  });
  staged.publish(context.world());
}

template<class T>
void complete_prompts(CompleteOptions const& options, Context& context) {
  if (options.weights.empty())
    runtime::throw_user("give --weights W.h5, which train-lm --save-weights or import-weights writes");
  auto const model_settings = read_model(context.world(), options.weights).settings;
  auto const prompts = read_prompts(options, context, model_settings.vocabulary);
  auto const settings = settings_of(options, prompts);
  auto const longest_at =
      std::ranges::max_element(prompts.ids, {}, [](TokenIds const& ids) { return ids.size(); });
  auto const longest = std::ssize(*longest_at);
  auto const place = static_cast<std::size_t>(longest_at - prompts.ids.begin());
  if (longest + options.max_tokens > model_settings.max_sequence)
    runtime::throw_user(
        "{}a prompt of {} tokens and {} new ones are more than the {} positions of '{}': give a "
        "shorter prompt, or less --max-tokens",
        prompts.places.empty() ? std::string() : prompts.places[place] + ": ", longest, options.max_tokens,
        model_settings.max_sequence, options.weights);
  auto const is_file = !options.prompts.empty();
  auto const num_prompts = std::ssize(prompts.ids);
  Inference<T> model(context, options, is_file ? std::min(options.batch, num_prompts) : num_prompts, longest,
                     longest + options.max_tokens);
  if (is_file)
    write_completions(options, context, model, prompts, settings);
  else
    print_completions(options, context, model, prompts, settings);
}

int run(CompleteOptions& options, Context& context) {
  require_one_prompt(context);
  if (options.prompts.empty() != options.output.empty())
    runtime::throw_user("complete: --prompts and --output go together: JSONL with the prompts, and the file "
                        "for their completions");
  require_choice(options.grid, options.grid.grid == "auto", "--grid auto");
  options.command = "complete";
  options.expert_axis = static_cast<int>(options.expert_ranks);
  choose_gemm_math(options.gemm_math, options.compute_dtype);
  choose_gemm_libraries(context, options.gemm_table);
  options.compute_dtype == "fp32" ? complete_prompts<float>(options, context)
                                  : complete_prompts<double>(options, context);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_complete() {
  auto command = std::make_unique<Command>("complete", "Continue texts with a language model");
  auto const options = std::make_shared<CompleteOptions>();
  auto& o = *options;
  command->input("--weights", o.weights, "Weights of train-lm or import-weights");
  command->option("--prompt", o.prompt, "Text to continue");
  command->input("--prompt-file", o.prompt_file, "File with the text to continue");
  command->option("--prompt-ids", o.prompt_ids,
                  "Tokens to continue, such as 5,17,3; several prompts are separated by semicolons");
  command->input("--prompts", o.prompts,
                 "JSONL with a prompt or prompt_ids per line, in place of one prompt");
  command->output("-o,--output", o.output,
                  "JSONL to write: text, ids and has_ended for each line of --prompts");
  command->option("--batch", o.batch, "Number of prompts of --prompts per pass",
                  whole_number(1, std::int64_t{1} << 20));
  command->option(
      "--tokenizer", o.tokenizer,
      "A tokenizer.json, a folder with one, a token file, or byte; default: the one in --weights");
  command->option("--print", o.print,
                  "Print completions as text, as ids, or auto (ids for --prompt-ids, otherwise text)",
                  one_of({"auto", "text", "ids"}));
  command->option("--max-tokens", o.max_tokens, "Number of new tokens",
                  whole_number(1, std::int64_t{1} << 20));
  command->option("--stop-ids", o.stop_ids, "Tokens that end a completion, such as 0,2");
  command->repeatable("--stop", o.stops, "Text before which a completion ends; may be given several times");
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
      "Number of data ranks over which the experts are distributed; must divide the data axis and "
      "the number of experts",
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

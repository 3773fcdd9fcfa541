// SPDX-License-Identifier: Apache-2.0
//
// orthant tokenize: converts a text to a token file.

#include "tokens/tokenize.hpp"
#include "cli/commands/subcommands.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "tokens/documents/token_arrays.hpp"
#include "tokens/documents/tokenize_documents.hpp"

#include <cstdio>
#include <initializer_list>
#include <mpi.h>

namespace orthant::cli {
namespace {

struct TokenizeCommandOptions {
  std::string input;
  std::string tokenizer = "char";
  double train_fraction = 0.9;
  std::string output;
  std::string field = "text";
  std::string end_token;
  std::string pattern;
  std::int64_t threads = 1;
  std::int64_t train_bpe = 0;
  std::string save_tokenizer;
};

tokens::TokenizerFile tokenizer_of(TokenizeCommandOptions const& options,
                                   runtime::Communicator const& world) {
  if (options.train_bpe == 0) return tokens::read_tokenizer(world, options.tokenizer, options.pattern);
  return tokens::train_tokenizer(world, options.input, options.field, options.threads, options.train_bpe);
}

void save_tokenizer(std::string const& path, std::string const& json, runtime::Communicator const& world) {
  auto staged = runtime::StagedFile::create(world, path, "tokenizer");
  runtime::together(world, [&] {
    if (world.is_root()) staged.file().append(json);
  });
  staged.publish(world);
}

bool has_characters(TokenizeCommandOptions const& options) {
  return options.train_bpe == 0 && (options.tokenizer == "char" || options.tokenizer == "byte");
}

/// Throws UserError if one of these options is given, with the reason why it has no effect.
void refuse_given(Context const& context, std::initializer_list<std::string_view> names,
                  std::string const& reason) {
  auto const& sources = context.run_record.at("sources");
  for (auto const name : names)
    if (sources.value(std::string(name), std::string("default")) != "default")
      runtime::throw_user("--{} has no effect {}", name, reason);
}

void require_effective_options(Context const& context, TokenizeCommandOptions const& options) {
  if (options.train_bpe > 0)
    refuse_given(context, {"tokenizer", "pattern"}, "with --train-bpe, which learns the tokenizer");
  if (has_characters(options))
    refuse_given(context, {"save-tokenizer", "field", "end-token", "pattern", "threads"},
                 fmt::format("with --tokenizer {}; it is for a tokenizer's file", options.tokenizer));
}

tokens::TokenFacts write_tokens(TokenizeCommandOptions const& options, Context const& context) {
  auto const& world = context.world();
  require_effective_options(context, options);
  if (has_characters(options))
    return tokens::tokenize(world, {options.input, options.output, tokens::parse_tokenizer(options.tokenizer),
                                    options.train_fraction});
  auto const has_arrays =
      runtime::together(world, [&] { return tokens::are_token_arrays(tokens::input_files(options.input)); });
  if (has_arrays) refuse_given(context, {"field", "threads"}, "on token numbers; it is for texts");
  if (has_arrays && options.train_bpe > 0)
    runtime::throw_user("--train-bpe learns from texts; '{}' holds token numbers", options.input);
  auto const tokenizer = tokenizer_of(options, world);
  tokens::DocumentOptions const documents{options.input, options.output,    options.train_fraction,
                                          options.field, options.end_token, options.threads};
  auto const facts = has_arrays ? tokens::copy_tokens(world, documents, tokenizer)
                                : tokens::tokenize_documents(world, documents, tokenizer);
  if (!options.save_tokenizer.empty()) save_tokenizer(options.save_tokenizer, tokenizer.json, world);
  return facts;
}

int run(TokenizeCommandOptions const& options, Context& context) {
  if (options.input.empty()) runtime::throw_user("tokenize: name the text with --input FILE");
  if (options.output.empty()) runtime::throw_user("tokenize: name the file to write with -o FILE.h5");
  auto const& world = context.world();
  auto const begin = MPI_Wtime();
  auto const facts = write_tokens(options, context);
  if (world.is_root()) {
    auto const& [train, valid] = facts.parts;
    auto const text =
        fmt::format("{}: {} tokens of a vocabulary of {} ({}), train {}, valid {}, in {:.2f} s: {}\n",
                    facts.source, train.num_tokens + valid.num_tokens, facts.vocabulary_size,
                    facts.bpe ? facts.bpe->name : tokens::name_of(facts.tokenizer), train.num_tokens,
                    valid.num_tokens, MPI_Wtime() - begin, options.output);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_tokenize() {
  auto command = std::make_unique<Command>("tokenize", "Convert a text to a token file, for train-lm");
  auto const options = std::make_shared<TokenizeCommandOptions>();
  command->input(
      "--input", options->input,
      "Text to read. With a tokenizer's file also several texts (a,b or 'dir/*.txt'), JSONL, .gz and .zst,\n"
      "or token numbers: .npy, .bin of nanoGPT and llm.c, .bin with .idx of Megatron");
  command->option(
      "--tokenizer", options->tokenizer,
      "char (a token per character of a UTF-8 text), byte (one per byte of any file), or a file or folder\n"
      "with a byte-level BPE: tokenizer.json, vocab.json with merges.txt, .tiktoken, or a token file");
  command->option("--train-bpe", options->train_bpe,
                  "Learn a byte-level BPE with the 256 bytes and N more tokens from the text, in place of "
                  "--tokenizer",
                  whole_number(0, 1'000'000));
  command->output("--save-tokenizer", options->save_tokenizer,
                  "Also write the tokenizer to this file, as a tokenizer.json");
  command->option("--field", options->field, "Name of the JSONL field that holds the text");
  command->option("--end-token", options->end_token,
                  "Added token that separates documents (default the tokenizer's, such as <|endoftext|>)");
  command->option(
      "--pattern", options->pattern,
      "Pattern by which a .tiktoken file splits texts, if it is not one of the known files: gpt2, "
      "llama3, qwen2 or cl100k",
      one_of({"gpt2", "llama3", "qwen2", "cl100k"}));
  command->option("--threads", options->threads, "Threads per rank (only with a tokenizer's file)",
                  whole_number(1, 1024));
  command->option("--train-fraction", options->train_fraction,
                  "Share of the tokens, from the beginning, that are for training; the others are for "
                  "validation",
                  in_range(0, 1));
  command->output("-o,--output", options->output, "Token file to write");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

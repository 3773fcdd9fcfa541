// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/tokenize_documents.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "tokens/token_output.hpp"

namespace orthant::tokens {
namespace {

/// The tokens of one part. Each document begins with the end token.
struct Encoded {
  std::vector<std::uint32_t> ids;
  std::int64_t num_documents = 0;
};

} // namespace

TokenFacts bpe_facts(std::string const& input, TokenizerFile const& tokenizer_file,
                     std::optional<std::uint32_t> end) {
  TokenFacts facts;
  facts.source = std::filesystem::path(input).filename().string();
  facts.tokenizer = TokenizerKind::bpe;
  facts.bpe = BpeFacts{tokenizer_file.name, 0, 0, {}};
  if (end) facts.bpe->end_token = *end;
  return facts;
}

TokenFacts tokenize_documents(runtime::Communicator const& comm, DocumentOptions const& options,
                              TokenizerFile const& tokenizer_file) {
  Tokenizer const tokenizer(tokenizer_file.definition, tokenizer_file.name);
  auto const end = find_end_token(tokenizer.definition(), options.end_token);
  auto parts = runtime::together(comm, [&] {
    auto const files = describe_files(input_files(options.input));
    DocumentParts const split{options.field, tokenizer.can_be_cut(), comm.size() * options.num_threads};
    return on_threads(comm.rank() * options.num_threads, options.num_threads, [&](std::int64_t part) {
      Encoded encoded;
      Encoder encoder(tokenizer);
      read_documents(files, split, part,
                     {[&] {
                        ++encoded.num_documents;
                        encoded.ids.push_back(end.value_or(0));
                      },
                      [&](std::string_view text) { encoder.encode(text, encoded.ids); }});
      return encoded;
    });
  });

  std::int64_t num_documents = 0;
  std::int64_t num_tokens = 0;
  for (auto const& part : parts) {
    num_documents += part.num_documents;
    num_tokens += std::ssize(part.ids);
  }
  auto const drops_first = runtime::scanned(comm, num_documents) == 0 && num_documents > 0;
  auto facts = bpe_facts(options.input, tokenizer_file, end);
  facts.num_documents = runtime::all_reduced(comm, num_documents);
  if (facts.num_documents > 1 && !end)
    runtime::throw_user("documents are separated by a token, and the tokenizer has none of the usual names; "
                        "name it with --end-token TEXT");

  TokenOutput output(comm, options.output, facts, options.train_fraction, num_tokens - (drops_first ? 1 : 0),
                     tokenizer.vocabulary(), tokenizer_file.json);
  runtime::together(comm, [&] {
    auto is_dropped = drops_first;
    for (auto& part : parts) {
      for (auto const id : part.ids) {
        auto const is_separator = end && id == *end;
        if (!is_dropped) output.take(id, is_separator ? 0 : tokenizer.vocabulary().text_of(id).size());
        is_dropped = false;
      }
      std::vector<std::uint32_t>().swap(part.ids); // frees its memory
    }
  });
  return output.publish();
}

} // namespace orthant::tokens

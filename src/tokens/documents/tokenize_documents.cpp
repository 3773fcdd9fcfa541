// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/tokenize_documents.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "tokens/bpe/tokenizer.hpp"
#include "tokens/tokenize.hpp"

#include <cstring>

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

namespace {

// Pieces and their counts as bytes: length, piece, count.

template<class T>
void append_number(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<char const*>(&number), sizeof(number));
}

template<class T>
T take_number(std::string_view& bytes) {
  T number{};
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

std::string to_bytes(PieceCounts const& pieces) {
  std::string bytes;
  for (auto const& [piece, count] : pieces) {
    append_number(bytes, static_cast<std::int64_t>(piece.size()));
    bytes += piece;
    append_number(bytes, count);
  }
  return bytes;
}

void add_from_bytes(std::string_view bytes, PieceCounts& pieces) {
  while (!bytes.empty()) {
    auto const length = static_cast<std::size_t>(take_number<std::int64_t>(bytes));
    std::string const piece(bytes.substr(0, length));
    bytes.remove_prefix(length);
    pieces[piece] += take_number<std::int64_t>(bytes);
  }
}

} // namespace

TokenizerFile train_tokenizer(runtime::Communicator const& comm, std::string const& input,
                              std::string const& field, std::int64_t num_threads, std::int64_t num_tokens) {
  constexpr std::array gpt2{Pattern::gpt2};
  auto const parts = runtime::together(comm, [&] {
    auto const files = describe_files(input_files(input));
    DocumentParts const split{field, true, comm.size() * num_threads};
    return on_threads(comm.rank() * num_threads, num_threads, [&](std::int64_t part) {
      PieceCounts pieces;
      auto count = [&](std::string_view piece) { ++pieces[std::string(piece)]; };
      read_documents(files, split, part,
                     {[] {}, [&](std::string_view text) { for_each_piece(gpt2, text, count); }});
      return pieces;
    });
  });
  PieceCounts own;
  for (auto const& part : parts)
    for (auto const& [piece, count] : part)
      own[piece] += count;
  std::string bytes;
  runtime::gather_text(comm, to_bytes(own), [&](std::string_view piece) { bytes += piece; });

  std::string json;
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    PieceCounts all;
    add_from_bytes(bytes, all);
    json = to_tokenizer_json(train_merges(all, num_tokens));
  });
  runtime::broadcast_text(comm, json, 0);
  auto const name = fmt::format("bpe of {} tokens", num_tokens);
  return {name, read_tokenizer_json(json, name), json};
}

} // namespace orthant::tokens

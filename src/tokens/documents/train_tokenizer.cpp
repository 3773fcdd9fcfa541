// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/train_tokenizer.hpp"

#include "runtime/comm/together.hpp"
#include "tokens/bpe/tokenizer_json.hpp"
#include "tokens/bpe/train_merges.hpp"

#include <cstring>

namespace orthant::tokens {
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

// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_output.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/array_sum.hpp"

#include <span>

namespace orthant::tokens {
namespace {

constexpr std::size_t most_waiting = std::size_t{1} << 19;

std::span<std::uint8_t const> as_numbers(std::string const& text) {
  return {reinterpret_cast<std::uint8_t const*>(text.data()), text.size()};
}

/// Sets the number of tokens of each part, and the facts about the vocabulary.
TokenFacts completed(TokenFacts facts, double train_fraction, std::int64_t num_tokens,
                     Vocabulary const& vocabulary, std::string const& tokenizer_json) {
  if (num_tokens == 0) runtime::throw_user("{} is empty: there is nothing to tokenize", facts.source);
  facts.vocabulary_size = vocabulary.size();
  facts.sum_of_vocabulary = sum_of(vocabulary);
  if (facts.bpe) {
    facts.bpe->num_bytes = static_cast<std::int64_t>(tokenizer_json.size());
    facts.bpe->sum = sum_of_tokenizer(tokenizer_json);
  }
  facts.parts[0].num_tokens = static_cast<std::int64_t>(train_fraction * static_cast<double>(num_tokens));
  facts.parts[1].num_tokens = num_tokens - facts.parts[0].num_tokens;
  return facts;
}

} // namespace

TokenOutput::TokenOutput(runtime::Communicator const& comm, std::filesystem::path const& path,
                         TokenFacts facts, double train_fraction, std::int64_t num_tokens,
                         Vocabulary const& vocabulary, std::string const& tokenizer_json)
    : comm_(comm),
      facts_(completed(std::move(facts), train_fraction, runtime::all_reduced(comm, num_tokens), vocabulary,
                       tokenizer_json)),
      vocabulary_(vocabulary),
      tokenizer_json_(tokenizer_json),
      first_(runtime::scanned(comm, num_tokens)),
      file_(comm, path, "token") {
  for (auto const part : all_parts)
    file_.create_array(array_of(part), token_type(facts_.vocabulary_size), {facts_.of(part).num_tokens});
  file_.create_array(bytes_array, runtime::Hdf5Type::uint8,
                     {static_cast<std::int64_t>(vocabulary.bytes().size())});
  file_.create_array(ends_array, runtime::Hdf5Type::int64, {facts_.vocabulary_size});
  if (facts_.bpe) file_.create_array(tokenizer_array, runtime::Hdf5Type::uint8, {facts_.bpe->num_bytes});
  file_.reserve_space();
}

void TokenOutput::take(std::uint32_t token, std::size_t num_bytes) {
  auto const part =
      first_ + std::ssize(waiting_) < facts_.of(Part::train).num_tokens ? Part::train : Part::valid;
  if (part != part_) write();
  part_ = part;
  waiting_.push_back(token);
  facts_.parts[static_cast<std::size_t>(part)].num_bytes += static_cast<std::int64_t>(num_bytes);
  if (waiting_.size() == most_waiting) write();
}

void TokenOutput::write() {
  if (waiting_.empty()) return;
  auto const begin = part_ == Part::train ? first_ : first_ - facts_.of(Part::train).num_tokens;
  if (token_type(facts_.vocabulary_size) == runtime::Hdf5Type::uint16)
    write_as<std::uint16_t>(part_, begin);
  else
    write_as<std::uint32_t>(part_, begin);
  first_ += std::ssize(waiting_);
  waiting_.clear();
}

template<class T>
void TokenOutput::write_as(Part part, std::int64_t begin) {
  std::vector<T> numbers;
  numbers.reserve(waiting_.size());
  for (auto const token : waiting_)
    numbers.push_back(static_cast<T>(token));
  auto& facts = facts_.parts[static_cast<std::size_t>(part)];
  std::span<T const> const tokens(numbers);
  facts.sum += runtime::sum_of_box<T>({facts.num_tokens}, {begin}, {std::ssize(tokens)}, tokens);
  file_.write(array_of(part), {begin}, {std::ssize(tokens)}, tokens);
}

void TokenOutput::write_vocabulary() {
  auto const texts = as_numbers(vocabulary_.bytes());
  file_.write(bytes_array, {0}, {std::ssize(texts)}, texts);
  file_.write(ends_array, {0}, {vocabulary_.size()}, std::span<std::int64_t const>(vocabulary_.ends()));
  auto const json = as_numbers(tokenizer_json_);
  if (facts_.bpe) file_.write(tokenizer_array, {0}, {std::ssize(json)}, json);
}

TokenFacts TokenOutput::publish() {
  runtime::together(comm_, [&] {
    write();
    if (comm_.is_root()) write_vocabulary();
  });
  std::vector<std::uint64_t> sums;
  for (auto const& part : facts_.parts) {
    sums.push_back(part.sum);
    sums.push_back(static_cast<std::uint64_t>(part.num_bytes));
  }
  runtime::add_up(comm_, sums);
  for (std::size_t i = 0; i < facts_.parts.size(); ++i) {
    facts_.parts[i].sum = sums[2 * i];
    facts_.parts[i].num_bytes = static_cast<std::int64_t>(sums[2 * i + 1]);
  }
  auto const text = facts_.to_json();
  file_.write_attribute("/", "format", std::string(file_format));
  file_.write_attribute("/", "version", file_version);
  file_.write_attribute("/", "facts", text);
  file_.write_attribute("/", "facts_sum", sum_of(text));
  file_.publish();
  return facts_;
}

} // namespace orthant::tokens

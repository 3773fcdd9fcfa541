// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_file.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

namespace orthant::tokens {
namespace {

using runtime::Hdf5File;
using runtime::Hdf5Type;
using runtime::throw_user;
using Json = nlohmann::ordered_json;

std::string hex(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

std::uint64_t from_hex(std::string const& text) {
  std::uint64_t sum = 0;
  constexpr int base = 16;
  static_cast<void>(std::from_chars(text.data(), text.data() + text.size(), sum, base));
  return sum;
}

std::uint64_t sum_of_bytes(std::string const& text) {
  auto const* const bytes = reinterpret_cast<std::uint8_t const*>(text.data());
  auto const size = static_cast<std::int64_t>(text.size());
  return runtime::sum_of_box<std::uint8_t>({size}, {0}, {size}, std::span(bytes, text.size()));
}

/// Data that the ranks need in addition to the facts.
struct Layout {
  std::array<std::int64_t, all_parts.size()> offsets{};
  std::int64_t file_bytes = 0;
};

TokenFacts read_facts(Hdf5File const& file) {
  auto const& name = file.name();
  if (!file.contains_attribute("/", "format") || file.read_text("/", "format") != file_format)
    throw_user("'{}' is an HDF5 file, but not one of tokens; orthant tokenize makes one", name);
  if (auto const version = file.read_integer("/", "version"); version != file_version)
    throw_user("'{}' is a token file of version {}; this program reads version {}{}", name, version,
               file_version, version > file_version ? ": use a newer orthant" : "");
  auto const text = file.read_text("/", "facts");
  if (file.read_integer("/", "facts_sum") != sum_of(text))
    throw_user("'{}' is damaged: the checksum of its facts is wrong; make it again with orthant tokenize",
               name);
  return TokenFacts::from_json(text, name);
}

void require_array(Hdf5File const& file, std::string const& array, Hdf5Type type, std::int64_t length) {
  if (!file.contains(array)) throw_user("'{}' is damaged: it has no array {}", file.name(), array);
  auto const found = file.describe(array);
  if (found.type != type || found.extents != Hdf5File::Extents{length})
    throw_user("'{}' is damaged: {} is not of the type and length that its facts say", file.name(), array);
}

/// Reads and checks the texts of the tokens.
Vocabulary read_vocabulary(Hdf5File const& file, TokenFacts const& facts) {
  require_array(file, ends_array, Hdf5Type::int64, facts.vocabulary_size);
  if (!file.contains(bytes_array))
    throw_user("'{}' is damaged: it has no array {}", file.name(), bytes_array);
  auto const ends = file.read_all<std::int64_t>(ends_array);
  auto const bytes = file.read_all<std::uint8_t>(bytes_array);
  auto const has_empty =
      !ends.empty() && (ends.front() == 0 || std::ranges::adjacent_find(ends) != ends.end());
  if (has_empty && facts.tokenizer != TokenizerKind::bpe)
    throw_user(
        "'{}' is damaged: its vocabulary has a token without text; make it again with orthant tokenize",
        file.name());
  try {
    Vocabulary vocabulary(std::string(bytes.begin(), bytes.end()), ends);
    if (sum_of(vocabulary) == facts.sum_of_vocabulary) return vocabulary;
  } catch (runtime::Error const&) { // the ends are invalid: the file is damaged
  }
  throw_user("'{}' is damaged: the checksum of its vocabulary is wrong; make it again with orthant tokenize",
             file.name());
}

} // namespace

std::string_view name_of(Part part) {
  return part == Part::train ? "train" : "valid";
}

std::string array_of(Part part) {
  return fmt::format("/tokens/{}", name_of(part));
}

Hdf5Type token_type(std::int64_t vocabulary_size) {
  constexpr std::int64_t most = std::int64_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  return vocabulary_size <= most ? Hdf5Type::uint16 : Hdf5Type::uint32;
}

std::uint64_t sum_of(Vocabulary const& vocabulary) {
  auto const size = vocabulary.size();
  return sum_of_bytes(vocabulary.bytes()) +
         runtime::sum_of_box<std::int64_t>({size}, {0}, {size}, std::span(vocabulary.ends()));
}

std::uint64_t sum_of_tokenizer(std::string const& json) {
  return sum_of_bytes(json);
}

std::int64_t sum_of(std::string const& facts) {
  return std::bit_cast<std::int64_t>(sum_of_bytes(facts));
}

std::string TokenFacts::to_json() const {
  Json json{
      {"source", source}, {"tokenizer", tokens::name_of(tokenizer)}, {"vocabulary_size", vocabulary_size}};
  for (auto const part : all_parts) {
    auto const& facts = of(part);
    json[tokens::name_of(part)] = {
        {"tokens", facts.num_tokens}, {"bytes", facts.num_bytes}, {"sum", hex(facts.sum)}};
  }
  json["vocabulary_sum"] = hex(sum_of_vocabulary);
  if (bpe) {
    json["documents"] = num_documents;
    json["bpe"] = {{"name", bpe->name}, {"bytes", bpe->num_bytes}, {"sum", hex(bpe->sum)}};
    if (bpe->end_token) json["bpe"]["end_token"] = *bpe->end_token;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace); // a file's name may not be valid UTF-8
}

TokenFacts TokenFacts::from_json(std::string const& text, std::string const& path) {
  TokenFacts facts;
  try {
    auto const json = Json::parse(text);
    auto const whole = [&](Json const& number) {
      if (!number.is_number_integer())
        throw_user("'{}' is damaged: {} in its facts is no whole number; make it again with orthant tokenize",
                   path, number.dump());
      return number.get<std::int64_t>();
    };
    facts.source = json.at("source");
    facts.tokenizer = parse_tokenizer(json.at("tokenizer").get<std::string>());
    facts.vocabulary_size = whole(json.at("vocabulary_size"));
    for (auto const part : all_parts) {
      auto const& of_part = json.at(tokens::name_of(part));
      facts.parts[static_cast<std::size_t>(part)] = {whole(of_part.at("tokens")), whole(of_part.at("bytes")),
                                                     from_hex(of_part.at("sum"))};
    }
    facts.sum_of_vocabulary = from_hex(json.at("vocabulary_sum"));
    if (facts.tokenizer == TokenizerKind::bpe) {
      auto const& bpe = json.at("bpe");
      facts.num_documents = whole(json.at("documents"));
      facts.bpe = BpeFacts{bpe.at("name"), whole(bpe.at("bytes")), from_hex(bpe.at("sum")), {}};
      if (bpe.contains("end_token")) facts.bpe->end_token = whole(bpe.at("end_token"));
    }
  } catch (nlohmann::json::exception const&) {
    throw_user("'{}' is damaged: its facts cannot be read; make it again with orthant tokenize", path);
  }
  return facts;
}

TokenFile TokenFile::open(runtime::Communicator const& comm, std::filesystem::path const& path) {
  auto text = runtime::together(comm, [&]() -> std::string {
    if (!comm.is_root()) return {};
    auto const file = Hdf5File::open(path);
    auto const facts = read_facts(file);
    Json json{{"facts", facts.to_json()}, {"bytes", std::filesystem::file_size(path)}};
    for (auto const part : all_parts) {
      require_array(file, array_of(part), token_type(facts.vocabulary_size), facts.of(part).num_tokens);
      json["offsets"].push_back(file.offset_bytes(array_of(part)));
    }
    auto const vocabulary = read_vocabulary(file, facts);
    json["ends"] = vocabulary.ends();
    json["texts"] = std::vector<std::uint8_t>(vocabulary.bytes().begin(), vocabulary.bytes().end());
    return json.dump();
  });
  runtime::broadcast_text(comm, text, 0);
  return runtime::together(comm, [&] {
    auto const json = Json::parse(text);
    TokenFile file;
    file.name_ = path.string();
    file.facts_ = TokenFacts::from_json(json.at("facts"), file.name_);
    auto const texts = json.at("texts").get<std::vector<std::uint8_t>>();
    file.vocabulary_ = Vocabulary(std::string(texts.begin(), texts.end()), json.at("ends"));
    file.type_ = token_type(file.facts_.vocabulary_size);
    file.offsets_ = json.at("offsets");
    file.bytes_ = runtime::open_file_bytes(path);
    if (file.bytes_->size() != json.at("bytes").get<std::int64_t>())
      throw_user("'{}' has {} bytes here and {} on rank 0; all ranks must see the same file", file.name_,
                 file.bytes_->size(), json.at("bytes").get<std::int64_t>());
    return file;
  });
}

std::string TokenFile::tokenizer_json(runtime::Communicator const& comm) const {
  ORTHANT_REQUIRE(facts_.bpe.has_value(), "the tokenizer of ", name_, " has no file");
  std::string text;
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = Hdf5File::open(name_);
    require_array(file, tokenizer_array, Hdf5Type::uint8, facts_.bpe->num_bytes);
    auto const bytes = file.read_all<std::uint8_t>(tokenizer_array);
    text.assign(bytes.begin(), bytes.end());
    if (sum_of_tokenizer(text) != facts_.bpe->sum)
      throw_user(
          "'{}' is damaged: the checksum of its tokenizer is wrong; make it again with orthant tokenize",
          name_);
  });
  runtime::broadcast_text(comm, text, 0);
  return text;
}

template<class T>
void TokenFile::read_as(Part part, std::int64_t begin, std::span<T> tokens) const {
  auto const end = begin + std::ssize(tokens);
  ORTHANT_REQUIRE(begin >= 0 && end <= num_tokens(part), "tokens ", begin, " to ", end, " of ",
                  num_tokens(part));
  auto const offset = offsets_[static_cast<std::size_t>(part)] + begin * static_cast<std::int64_t>(sizeof(T));
  bytes_->read(offset, std::as_writable_bytes(tokens));
}

void TokenFile::read(Part part, std::int64_t begin, std::span<std::int32_t> ids) {
  bytes_read_ += std::ssize(ids) * static_cast<std::int64_t>(size_of(type_));
  if (type_ == Hdf5Type::uint32) {
    read_as(part, begin, ids);
    return;
  }
  short_tokens_.resize(ids.size());
  read_as(part, begin, std::span(short_tokens_));
  std::ranges::copy(short_tokens_, ids.begin());
}

template<class T>
std::uint64_t TokenFile::sum_of_share(Part part, runtime::Communicator const& comm) const {
  constexpr std::int64_t most_at_once = std::int64_t{1} << 20;
  auto const all = num_tokens(part);
  auto const share = runtime::balanced_range(all, comm.size(), comm.rank());
  std::vector<T> tokens;
  std::uint64_t sum = 0;
  for (auto begin = share.begin; begin < share.end; begin += most_at_once) {
    auto const count = std::min(most_at_once, share.end - begin);
    tokens.resize(static_cast<std::size_t>(count));
    read_as(part, begin, std::span(tokens));
    auto const largest = *std::ranges::max_element(tokens);
    if (static_cast<std::int64_t>(largest) >= facts_.vocabulary_size)
      throw_user("'{}' is damaged: {} holds token {}, and its vocabulary has {} tokens; make it again with "
                 "orthant tokenize",
                 name_, array_of(part), largest, facts_.vocabulary_size);
    sum += runtime::sum_of_box<T>({all}, {begin}, {count}, std::span<T const>(tokens));
  }
  return sum;
}

void TokenFile::verify(runtime::Communicator const& comm) {
  std::vector<std::uint64_t> sums;
  runtime::together(comm, [&] {
    for (auto const part : all_parts)
      sums.push_back(type_ == Hdf5Type::uint16 ? sum_of_share<std::uint16_t>(part, comm)
                                               : sum_of_share<std::uint32_t>(part, comm));
  });
  runtime::add_up(comm, sums);
  for (auto const part : all_parts)
    if (sums[static_cast<std::size_t>(part)] != facts_.of(part).sum)
      throw_user("'{}' is damaged: the checksum of {} is wrong; make it again with orthant tokenize", name_,
                 array_of(part));
}

TrainingWindows::TrainingWindows(std::int64_t num_tokens, std::int64_t sequence, std::uint64_t seed)
    : num_windows_(num_tokens - sequence),
      seed_(seed) {
  if (num_windows_ < 1)
    runtime::throw_user(
        "--sequence {} needs {} training tokens, and the token file has {}: give a shorter one", sequence,
        sequence + 1, num_tokens);
}

std::int64_t TrainingWindows::begin_of(std::int64_t i) const {
  auto const epoch = static_cast<std::uint64_t>(i / num_windows_);
  runtime::RandomStream const stream(seed_, runtime::Purpose::tokens, epoch);
  runtime::KeyedBijection const windows(static_cast<std::uint64_t>(num_windows_), stream.key());
  return static_cast<std::int64_t>(windows(static_cast<std::uint64_t>(i % num_windows_)));
}

std::int64_t num_validation_windows(std::int64_t num_tokens, std::int64_t sequence) {
  auto const num_predicted = num_tokens > 0 ? num_tokens - 1 : 0;
  return (num_predicted + sequence - 1) / sequence;
}

} // namespace orthant::tokens

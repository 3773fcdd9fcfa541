// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/tokenizer_files.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "tokens/token_file.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

namespace orthant::tokens {
namespace {

using runtime::throw_user;
namespace fs = std::filesystem;

constexpr auto end_of_text = "<|endoftext|>";

/// Calls take(line) for each line without its end; empty lines are left out.
template<class Take>
void for_each_line(std::string_view text, Take&& take) {
  while (!text.empty()) {
    auto const end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) take(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// False if `text` is not base64.
bool decode_base64(std::string_view text, std::string& bytes) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr unsigned bits_per_digit = 6;
  constexpr unsigned bits_per_byte = 8;
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  while (text.ends_with('='))
    text.remove_suffix(1);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (auto const digit : text) {
    auto const value = alphabet.find(digit);
    if (value == std::string_view::npos) return false;
    bits = bits << bits_per_digit | static_cast<std::uint32_t>(value);
    count += bits_per_digit;
    if (count < bits_per_byte) continue;
    count -= bits_per_byte;
    bytes.push_back(static_cast<char>(bits >> count & 0xffU));
  }
  return !bytes.empty();
}

/// A .tiktoken file holds neither its pattern nor its special tokens. Those of the known files, by their number of tokens.
struct KnownRanks {
  std::uint32_t num_tokens;
  Pattern pattern;
  std::map<std::uint32_t, std::string> special;
};

std::map<std::uint32_t, std::string> special_of_llama3() {
  constexpr std::uint32_t first = 128'000;
  constexpr std::uint32_t count = 256;
  std::map<std::uint32_t, std::string> special{{first, "<|begin_of_text|>"},
                                               {first + 1, "<|end_of_text|>"},
                                               {first + 6, "<|start_header_id|>"},
                                               {first + 7, "<|end_header_id|>"},
                                               {first + 9, "<|eot_id|>"}};
  for (std::uint32_t id = first, reserved = 0; id < first + count; ++id)
    if (!special.contains(id)) special[id] = fmt::format("<|reserved_special_token_{}|>", reserved++);
  return special;
}

std::vector<KnownRanks> known_ranks() {
  return {{50'256, Pattern::gpt2, {{50'256, end_of_text}}},
          {100'256,
           Pattern::cl100k,
           {{100'257, end_of_text},
            {100'258, "<|fim_prefix|>"},
            {100'259, "<|fim_middle|>"},
            {100'260, "<|fim_suffix|>"},
            {100'276, "<|endofprompt|>"}}},
          {128'000, Pattern::llama3, special_of_llama3()},
          {151'643,
           Pattern::qwen2,
           {{151'643, end_of_text}, {151'644, "<|im_start|>"}, {151'645, "<|im_end|>"}}}};
}

/// Pattern and special tokens of a file with `num_tokens` ranks. The token <|endoftext|> of an unknown file follows its last rank.
KnownRanks ranks_of(std::uint32_t num_tokens, std::uint32_t num_ids, std::string const& pattern,
                    std::string const& name) {
  std::map<std::string, Pattern> const words{{"gpt2", Pattern::gpt2},
                                             {"llama3", Pattern::llama3},
                                             {"qwen2", Pattern::qwen2},
                                             {"cl100k", Pattern::cl100k}};
  KnownRanks found{num_tokens, Pattern::gpt2, {{num_ids, end_of_text}}};
  auto is_known = false;
  for (auto const& known : known_ranks())
    if (known.num_tokens == num_tokens) {
      found = known;
      is_known = true;
    }
  if (!pattern.empty())
    found.pattern = words.at(pattern);
  else if (!is_known)
    throw_user(
        "'{}' has {} tokens, which is no known .tiktoken file; name the pattern by which it splits texts "
        "with --pattern gpt2|llama3|qwen2|cl100k",
        name, num_tokens);
  return found;
}

/// Adds a special token with a number that no other token has.
void add_special(TokenizerDefinition& definition, std::uint32_t id, std::string const& text,
                 std::string const& name) {
  if (id >= definition.texts.size()) definition.texts.resize(id + 1);
  if (!definition.texts[id].empty() && definition.texts[id] != text)
    throw_user("'{}' is damaged: its token {} should be '{}', and is another one", name, id, text);
  definition.texts[id] = text;
  definition.added.push_back({text, id});
}

/// Appends the merges of tokens: for each token, in the order of ranks, all pairs of tokens that are its parts. Throws UserError if two
/// tokens have the same bytes.
void add_merges(TokenizerDefinition& definition, std::string const& name) {
  std::unordered_map<std::string_view, std::uint32_t> id_of;
  auto const& texts = definition.texts;
  for (std::uint32_t id = 0; id < texts.size(); ++id)
    if (!texts[id].empty())
      if (auto const [place, is_new] = id_of.emplace(texts[id], id); !is_new)
        throw_user("'{}' is damaged: its ranks {} and {} are the same token", name, place->second, id);
  for (std::uint32_t id = 0; id < texts.size(); ++id) {
    std::string_view const text = texts[id];
    auto const first = definition.merges.size();
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      auto const left = id_of.find(text.substr(0, cut));
      auto const right = id_of.find(text.substr(cut));
      if (left != id_of.end() && right != id_of.end())
        definition.merges.push_back({left->second, right->second, id});
    }
    std::sort(definition.merges.begin() + static_cast<std::ptrdiff_t>(first), definition.merges.end(),
              [](Merge const& a, Merge const& b) {
                return std::pair(a.left, a.right) < std::pair(b.left, b.right);
              });
  }
}

std::string read_text(fs::path const& path) {
  auto const file = runtime::open_file_bytes(path);
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Texts that rank 0 reads and broadcasts.
struct TokenizerTexts {
  std::string kind; // json, ranks or merges
  std::string first;
  std::string second; // merges.txt
};

TokenizerTexts read_merges_beside(fs::path const& path, char const* other) {
  auto const beside = path.parent_path() / other;
  if (!fs::exists(beside))
    throw_user("'{}' needs '{}' in the same folder", path.string(), beside.filename().string());
  auto const is_vocabulary = path.extension() == ".json";
  return {"merges", read_text(is_vocabulary ? path : beside), read_text(is_vocabulary ? beside : path)};
}

TokenizerTexts read_texts(fs::path const& path) {
  if (!fs::exists(path))
    throw_user("--tokenizer is char, byte, or a tokenizer's file or folder; there is no '{}'", path.string());
  if (fs::is_directory(path)) {
    for (auto const* const name : {"tokenizer.json", "vocab.json", "encoder.json"})
      if (fs::exists(path / name)) return read_texts(path / name);
    std::vector<fs::path> ranks;
    for (auto const& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".tiktoken") ranks.push_back(entry.path());
    if (ranks.size() == 1) return read_texts(ranks.front());
    throw_user(
        "the folder '{}' contains no tokenizer: a tokenizer.json, a vocab.json with merges.txt, or exactly "
        "one .tiktoken file",
        path.string());
  }
  auto const file = path.filename().string();
  if (file.ends_with("vocab.json")) return read_merges_beside(path, "merges.txt");
  if (file == "merges.txt") return read_merges_beside(path, "vocab.json");
  if (file == "encoder.json") return read_merges_beside(path, "vocab.bpe");
  if (file == "vocab.bpe") return read_merges_beside(path, "encoder.json");
  if (path.extension() == ".tiktoken") return {"ranks", read_text(path), {}};
  if (path.extension() == ".json") return {"json", read_text(path), {}};
  throw_user("'{}' is no tokenizer: a tokenizer.json, vocab.json with merges.txt, or a .tiktoken file is one",
             path.string());
}

} // namespace

TokenizerDefinition read_ranks(std::string_view text, std::string const& pattern, std::string const& name) {
  TokenizerDefinition definition;
  std::uint32_t count = 0;
  std::int64_t line_number = 0;
  std::string bytes;
  for_each_line(text, [&](std::string_view line) {
    ++line_number;
    auto const space = std::min(line.find(' '), line.size());
    auto const number = line.substr(std::min(space + 1, line.size()));
    std::uint32_t rank = 0;
    auto const read = std::from_chars(number.data(), number.data() + number.size(), rank);
    constexpr std::uint32_t most_tokens = 1U << 24U;
    if (!decode_base64(line.substr(0, space), bytes) || read.ec != std::errc() ||
        read.ptr != number.data() + number.size() || rank >= most_tokens)
      throw_user("'{}' is no .tiktoken file: its line {} is no token in base64 and its rank", name,
                 line_number);
    if (rank >= definition.texts.size()) definition.texts.resize(rank + 1);
    if (!definition.texts[rank].empty())
      throw_user("'{}' is damaged: two tokens have the rank {}", name, rank);
    definition.texts[rank] = bytes;
    ++count;
  });
  if (count == 0) throw_user("'{}' has no tokens", name);
  add_merges(definition, name);
  auto const known = ranks_of(count, static_cast<std::uint32_t>(definition.texts.size()), pattern, name);
  definition.takes_whole_pieces = true;
  definition.patterns = {known.pattern};
  definition.finds_added = false;
  for (auto const& [id, special] : known.special)
    add_special(definition, id, special, name);
  return definition;
}

TokenizerDefinition read_vocabulary_and_merges(std::string_view vocabulary, std::string_view merges,
                                               std::string const& name) {
  nlohmann::json json{{"model", {{"type", "BPE"}, {"merges", nlohmann::json::array()}}},
                      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
  TokenizerDefinition definition;
  try {
    json["model"]["vocab"] = nlohmann::json::parse(vocabulary);
    for_each_line(merges, [&](std::string_view line) {
      if (!line.starts_with("#version")) json["model"]["merges"].push_back(line);
    });
    definition = read_tokenizer_json(json.dump(), name);
  } catch (nlohmann::json::exception const& error) {
    throw_user("'{}' cannot be read as a vocabulary and merges: {}", name, error.what());
  }
  for (auto const* const special : {end_of_text, "</s>"})
    if (auto const found = json["model"]["vocab"].find(special); found != json["model"]["vocab"].end())
      add_special(definition, found->get<std::uint32_t>(), special, name);
  definition.finds_added = false;
  return definition;
}

TokenizerFile read_tokenizer(runtime::Communicator const& comm, fs::path const& path,
                             std::string const& pattern) {
  auto const name = path.string();
  TokenizerTexts texts;
  TokenizerFile file;
  if (path.extension() == ".h5") {
    auto const token_file = TokenFile::open(comm, path);
    if (!token_file.facts().bpe)
      throw_user("the tokenizer of '{}' is {}: give its name", name, name_of(token_file.facts().tokenizer));
    texts = {"json", token_file.tokenizer_json(comm), {}};
    file.name = token_file.facts().bpe->name;
  } else {
    runtime::together(comm, [&] {
      if (comm.is_root()) texts = read_texts(path);
    });
    for (auto* const text : {&texts.kind, &texts.first, &texts.second})
      runtime::broadcast_text(comm, *text, 0);
    file.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  }
  runtime::together(comm, [&] {
    if (!pattern.empty() && texts.kind != "ranks")
      throw_user("--pattern is for .tiktoken files; '{}' has its own", name);
    if (texts.kind == "json") {
      file.definition = read_tokenizer_json(texts.first, name);
      file.json = std::move(texts.first);
      return;
    }
    file.definition = texts.kind == "ranks" ? read_ranks(texts.first, pattern, name)
                                            : read_vocabulary_and_merges(texts.first, texts.second, name);
    file.json = to_tokenizer_json(file.definition);
  });
  return file;
}

} // namespace orthant::tokens

// SPDX-License-Identifier: Apache-2.0
#include "tokens/bpe/tokenizer_files.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orthant::tokens {
namespace {

using runtime::throw_user;
using JsonObject = nlohmann::json; // ordered_json would search all tokens to find one

constexpr std::uint32_t num_bytes = 256;

struct ByteCharacters {
  std::array<std::uint32_t, num_bytes> of_byte{};
  std::unordered_map<std::uint32_t, char> byte_of;
};

ByteCharacters const& byte_characters() {
  static auto const characters = [] {
    ByteCharacters made;
    auto next = num_bytes;
    for (std::uint32_t byte = 0; byte < num_bytes; ++byte) {
      auto const is_printable =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      made.of_byte[byte] = is_printable ? byte : next++;
      made.byte_of.emplace(made.of_byte[byte], static_cast<char>(byte));
    }
    return made;
  }();
  return characters;
}

/// Ids below it are accepted: far more than any vocabulary has.
constexpr std::int64_t most_tokens = 1 << 24;

class Reader {
 public:
  explicit Reader(std::string const& name) : name_(name) {}

  TokenizerDefinition read(JsonObject const& json) {
    read_model(json.at("model"));
    read_added(json);
    read_normalizer(json);
    read_pre_tokenizer(json);
    return std::move(definition_);
  }

 private:
  template<class... Parts>
  [[noreturn]] void refuse(fmt::format_string<Parts...> what, Parts&&... parts) const {
    throw_user("'{}' {}; Orthant reads byte-level BPE", name_,
               fmt::format(what, std::forward<Parts>(parts)...));
  }
  static bool is_true(JsonObject const& json, char const* member, bool otherwise = false) {
    auto const found = json.find(member);
    return found == json.end() || found->is_null() ? otherwise : found->get<bool>();
  }
  std::uint32_t checked(JsonObject const& id) const {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= most_tokens)
      throw_user("'{}' is damaged: {} is no number of a token", name_, id.dump());
    return id.get<std::uint32_t>();
  }
  void set_text(std::uint32_t id, std::string text) {
    auto& texts = definition_.texts;
    if (id >= texts.size()) texts.resize(id + 1);
    texts[id] = std::move(text);
  }

  void read_model(JsonObject const& model) {
    if (auto const type = model.value("type", "BPE"); type != "BPE") refuse("has a model of type {}", type);
    if (is_true(model, "byte_fallback")) refuse("has byte_fallback, as SentencePiece models have");
    for (auto const* const affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (auto const found = model.find(affix);
          found != model.end() && found->is_string() && !found->get<std::string>().empty())
        refuse("has the {} '{}'", affix, found->get<std::string>());
    if (auto const dropout = model.find("dropout");
        dropout != model.end() && dropout->is_number() && dropout->get<double>() != 0)
      refuse("drops merges at random (dropout)");
    definition_.takes_whole_pieces = is_true(model, "ignore_merges");
    for (auto const& [text, id] : model.at("vocab").items()) {
      if (text.empty()) throw_user("'{}' is damaged: a token has no text", name_);
      id_of_.emplace(text, checked(id));
      if (id_of_[text] < definition_.texts.size() && !definition_.texts[id_of_[text]].empty())
        throw_user("'{}' is damaged: two tokens have the number {}", name_, id_of_[text]);
      set_text(id_of_[text], from_byte_characters(text));
    }
    for (auto const& merge : model.at("merges"))
      read_merge(merge);
  }
  void read_merge(JsonObject const& merge) {
    std::string left;
    std::string right;
    if (merge.is_string()) {
      auto const text = merge.get<std::string>();
      auto const space = text.find(' ');
      left = text.substr(0, space);
      if (space != std::string::npos) right = text.substr(space + 1);
    } else {
      left = merge.at(0);
      right = merge.at(1);
    }
    auto const id = [&](std::string const& text) {
      auto const found = id_of_.find(text);
      if (found == id_of_.end())
        throw_user("'{}' is damaged: its merge of '{}' and '{}' needs the token '{}', which it has not",
                   name_, left, right, text);
      return found->second;
    };
    definition_.merges.push_back({id(left), id(right), id(left + right)});
  }

  void read_added(JsonObject const& json) {
    auto const added = json.find("added_tokens");
    if (added == json.end() || added->is_null()) return;
    for (auto const& item : *added) {
      AddedToken token;
      token.text = item.at("content");
      token.id = checked(item.at("id"));
      token.is_special = is_true(item, "special");
      token.is_normalized = is_true(item, "normalized", !token.is_special);
      token.strips_left = is_true(item, "lstrip");
      token.strips_right = is_true(item, "rstrip");
      if (is_true(item, "single_word")) refuse("has the added token '{}' as a single word", token.text);
      if (token.text.empty()) continue;
      set_text(token.id, token.text);
      definition_.added.push_back(std::move(token));
    }
  }

  void read_normalizer(JsonObject const& json) {
    auto const normalizer = json.find("normalizer");
    if (normalizer == json.end() || normalizer->is_null()) return;
    auto const type = normalizer->value("type", "");
    if (type == "Sequence" && normalizer->at("normalizers").empty()) return;
    definition_.composes = type == "NFC";
    if (!definition_.composes) refuse("has a normalizer of type {}", type);
  }

  void read_pre_tokenizer(JsonObject const& json) {
    auto const found = json.find("pre_tokenizer");
    if (found == json.end() || found->is_null()) refuse("has no pre_tokenizer");
    auto const is_sequence = found->value("type", "") == "Sequence";
    auto const steps = is_sequence ? found->at("pretokenizers") : JsonObject::array({*found});
    for (auto const& step : steps) {
      auto const type = step.value("type", "");
      if (is_byte_level_) refuse("has the pre_tokenizer {} after ByteLevel", type);
      if (type == "ByteLevel") {
        is_byte_level_ = true;
        definition_.adds_prefix_space = is_true(step, "add_prefix_space", true);
        definition_.splits_as_gpt2 = is_true(step, "use_regex", true);
      } else if (type == "Digits")
        definition_.patterns.push_back(is_true(step, "individual_digits") ? Pattern::single_digits
                                                                          : Pattern::digit_runs);
      else if (type == "Split")
        read_split(step);
      else
        refuse("has the pre_tokenizer {}", type);
    }
    if (!is_byte_level_) refuse("has no pre_tokenizer ByteLevel");
  }
  void read_split(JsonObject const& step) {
    auto const& pattern = step.at("pattern");
    auto const text = pattern.contains("Regex") ? pattern.at("Regex").get<std::string>() : pattern.dump();
    auto const known = pattern_of(text);
    if (!known) refuse("splits by a pattern that is not one of GPT-2, Llama 3 and Qwen: {}", text);
    // The matches of these patterns cover the whole text, so that removing the text between them changes nothing.
    auto const behavior = step.value("behavior", "Isolated");
    auto const inverts = is_true(step, "invert");
    if (!(behavior == "Isolated" || (behavior == "Removed" && inverts)))
      refuse("has a pre_tokenizer Split with the behavior {}", behavior);
    definition_.patterns.push_back(*known);
  }

  std::string const& name_;
  TokenizerDefinition definition_;
  std::unordered_map<std::string, std::uint32_t> id_of_; // by the characters of the file
  bool is_byte_level_ = false;
};

JsonObject pre_tokenizer_of(TokenizerDefinition const& definition) {
  auto steps = JsonObject::array();
  for (auto const pattern : definition.patterns) {
    if (pattern == Pattern::single_digits || pattern == Pattern::digit_runs)
      steps.push_back({{"type", "Digits"}, {"individual_digits", pattern == Pattern::single_digits}});
    else
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", expression_of(pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", definition.adds_prefix_space},
                   {"trim_offsets", true},
                   {"use_regex", definition.splits_as_gpt2}});
  if (steps.size() == 1) return steps.front();
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

} // namespace

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  for (auto const byte : bytes)
    text += to_utf8(byte_characters().of_byte[static_cast<unsigned char>(byte)]);
  return text;
}

std::string from_byte_characters(std::string const& text) {
  std::string bytes;
  for (std::string_view rest = text; !rest.empty();) {
    auto const character = first_character(rest);
    auto const found = byte_characters().byte_of.find(character.code_point);
    if (character.num_bytes == 0 || found == byte_characters().byte_of.end()) return text;
    bytes += found->second;
    rest.remove_prefix(character.num_bytes);
  }
  return bytes;
}

TokenizerDefinition read_tokenizer_json(std::string_view text, std::string const& name) {
  try {
    return Reader(name).read(JsonObject::parse(text));
  } catch (nlohmann::json::exception const& error) {
    throw_user("'{}' cannot be read as a tokenizer.json: {}", name, error.what());
  }
}

std::string to_tokenizer_json(TokenizerDefinition const& definition) {
  auto vocabulary = JsonObject::object();
  auto added = JsonObject::array();
  std::vector<std::string> texts(definition.texts.size());
  std::vector<bool> is_left_out(definition.texts.size()); // of vocab: added tokens not used by merges
  for (auto const& token : definition.added) {
    is_left_out[token.id] = true;
    added.push_back({{"id", token.id},
                     {"content", token.text},
                     {"single_word", false},
                     {"lstrip", token.strips_left},
                     {"rstrip", token.strips_right},
                     {"normalized", token.is_normalized},
                     {"special", token.is_special}});
  }
  for (auto const& [left, right, merged] : definition.merges)
    for (auto const id : {left, right, merged})
      is_left_out[id] = false;
  for (std::size_t id = 0; id < texts.size(); ++id) {
    texts[id] = to_byte_characters(definition.texts[id]);
    if (!is_left_out[id] && !texts[id].empty()) vocabulary.emplace(texts[id], id);
  }
  auto merges = JsonObject::array();
  for (auto const& [left, right, merged] : definition.merges)
    merges.push_back({texts[left], texts[right]});
  JsonObject const json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", definition.composes ? JsonObject{{"type", "NFC"}} : JsonObject()},
      {"pre_tokenizer", pre_tokenizer_of(definition)},
      {"post_processor", nullptr},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", definition.takes_whole_pieces},
        {"vocab", vocabulary},
        {"merges", merges}}}};
  return json.dump(1);
}

} // namespace orthant::tokens

// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/gguf_model.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace orthant::models {
namespace {

using Value = nlohmann::json;
using runtime::throw_user;

using Pairs = std::pair<std::string_view, std::string_view>;

/// Keys under "llama." and the fields of a config.json that mean the same.
constexpr std::array<Pairs, 9> config_fields{{{"block_count", "num_hidden_layers"},
                                              {"context_length", "max_position_embeddings"},
                                              {"embedding_length", "hidden_size"},
                                              {"feed_forward_length", "intermediate_size"},
                                              {"attention.head_count", "num_attention_heads"},
                                              {"attention.head_count_kv", "num_key_value_heads"},
                                              {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                              {"rope.freq_base", "rope_theta"},
                                              {"vocab_size", "vocab_size"}}};

/// Those with a meaning if they are missing: as many as query heads, 10000, and the number of tokens.
constexpr std::array<std::string_view, 3> optional_keys{"attention.head_count_kv", "rope.freq_base",
                                                        "vocab_size"};

constexpr std::array<Pairs, 3> outer_tensors{{{"token_embd.weight", "model.embed_tokens.weight"},
                                              {"output_norm.weight", "model.norm.weight"},
                                              {"output.weight", "lm_head.weight"}}};

constexpr std::array<Pairs, 9> layer_tensors{{{"attn_norm", "input_layernorm"},
                                              {"ffn_norm", "post_attention_layernorm"},
                                              {"attn_q", "self_attn.q_proj"},
                                              {"attn_k", "self_attn.k_proj"},
                                              {"attn_v", "self_attn.v_proj"},
                                              {"attn_output", "self_attn.o_proj"},
                                              {"ffn_gate", "mlp.gate_proj"},
                                              {"ffn_up", "mlp.up_proj"},
                                              {"ffn_down", "mlp.down_proj"}}};

/// "blk.3.attn_q.weight" as "model.layers.3.self_attn.q_proj.weight"; `name` itself if transformers has no such tensor.
std::string name_in_transformers(std::string const& name) {
  for (auto const& [theirs, ours] : outer_tensors)
    if (name == theirs) return std::string(ours);
  constexpr std::string_view prefix = "blk.", suffix = ".weight";
  auto const dot = name.find('.', prefix.size());
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || dot >= name.size() - suffix.size()) return name;
  auto const leaf = std::string_view(name).substr(dot + 1, name.size() - suffix.size() - dot - 1);
  for (auto const& [theirs, ours] : layer_tensors)
    if (leaf == theirs)
      return fmt::format("model.layers.{}.{}.weight", name.substr(prefix.size(), dot - prefix.size()), ours);
  return name;
}

/// The text of a config.json. Throws UserError if a key under "llama." is not known, because it may change the result.
std::string config_of(GgufFile const& file, bool has_head) {
  auto const& metadata = file.metadata();
  if (auto const kind = metadata.value("general.architecture", Value()); kind != "llama")
    throw_user("{}: {}; only llama is read", file.name(),
               kind.is_string() ? "general.architecture is " + kind.dump()
                                : "it has no general.architecture");
  Value config{{"model_type", "llama"}, {"tie_word_embeddings", !has_head}};
  Value head_dim, rotated;
  auto const tokens = metadata.find("tokenizer.ggml.tokens");
  if (tokens != metadata.end()) config["vocab_size"] = tokens->size();
  for (auto const& [key, value] : metadata.items()) {
    constexpr std::string_view prefix = "llama.";
    if (!key.starts_with(prefix)) continue;
    if (value.is_null()) throw_user("{}: {} is a list; one value for all layers is needed", file.name(), key);
    auto const rest = std::string_view(key).substr(prefix.size());
    auto const known = std::ranges::find(config_fields, rest, &Pairs::first);
    if (known != config_fields.end())
      config[std::string(known->second)] = value;
    else if (rest == "rope.dimension_count")
      rotated = value;
    else if (rest == "attention.key_length" || rest == "attention.value_length") {
      if (!head_dim.is_null() && head_dim != value)
        throw_user("{}: keys and values have the widths {} and {}, which must be equal here", file.name(),
                   head_dim.dump(), value.dump());
      head_dim = value;
    } else if (rest != "rope.scaling.type" || value != "none")
      throw_user("{}: the key {} ({}) is not known, and it may change the result", file.name(), key,
                 value.dump());
  }
  for (auto const& [key, field] : config_fields)
    if (!config.contains(field) && std::ranges::find(optional_keys, key) == optional_keys.end())
      throw_user("{}: there is no llama.{}", file.name(), key);
  if (!head_dim.is_null()) config["head_dim"] = head_dim;
  auto const settings = hf_config_of(config.dump(), file.name()).settings;
  if (!rotated.is_null() && rotated != settings.head_dim())
    throw_user("{}: llama.rope.dimension_count is {}; all {} numbers of a head are rotated here", file.name(),
               rotated.dump(), settings.head_dim());
  return config.dump();
}

bool are_texts(Value const& values) {
  return values.is_array() && std::ranges::all_of(values, [](auto const& each) { return each.is_string(); });
}

/// The text of a tokenizer.json of byte pairs, or an empty one.
std::string tokenizer_of(GgufFile const& file) {
  auto const& metadata = file.metadata();
  auto const value = [&](char const* key) {
    return metadata.value(fmt::format("tokenizer.ggml.{}", key), Value());
  };
  auto const kind = value("pre");
  if (value("model") != "gpt2" || (kind != "gpt-2" && kind != "smollm")) return {};
  auto const tokens = value("tokens"), types = value("token_type"), merges = value("merges");
  if (!are_texts(tokens) || !are_texts(merges) || !types.is_array() || types.size() != tokens.size())
    throw_user("{}: its tokenizer is damaged: tokens, token_type and merges must be lists", file.name());
  constexpr int control = 3, user_defined = 4;
  auto vocabulary = Value::object();
  auto added = Value::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    auto const text = tokens[id].get<std::string>();
    if (!vocabulary.emplace(text, id).second)
      throw_user("{}: its tokenizer is damaged: the tokens {} and {} are the same", file.name(),
                 vocabulary[text].dump(), id);
    if (types[id] == control || types[id] == user_defined)
      added.push_back({{"id", id}, {"content", text}, {"special", types[id] == control}});
  }
  auto steps = Value::array();
  if (kind == "smollm") steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}});
  return Value{
      {"version", "1.0"},
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"decoder",
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}}
      .dump();
}

} // namespace

GgufModel::GgufModel(std::filesystem::path const& path) : file_(path) {
  for (auto const& tensor : file_.tensors())
    if (!tensors_.emplace(name_in_transformers(tensor.name), tensor).second)
      throw_user("{}: two tensors have the meaning of '{}'", file_.name(), tensor.name);
  try {
    config_ = hf_config_of(config_of(file_, tensors_.contains("lm_head.weight")), file_.name());
    tokenizer_ = tokenizer_of(file_);
  } catch (Value::exception const&) { // a text that is not UTF-8
    throw_user("{}: a text of its metadata is damaged", file_.name());
  }
}

std::string GgufModel::tokenizer_kind() const {
  auto const text = [&](char const* key) {
    auto const value = file_.metadata().value(key, Value());
    return value.is_string() ? value.get<std::string>() : std::string("?");
  };
  return fmt::format("{}, {}", text("tokenizer.ggml.model"), text("tokenizer.ggml.pre"));
}

GgufTensor const* GgufModel::find(std::string const& name) const {
  auto const found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufModel::names() const {
  std::vector<std::string> all;
  for (auto const& [name, tensor] : tensors_)
    all.push_back(name);
  return all;
}

/// Reads the rows of whole heads, because a row of transformers is another row of the same head here.
std::vector<float> GgufModel::read_floats(std::string const& name, runtime::Range range) const {
  auto const& tensor = tensors_.at(name);
  if (!name.ends_with("q_proj.weight") && !name.ends_with("k_proj.weight")) return file_.read(tensor, range);
  auto const width = tensor.shape.back();
  auto const head_dim = config_.settings.head_dim();
  auto const of_head = head_dim * width;
  runtime::Range const heads{range.begin / of_head * of_head, (range.end + of_head - 1) / of_head * of_head};
  auto const numbers = file_.read(tensor, heads);
  std::vector<float> out(static_cast<std::size_t>(range.size()));
  for (auto row = range.begin / width; row < range.end / width; ++row) {
    auto const in_head = row % head_dim;
    auto const i = in_head % (head_dim / 2), j = in_head / (head_dim / 2);
    std::copy_n(numbers.begin() + (row - in_head + 2 * i + j) * width - heads.begin, width,
                out.begin() + row * width - range.begin);
  }
  return out;
}

} // namespace orthant::models

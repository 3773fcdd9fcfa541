// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/hf_config.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

namespace orthant::models {
namespace {

using Json = nlohmann::ordered_json;
using runtime::throw_user;

constexpr std::int64_t most_layers = 10'000;

constexpr std::array<std::pair<std::string_view, HfFamily>, 6> families{{{"gpt2", HfFamily::gpt2},
                                                                         {"llama", HfFamily::llama},
                                                                         {"mistral", HfFamily::llama},
                                                                         {"mixtral", HfFamily::mixtral},
                                                                         {"qwen3", HfFamily::qwen3},
                                                                         {"qwen3_moe", HfFamily::qwen3_moe}}};

std::string_view type_name(HfFamily family) {
  if (family == HfFamily::llama) return "llama";
  return std::ranges::find(families, family, &std::pair<std::string_view, HfFamily>::second)->first;
}

/// Fields that do not affect the result of an evaluation: ids, initial values, losses and dropout of training, formats.
std::set<std::string> const& fields_without_effect() {
  static std::set<std::string> const fields{"architectures",
                                            "attention_dropout",
                                            "attn_pdrop",
                                            "bos_token_id",
                                            "dtype",
                                            "embd_pdrop",
                                            "eos_token_id",
                                            "id2label",
                                            "initializer_range",
                                            "label2id",
                                            "max_window_layers",
                                            "model_type",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "output_router_logits",
                                            "pad_token_id",
                                            "pretraining_tp",
                                            "problem_type",
                                            "reorder_and_upcast_attn",
                                            "resid_pdrop",
                                            "return_dict",
                                            "router_aux_loss_coef",
                                            "router_jitter_noise",
                                            "summary_activation",
                                            "summary_first_dropout",
                                            "summary_proj_to_labels",
                                            "summary_type",
                                            "summary_use_proj",
                                            "task_specific_params",
                                            "torch_dtype",
                                            "transformers_version",
                                            "use_cache",
                                            "n_ctx",
                                            "_name_or_path",
                                            "chunk_size_feed_forward",
                                            "is_encoder_decoder",
                                            "unk_token_id"};
  return fields;
}

/// The fields of a config. Counts which have been read, so that unknown fields can be refused.
class Fields {
 public:
  Fields(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {
    if (!json_.is_object()) throw_user("{}: it is no JSON object", path_);
  }

  template<class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw_user("{}: {}", path_, fmt::format(text, std::forward<Args>(args)...));
  }
  /// Value of the field, or null if it is missing.
  [[nodiscard]] Json get(std::string const& name) {
    asked_.insert(name);
    return json_.contains(name) ? json_.at(name) : Json();
  }
  /// A whole number from 1 to `largest`. If the field is missing, returns `otherwise`, or throws if that is 0.
  [[nodiscard]] std::int64_t count(std::string const& name, std::int64_t otherwise = 0,
                                   std::int64_t largest = most) {
    auto const value = get(name);
    return value.is_null() && otherwise > 0 ? otherwise : count_of(name, value, largest);
  }
  [[nodiscard]] std::int64_t count_of(std::string const& name, Json const& value,
                                      std::int64_t largest = most) const {
    if (!value.is_number_integer() || value.get<double>() < 1 ||
        value.get<double>() > static_cast<double>(largest))
      fail("{} is {}, where a number from 1 to {} is needed", name, value.dump(), largest);
    return value.get<std::int64_t>();
  }
  /// Throws UserError if the field is missing: its default differs from family to family.
  void require_present(std::string const& name) const {
    if (!json_.contains(name)) fail("{} is missing", name);
  }
  [[nodiscard]] double number(std::string const& name, double otherwise) {
    auto const value = get(name);
    if (value.is_null()) return otherwise;
    if (!value.is_number()) fail("{} is {}, where a number is needed", name, value.dump());
    return value.get<double>();
  }
  [[nodiscard]] bool flag(std::string const& name, bool otherwise) {
    auto const value = get(name);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) fail("{} is {}, where true or false is needed", name, value.dump());
    return value.get<bool>();
  }
  [[nodiscard]] std::string word(std::string const& name, std::string const& otherwise) {
    auto const value = get(name);
    if (value.is_null()) return otherwise;
    if (!value.is_string()) fail("{} is {}, where a word is needed", name, value.dump());
    return value.get<std::string>();
  }
  /// The field must be missing or have this value.
  void require(std::string const& name, Json const& wanted) {
    if (auto const value = get(name); !value.is_null() && value != wanted)
      fail("{} is {}; only {} is supported", name, value.dump(), wanted.dump());
  }
  void require_all_known() const {
    for (auto const& [name, value] : json_.items())
      if (!asked_.contains(name) && !fields_without_effect().contains(name) && !value.is_null())
        fail("the field {} ({}) is not known, and it may change the result", name, value.dump());
  }

 private:
  static constexpr std::int64_t most = std::int64_t{1} << 24;
  std::string path_;
  Json json_;
  std::set<std::string> asked_;
};

void read_rope(Fields& fields, HfFamily family, TransformerSettings& s) {
  // transformers 5 writes rope_parameters, version 4 rope_scaling and rope_theta. A file may have both, so that either version can read it.
  auto rope = fields.get("rope_parameters");
  auto const scaling = fields.get("rope_scaling");
  if (rope.is_null()) rope = scaling;
  if (!scaling.is_null() && scaling != rope) fields.fail("rope_scaling is not what rope_parameters is");
  if (family != HfFamily::llama && (!rope.is_object() || !rope.contains("rope_theta")))
    fields.require_present("rope_theta");
  s.rotary_base = fields.number("rope_theta", s.rotary_base);
  if (rope.is_null()) return;
  if (!rope.is_object()) fields.fail("the rotary positions are {}, no object", rope.dump());
  auto const number = [&](char const* name) {
    if (!rope.contains(name) || !rope.at(name).is_number())
      fields.fail("the rotary positions have no number {}", name);
    return rope.at(name).get<double>();
  };
  if (rope.contains("rope_theta")) s.rotary_base = number("rope_theta");
  auto const type = rope.contains("rope_type") ? rope.at("rope_type")
                    : rope.contains("type")    ? rope.at("type")
                                               : Json("default");
  if (type == "llama3") {
    s.rotary_scaling =
        pmm::RotaryScaling{number("factor"), number("low_freq_factor"), number("high_freq_factor"),
                           fields.count_of("original_max_position_embeddings",
                                           rope.value("original_max_position_embeddings", Json()))};
  } else if (type != "default") {
    fields.fail("rotary positions of rope_type {} are not computed here; default and llama3 are",
                type.dump());
  }
  for (auto const& [name, value] : rope.items())
    if (name != "rope_theta" && name != "rope_type" && name != "type" &&
        (type == "default" || (name != "factor" && name != "low_freq_factor" && name != "high_freq_factor" &&
                               name != "original_max_position_embeddings")))
      fields.fail("the field {} ({}) of the rotary positions is not known", name, value.dump());
}

void read_experts(Fields& fields, HfFamily family, TransformerSettings& s) {
  auto& experts = s.experts;
  auto const of_local = fields.get("num_local_experts"), of_all = fields.get("num_experts");
  constexpr std::int64_t most_experts = 1 << 14;
  experts.num_experts =
      fields.count(of_local.is_null() ? "num_experts" : "num_local_experts", 0, most_experts);
  if (!of_local.is_null() && !of_all.is_null() && of_local != of_all)
    fields.fail("num_local_experts is {}, and num_experts {}", of_local.dump(), of_all.dump());
  experts.top_k = fields.count("num_experts_per_tok");
  if (family == HfFamily::qwen3_moe) experts.normalizes_weights = fields.flag("norm_topk_prob", false);
  if (experts.top_k == 1 && experts.normalizes_weights)
    fields.fail(
        "num_experts_per_tok is 1 and the weights are normalized, so every weight would be 1; this is not "
        "computed here");
  if (family == HfFamily::mixtral) return;
  experts.every = fields.count("decoder_sparse_step", 1);
  fields.require("mlp_only_layers", Json::array());
  auto const width = fields.count("moe_intermediate_size");
  if (experts.every > 1 && width != s.feed_forward)
    fields.fail(
        "moe_intermediate_size {} beside an intermediate_size of {}: experts and other layers have one "
        "width here",
        width, s.feed_forward);
  s.feed_forward = width;
}

TransformerSettings read_gpt2(Fields& fields) {
  auto const hidden = fields.count("n_embd");
  auto s = gpt2_settings(fields.count("n_layer", 0, most_layers), hidden, fields.count("n_head"),
                         fields.count("vocab_size"), fields.count("n_positions"));
  s.feed_forward = fields.count("n_inner", 4 * hidden);
  s.norm_epsilon = fields.number("layer_norm_epsilon", s.norm_epsilon);
  s.tied_head = fields.flag("tie_word_embeddings", true);
  auto const activation = fields.word("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh")
    s.activation = FeedForward::gelu_tanh;
  else if (activation != "gelu")
    fields.fail("activation_function {}: gelu_new, gelu_pytorch_tanh and gelu are computed here", activation);
  fields.require("scale_attn_weights", true);
  fields.require("scale_attn_by_inverse_layer_idx", false);
  fields.require("add_cross_attention", false);
  return s;
}

/// Limits the length of sequences to the attention window if it is shorter than the number of positions: within that length the window has
/// no effect.
void read_window(Fields& fields, HfConfig& config) {
  auto const window = fields.get("sliding_window");
  auto const is_used = fields.flag("use_sliding_window", !window.is_null());
  if (auto const types = fields.get("layer_types"); types.is_array())
    for (auto const& type : types)
      if (type != "full_attention" && type != "sliding_attention")
        fields.fail("a layer of type {}", type.dump());
  auto& s = config.settings;
  if (!is_used || window.is_null()) return;
  if (!window.is_number_integer() || window.get<std::int64_t>() < 1)
    fields.fail("sliding_window is {}, where a number of tokens is needed", window.dump());
  if (auto const length = window.get<std::int64_t>(); length < s.max_sequence) {
    s.max_sequence = length;
    config.note = fmt::format(
        "sequences of at most {} tokens: the window of its attention, within which the window has no effect",
        length);
  }
}

void read_llama(Fields& fields, HfConfig& config) {
  auto const hidden = fields.count("hidden_size");
  auto const heads = fields.count("num_attention_heads");
  auto s = llama_settings(fields.count("num_hidden_layers", 0, most_layers), hidden, heads,
                          fields.count("num_key_value_heads", heads), fields.count("vocab_size"),
                          fields.count("max_position_embeddings", 2048));
  s.feed_forward = fields.count("intermediate_size");
  auto const usual = hidden % heads == 0 ? hidden / heads : 0;
  auto const head_dim = fields.get("head_dim");
  if (!head_dim.is_null()) s.head_width = fields.count("head_dim");
  if (s.head_width == usual) s.head_width = 0;
  if (config.family != HfFamily::llama) fields.require_present("rms_norm_eps");
  s.norm_epsilon = fields.number("rms_norm_eps", 1e-6);
  s.tied_head = fields.flag("tie_word_embeddings", false);
  s.has_head_norms = config.family == HfFamily::qwen3 || config.family == HfFamily::qwen3_moe;
  if (auto const activation = fields.word("hidden_act", "silu"); activation != "silu")
    fields.fail("hidden_act {}: silu is computed here", activation);
  fields.require("attention_bias", false);
  fields.require("mlp_bias", false);
  read_rope(fields, config.family, s);
  if (config.family == HfFamily::mixtral || config.family == HfFamily::qwen3_moe)
    read_experts(fields, config.family, s);
  config.settings = s;
  read_window(fields, config);
}

} // namespace

HfConfig read_hf_config(std::filesystem::path const& path) {
  std::ifstream in(path);
  if (!in)
    throw_user("{}: it cannot be opened; import-weights reads a folder with config.json and safetensors",
               path.string());
  return hf_config_of(std::string(std::istreambuf_iterator<char>(in), {}), path.string());
}

HfConfig hf_config_of(std::string const& text, std::string const& name) {
  auto const json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw_user("{}: it is no JSON", name);
  Fields fields(name, json);
  auto const type = fields.word("model_type", "");
  auto const known = std::ranges::find(families, type, &std::pair<std::string_view, HfFamily>::first);
  if (known == families.end())
    fields.fail("model_type '{}' is none of gpt2, llama, mistral, mixtral, qwen3, qwen3_moe", type);
  HfConfig config{known->second, {}, {}};
  if (type == "mistral") fields.require_present("sliding_window");
  if (config.family == HfFamily::gpt2)
    config.settings = read_gpt2(fields);
  else
    read_llama(fields, config);
  fields.require_all_known();
  require_valid(config.settings);
  return config;
}

HfFamily family_of(TransformerSettings const& s) {
  auto const is_gpt2 = s.positions == Positions::learned && s.norm == NormKind::layer &&
                       s.activation != FeedForward::swiglu && s.has_bias && s.num_kv_heads == s.num_heads &&
                       s.head_width == 0 && !s.experts.is_on() && !s.has_head_norms;
  if (is_gpt2) return HfFamily::gpt2;
  auto const is_llama = s.positions == Positions::rotary && s.norm == NormKind::rms &&
                        s.activation == FeedForward::swiglu && !s.has_bias;
  if (is_llama && !s.experts.is_on()) return s.has_head_norms ? HfFamily::qwen3 : HfFamily::llama;
  if (is_llama && !s.experts.has_shared() && !s.experts.has_biases) {
    if (s.has_head_norms) return HfFamily::qwen3_moe;
    if (s.experts.every == 1 && (s.experts.normalizes_weights && s.experts.top_k > 1))
      return HfFamily::mixtral;
  }
  throw_user("no model_type of Hugging Face has this architecture; gpt2, llama, mixtral, qwen3 and qwen3_moe "
             "are written");
}

std::string hf_config_text(TransformerSettings const& s, std::string const& type) {
  auto const family = family_of(s);
  Json json;
  if (family == HfFamily::gpt2) {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"n_embd", s.hidden},
            {"n_layer", s.num_layers},
            {"n_head", s.num_heads},
            {"n_positions", s.max_sequence},
            {"n_inner", s.feed_forward},
            {"vocab_size", s.vocabulary},
            {"layer_norm_epsilon", s.norm_epsilon},
            {"activation_function", s.activation == FeedForward::gelu_tanh ? "gelu_new" : "gelu"},
            {"tie_word_embeddings", s.tied_head},
            {"dtype", type}};
    return json.dump(2) + "\n";
  }
  auto const name = family == HfFamily::llama     ? "LlamaForCausalLM"
                    : family == HfFamily::mixtral ? "MixtralForCausalLM"
                    : family == HfFamily::qwen3   ? "Qwen3ForCausalLM"
                                                  : "Qwen3MoeForCausalLM";
  Json rope{{"rope_theta", s.rotary_base}, {"rope_type", "default"}};
  if (auto const& scaling = s.rotary_scaling)
    rope = {
        {"rope_theta", s.rotary_base},       {"rope_type", "llama3"},
        {"factor", scaling->factor},         {"low_freq_factor", scaling->low},
        {"high_freq_factor", scaling->high}, {"original_max_position_embeddings", scaling->num_positions}};
  json = {{"architectures", {name}},
          {"model_type", std::string(type_name(family))},
          {"hidden_size", s.hidden},
          {"intermediate_size", s.feed_forward},
          {"num_hidden_layers", s.num_layers},
          {"num_attention_heads", s.num_heads},
          {"num_key_value_heads", s.num_kv_heads},
          {"head_dim", s.head_dim()},
          {"vocab_size", s.vocabulary},
          {"max_position_embeddings", s.max_sequence},
          {"rms_norm_eps", s.norm_epsilon},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"rope_theta", s.rotary_base},
          {"rope_parameters", rope},
          {"tie_word_embeddings", s.tied_head},
          {"dtype", type}};
  if (s.rotary_scaling) json["rope_scaling"] = rope;
  if (s.experts.is_on()) {
    json["num_local_experts"] = s.experts.num_experts;
    json["num_experts_per_tok"] = s.experts.top_k;
  }
  if (family == HfFamily::qwen3_moe) {
    json["num_experts"] = s.experts.num_experts;
    json["moe_intermediate_size"] = s.feed_forward;
    json["norm_topk_prob"] = s.experts.normalizes_weights && s.experts.top_k > 1;
    json["decoder_sparse_step"] = s.experts.every;
    json["mlp_only_layers"] = Json::array();
  }
  return json.dump(2) + "\n";
}

} // namespace orthant::models

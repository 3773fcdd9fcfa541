// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/hf_config.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <string_view>

namespace orthant::models {
namespace {

using Json = nlohmann::ordered_json;
using runtime::throw_user;

constexpr std::int64_t most_layers = 10'000;

constexpr std::array<std::pair<std::string_view, HfFamily>, 8> families{{{"gpt2", HfFamily::gpt2},
                                                                         {"llama", HfFamily::llama},
                                                                         {"mistral", HfFamily::llama},
                                                                         {"mixtral", HfFamily::mixtral},
                                                                         {"qwen3", HfFamily::qwen3},
                                                                         {"qwen3_moe", HfFamily::qwen3_moe},
                                                                         {"olmoe", HfFamily::olmoe},
                                                                         {"deepseek", HfFamily::deepseek}}};

/// Fields that do not affect the result of an evaluation: ids, initial values, losses and dropout of training, formats.
std::set<std::string> const& fields_without_effect() {
  static std::set<std::string> const fields{"architectures",
                                            "attention_dropout",
                                            "auto_map",
                                            "aux_loss_alpha",
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
                                            "seq_aux",
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

constexpr std::int64_t most_experts = 1 << 14;

/// The number of experts, under either of the names that transformers has for it.
std::int64_t read_num_experts(Fields& fields) {
  auto const of_local = fields.get("num_local_experts"), of_all = fields.get("num_experts");
  if (!of_local.is_null() && !of_all.is_null() && of_local != of_all)
    fields.fail("num_local_experts is {}, and num_experts {}", of_local.dump(), of_all.dump());
  return fields.count(of_local.is_null() ? "num_experts" : "num_local_experts", 0, most_experts);
}

/// DeepSeek-MoE (arXiv 2401.06066): layers without experts first, shared experts, and weights that are scaled. A single expert's weight
/// is not normalized.
void read_deepseek_experts(Fields& fields, TransformerSettings& s) {
  auto& experts = s.experts;
  experts.num_experts = fields.count("n_routed_experts", 0, most_experts);
  experts.top_k = fields.count("num_experts_per_tok");
  experts.normalizes_weights = fields.flag("norm_topk_prob", false) && experts.top_k > 1;
  experts.width = fields.count("moe_intermediate_size");
  if (!fields.get("n_shared_experts").is_null())
    experts.num_shared = fields.count("n_shared_experts", 0, most_experts);
  if (auto const dense = fields.get("first_k_dense_replace"); !dense.is_null() && dense != 0)
    experts.num_dense = fields.count("first_k_dense_replace", 0, s.num_layers - 1);
  fields.require("moe_layer_freq", 1);
  fields.require("scoring_func", "softmax");
  experts.weight_scale = fields.number("routed_scaling_factor", 1);
  if (experts.weight_scale != 1 && experts.normalizes_weights)
    fields.fail("routed_scaling_factor {} beside norm_topk_prob: DeepSeek's programs differ in whether "
                "normalized weights are scaled",
                experts.weight_scale);
}

void read_experts(Fields& fields, HfFamily family, TransformerSettings& s) {
  if (family == HfFamily::deepseek) return read_deepseek_experts(fields, s);
  auto& experts = s.experts;
  experts.num_experts = read_num_experts(fields);
  experts.top_k = fields.count("num_experts_per_tok");
  if (family != HfFamily::mixtral) experts.normalizes_weights = fields.flag("norm_topk_prob", false);
  if (experts.top_k == 1 && experts.normalizes_weights)
    fields.fail(
        "num_experts_per_tok is 1 and the weights are normalized, so every weight would be 1; this is not "
        "computed here");
  if (family != HfFamily::qwen3_moe) return;
  experts.every = fields.count("decoder_sparse_step", 1);
  fields.require("mlp_only_layers", Json::array());
  experts.width = fields.count("moe_intermediate_size");
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
  if (config.family == HfFamily::qwen3 || config.family == HfFamily::qwen3_moe)
    s.query_key_norm = QueryKeyNorm::head;
  if (config.family == HfFamily::olmoe) s.query_key_norm = QueryKeyNorm::all;
  if ((config.family == HfFamily::olmoe || config.family == HfFamily::deepseek) && s.head_width != 0)
    fields.fail("head_dim is {}, where {} is needed: hidden_size / num_attention_heads", s.head_width, usual);
  if (auto const activation = fields.word("hidden_act", "silu"); activation != "silu")
    fields.fail("hidden_act {}: silu is computed here", activation);
  fields.require("attention_bias", false);
  fields.require("mlp_bias", false);
  read_rope(fields, config.family, s);
  fields.require("clip_qkv", nullptr);
  if (config.family != HfFamily::llama && config.family != HfFamily::qwen3)
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
  if (type == "deepseek_v2" || type == "deepseek_v3")
    fields.fail("model_type '{}' has multi-head latent attention (MLA), which is not computed here", type);
  if (known == families.end())
    fields.fail("model_type '{}' is none of {}", type, fmt::join(families | std::views::keys, ", "));
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

} // namespace orthant::models

// SPDX-License-Identifier: Apache-2.0
//
// Writes config.json of the family that has an architecture.
#include "models/lm/files/hf_config.hpp"
#include "runtime/error.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace orthant::models {
namespace {

using Json = nlohmann::ordered_json;
using runtime::throw_user;

/// model_type and class of a family of Llama's kind.
std::pair<char const*, char const*> names_of(HfFamily family) {
  switch (family) {
  case HfFamily::mixtral:
    return {"mixtral", "MixtralForCausalLM"};
  case HfFamily::qwen3:
    return {"qwen3", "Qwen3ForCausalLM"};
  case HfFamily::qwen3_moe:
    return {"qwen3_moe", "Qwen3MoeForCausalLM"};
  case HfFamily::olmoe:
    return {"olmoe", "OlmoeForCausalLM"};
  case HfFamily::deepseek:
    return {"deepseek", "DeepseekForCausalLM"};
  default:
    return {"llama", "LlamaForCausalLM"};
  }
}

bool has_normalized_weights(ExpertSettings const& experts) {
  return experts.normalizes_weights && experts.top_k > 1;
}

/// The family of a model of Llama's kind with experts.
std::optional<HfFamily> family_of_experts(TransformerSettings const& s) {
  auto const& experts = s.experts;
  if (experts.has_biases) return std::nullopt;
  auto const is_plain = experts.num_dense == 0 && !experts.has_shared() && experts.weight_scale == 1;
  auto const has_one_width = s.expert_width() == s.feed_forward && experts.every == 1;
  if (s.query_key_norm == QueryKeyNorm::head)
    return is_plain ? std::optional(HfFamily::qwen3_moe) : std::nullopt;
  if (s.query_key_norm == QueryKeyNorm::all)
    return is_plain && has_one_width && s.head_width == 0 ? std::optional(HfFamily::olmoe) : std::nullopt;
  if (is_plain && has_one_width && has_normalized_weights(experts)) return HfFamily::mixtral;
  auto const has_clear_scale = experts.weight_scale == 1 || !has_normalized_weights(experts);
  if (experts.every == 1 && s.head_width == 0 && !s.rotary_scaling && has_clear_scale)
    return HfFamily::deepseek;
  return std::nullopt;
}

void add_experts(Json& json, HfFamily family, TransformerSettings const& s) {
  auto const& experts = s.experts;
  json["num_experts_per_tok"] = experts.top_k;
  if (family != HfFamily::mixtral) json["norm_topk_prob"] = has_normalized_weights(experts);
  if (family == HfFamily::mixtral || family == HfFamily::qwen3_moe)
    json["num_local_experts"] = experts.num_experts;
  if (family == HfFamily::olmoe || family == HfFamily::qwen3_moe) json["num_experts"] = experts.num_experts;
  if (family == HfFamily::qwen3_moe || family == HfFamily::deepseek)
    json["moe_intermediate_size"] = s.expert_width();
  if (family == HfFamily::qwen3_moe) {
    json["decoder_sparse_step"] = experts.every;
    json["mlp_only_layers"] = Json::array();
  }
  if (family != HfFamily::deepseek) return;
  json["n_routed_experts"] = experts.num_experts;
  json["n_shared_experts"] = experts.has_shared() ? Json(experts.num_shared) : Json();
  json["first_k_dense_replace"] = experts.num_dense;
  json["moe_layer_freq"] = 1;
  json["scoring_func"] = "softmax";
  if (experts.weight_scale != 1) json["routed_scaling_factor"] = experts.weight_scale;
}

} // namespace

HfFamily family_of(TransformerSettings const& s) {
  auto const is_gpt2 = s.positions == Positions::learned && s.norm == NormKind::layer &&
                       s.activation != FeedForward::swiglu && s.has_bias && s.num_kv_heads == s.num_heads &&
                       s.head_width == 0 && !s.experts.is_on() && s.query_key_norm == QueryKeyNorm::none;
  if (is_gpt2) return HfFamily::gpt2;
  auto const is_llama = s.positions == Positions::rotary && s.norm == NormKind::rms &&
                        s.activation == FeedForward::swiglu && !s.has_bias;
  if (is_llama && !s.experts.is_on() && s.query_key_norm != QueryKeyNorm::all)
    return s.query_key_norm == QueryKeyNorm::head ? HfFamily::qwen3 : HfFamily::llama;
  if (is_llama && s.experts.is_on())
    if (auto const family = family_of_experts(s)) return *family;
  throw_user("no model_type of Hugging Face has this architecture; gpt2, llama, mixtral, qwen3, qwen3_moe, "
             "olmoe and deepseek are written");
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
  Json rope{{"rope_theta", s.rotary_base}, {"rope_type", "default"}};
  if (auto const& scaling = s.rotary_scaling)
    rope = {
        {"rope_theta", s.rotary_base},       {"rope_type", "llama3"},
        {"factor", scaling->factor},         {"low_freq_factor", scaling->low},
        {"high_freq_factor", scaling->high}, {"original_max_position_embeddings", scaling->num_positions}};
  auto const [type_name, class_name] = names_of(family);
  json = {{"architectures", {class_name}},
          {"model_type", type_name},
          {"hidden_size", s.hidden},
          {"intermediate_size", s.feed_forward},
          {"num_hidden_layers", s.num_layers},
          {"num_attention_heads", s.num_heads},
          {"num_key_value_heads", s.num_kv_heads},
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
  if (family != HfFamily::olmoe && family != HfFamily::deepseek) json["head_dim"] = s.head_dim();
  if (s.experts.is_on()) add_experts(json, family, s);
  return json.dump(2) + "\n";
}

} // namespace orthant::models

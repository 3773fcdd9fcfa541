// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/lm_files.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

namespace orthant::cli {
namespace {

using Json = nlohmann::ordered_json;
using models::NormKind, models::Positions, models::QueryKeyNorm;

constexpr auto model_name = "transformer";
constexpr auto sequence_attribute = "sequence";
constexpr auto vocabulary_attribute = "vocabulary_sum";

std::string vocabulary_sum(std::uint64_t sum) {
  return fmt::format("{:016x}", sum);
}

/// Architecture of a model. Dropout and recomputation belong to the training.
Json json_of(models::TransformerSettings const& s) {
  return {{"layers", s.num_layers},
          {"hidden", s.hidden},
          {"heads", s.num_heads},
          {"kv_heads", s.num_kv_heads},
          {"feed_forward", s.feed_forward},
          {"vocabulary", s.vocabulary},
          {"positions", s.max_sequence},
          {"position_kind", s.positions == Positions::rotary ? "rotary" : "learned"},
          {"norm", s.norm == NormKind::rms ? "rms" : "layer"},
          {"activation", std::string(models::name_of(s.activation))},
          {"bias", s.has_bias},
          {"tied_head", s.tied_head},
          {"norm_epsilon", s.norm_epsilon},
          {"rotary_base", s.rotary_base},
          {"experts", s.experts.num_experts},
          {"top_k", s.experts.top_k},
          {"moe_every", s.experts.every},
          {"dense_layers", s.experts.num_dense},
          {"expert_width", s.experts.width},
          {"top_k_scale", s.experts.weight_scale},
          {"shared_experts", s.experts.num_shared},
          {"top_k_weights", s.experts.normalizes_weights ? "normalized" : "softmax"},
          {"balance", s.experts.has_biases ? "bias" : "loss"},
          {"head_width", s.head_width},
          {"qk_norm", s.query_key_norm != QueryKeyNorm::none},
          {"qk_norm_over", s.query_key_norm == QueryKeyNorm::all ? "all" : "head"},
          {"rotary_scaling", models::text_of(s.rotary_scaling)}};
}

/// True for parts that older files do not record.
bool is_newer(std::string const& part) {
  static std::set<std::string> const parts{"experts",       "top_k",       "moe_every", "dense_layers",
                                           "expert_width",  "top_k_scale", "balance",   "shared_experts",
                                           "top_k_weights", "head_width",  "qk_norm",   "qk_norm_over",
                                           "rotary_scaling"};
  return parts.contains(part);
}

models::TransformerSettings settings_of(Json const& json) {
  models::TransformerSettings s;
  s.num_layers = json.at("layers");
  s.hidden = json.at("hidden");
  s.num_heads = json.at("heads");
  s.num_kv_heads = json.at("kv_heads");
  s.feed_forward = json.at("feed_forward");
  s.vocabulary = json.at("vocabulary");
  s.max_sequence = json.at("positions");
  s.positions = json.at("position_kind") == "rotary" ? Positions::rotary : Positions::learned;
  s.norm = json.at("norm") == "rms" ? NormKind::rms : NormKind::layer;
  s.activation = models::parse_feed_forward(json.at("activation").get<std::string>());
  s.has_bias = json.at("bias");
  s.tied_head = json.at("tied_head");
  s.norm_epsilon = json.at("norm_epsilon");
  s.rotary_base = json.at("rotary_base");
  s.experts.num_experts = json.at("experts");
  s.experts.top_k = json.at("top_k");
  s.experts.every = json.at("moe_every");
  s.experts.num_dense = json.at("dense_layers");
  s.experts.width = json.at("expert_width");
  s.experts.weight_scale = json.at("top_k_scale");
  s.experts.num_shared = json.at("shared_experts");
  s.experts.normalizes_weights = json.at("top_k_weights") == "normalized";
  s.experts.has_biases = json.at("balance") == "bias";
  s.head_width = json.at("head_width");
  if (json.at("qk_norm").get<bool>())
    s.query_key_norm = json.at("qk_norm_over") == "all" ? QueryKeyNorm::all : QueryKeyNorm::head;
  s.rotary_scaling = models::parse_rotary_scaling(json.at("rotary_scaling").get<std::string>());
  return s;
}

} // namespace

tokens::TokenFile open_tokens(Context const& context, std::string const& path) {
  if (path.empty())
    runtime::throw_user("give --tokens T.h5, a file of tokens; orthant tokenize makes one of a text");
  auto file = tokens::TokenFile::open(context.world(), path);
  file.verify(context.world());
  return file;
}

void warn_of_attention(Context& context, models::TransformerSettings const& model,
                       tokens::TokenFile const& file, std::string const& gemm_math) {
  if (!context.world().is_root()) return;
  if (model.masks_documents && file.facts().num_documents <= 1)
    context.log().warn("--document-mask changes nothing: '{}' has one document", file.name());
  if (pmm::runs_on_host || gemm_math != "bf16" || (!model.masks_documents && model.dropout == 0)) return;
  context.log().warn(
      "{}: attention is computed by Orthant's kernels in fp32, not by the vendor's library in bf16",
      model.masks_documents ? "--document-mask" : "--dropout");
}

std::string describe(tokens::TokenFile const& file) {
  auto const& facts = file.facts();
  return fmt::format("tokens    {}: {} of a vocabulary of {} ({}); train/valid {}/{}\n", facts.source,
                     file.num_tokens(tokens::Part::train) + file.num_tokens(tokens::Part::valid),
                     facts.vocabulary_size, facts.bpe ? facts.bpe->name : tokens::name_of(facts.tokenizer),
                     file.num_tokens(tokens::Part::train), file.num_tokens(tokens::Part::valid));
}

models::Architecture record_of(models::TransformerSettings const& settings) {
  models::Architecture record{{"model", model_name}};
  auto const json = json_of(settings);
  for (auto const& [part, value] : json.items())
    record.emplace_back(part, value.is_string() ? value.get<std::string>() : value.dump());
  return record;
}

models::Architecture record_of(models::TransformerSettings const& settings, std::int64_t sequence,
                               tokens::TokenFile const& tokens) {
  auto record = record_of(settings);
  record.emplace_back(sequence_attribute, fmt::format("{}", sequence));
  record.emplace_back(vocabulary_attribute, vocabulary_sum(tokens.facts().sum_of_vocabulary));
  if (auto const& adapters = settings.adapters; adapters.is_on()) {
    record.emplace_back("lora_rank", fmt::format("{}", adapters.rank));
    record.emplace_back("lora_alpha", fmt::format("{}", adapters.alpha));
    record.emplace_back("lora_targets", fmt::format("{}", fmt::join(adapters.targets, ",")));
  }
  return record;
}

RecordedModel read_model(runtime::Communicator const& comm, std::string const& path) {
  auto text = runtime::together(comm, [&]() -> std::string {
    if (!comm.is_root()) return {};
    auto const file = runtime::Hdf5File::open(path);
    // "transformer" is also the name of a graph network, which has no positions.
    if (!file.contains_attribute("/", "model") || file.read_text("/", "model") != model_name ||
        !file.contains_attribute("/", "position_kind"))
      runtime::throw_user("'{}' records no language model; train-lm --save-weights writes files that do",
                          path);
    auto json = json_of({});
    for (auto& [part, value] : json.items()) {
      if (is_newer(part) && !file.contains_attribute("/", part)) continue; // the default
      auto const recorded = file.read_text("/", part);
      value = value.is_string() ? Json(recorded) : Json::parse(recorded, nullptr, false);
    }
    json[sequence_attribute] = file.contains_attribute("/", sequence_attribute)
                                   ? Json::parse(file.read_text("/", sequence_attribute), nullptr, false)
                                   : json["positions"];
    return json.dump();
  });
  runtime::broadcast_text(comm, text, 0);
  return runtime::together(comm, [&] {
    try {
      auto const json = Json::parse(text);
      RecordedModel const model{settings_of(json), json.at(sequence_attribute)};
      models::require_valid(model.settings);
      return model;
    } catch (nlohmann::json::exception const&) {
      runtime::throw_user("'{}' is damaged: what it says of its model cannot be read", path);
    }
  });
}

tokens::TextTokenizer open_tokenizer(runtime::Communicator const& comm, std::string const& path,
                                     std::string const& weights_path, std::int64_t vocabulary) {
  std::string json, recorded;
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = runtime::Hdf5File::open(weights_path);
    if (file.contains_attribute("/", vocabulary_attribute))
      recorded = file.read_text("/", vocabulary_attribute);
    if (!path.empty()) return;
    if (!file.contains(tokens::tokenizer_array))
      runtime::throw_user(
          "'{}' holds no tokenizer: give --tokenizer FILE, which is a tokenizer.json, a folder "
          "with one, the token file of the training, or the word byte",
          weights_path);
    auto const bytes = file.read_all<std::uint8_t>(tokens::tokenizer_array);
    json.assign(bytes.begin(), bytes.end());
  });
  runtime::broadcast_text(comm, json, 0);
  runtime::broadcast_text(comm, recorded, 0);
  auto tokenizer =
      path.empty()
          ? runtime::together(comm, [&] { return tokens::TextTokenizer::of_json(json, weights_path); })
          : tokens::TextTokenizer::read(comm, path);
  if (tokenizer.vocabulary().size() > vocabulary)
    runtime::throw_user("'{}' has a tokenizer of {} tokens, but the model of '{}' has only {}: give the "
                        "model's own tokenizer",
                        tokenizer.name(), tokenizer.vocabulary().size(), weights_path, vocabulary);
  if (!recorded.empty() && recorded != vocabulary_sum(tokens::sum_of(tokenizer.vocabulary())))
    runtime::throw_user("'{}' was trained on another vocabulary than that of '{}': give the token file of "
                        "its training as --tokenizer",
                        weights_path, tokenizer.name());
  return tokenizer;
}

std::string names_of_tables(runtime::Hdf5File const& file) {
  return file.contains(models::array_of("lm_head.weight")) ? "wte.weight,lm_head.weight" : "wte.weight";
}

void require_vocabulary(runtime::Communicator const& comm, std::string const& weights_path,
                        std::string const& tokens_path, tokens::TokenFile const& tokens) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = runtime::Hdf5File::open(weights_path);
    if (file.contains_attribute("/", vocabulary_attribute) &&
        file.read_text("/", vocabulary_attribute) != vocabulary_sum(tokens.facts().sum_of_vocabulary))
      runtime::throw_user("'{}' was trained on another vocabulary than that of '{}', whose tokens mean other "
                          "characters: give a file of tokens with the vocabulary of its training; train-lm "
                          "--init-from {} --init-skip {} learns another one",
                          weights_path, tokens_path, weights_path, names_of_tables(file));
  });
}

} // namespace orthant::cli

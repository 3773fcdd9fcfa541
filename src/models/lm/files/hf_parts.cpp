// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/hf_parts.hpp"

#include <fmt/format.h>
#include <utility>

namespace orthant::models {
namespace {

using runtime::Hdf5File;

/// Lists the parameters of a model with the names of a family.
class PartList {
 public:
  PartList(HfFamily family, TransformerSettings const& settings) : family_(family), s_(settings) {
    is_gpt2_ = family == HfFamily::gpt2;
    auto const prefix = is_gpt2_ ? "transformer." : "model.";
    whole("wte.weight", prefix + std::string(is_gpt2_ ? "wte.weight" : "embed_tokens.weight"),
          {s_.vocabulary, s_.hidden});
    if (is_gpt2_) whole("wpe.weight", "transformer.wpe.weight", {s_.max_sequence, s_.hidden});
    for (std::int64_t l = 0; l < s_.num_layers; ++l)
      is_gpt2_ ? add_gpt2_layer(l) : add_llama_layer(l);
    norm("ln_f", prefix + std::string(is_gpt2_ ? "ln_f" : "norm"));
    if (!s_.tied_head) whole("lm_head.weight", "lm_head.weight", {s_.vocabulary, s_.hidden});
  }
  [[nodiscard]] std::vector<Part> take() { return std::move(parts_); }

 private:
  /// Adds a matrix or vector with the same order of columns in both formats.
  void whole(std::string const& ours, std::string const& theirs, Hdf5File::Extents extents) {
    auto const count = static_cast<std::int64_t>(extents.back());
    parts_.push_back({ours, std::move(extents), {{theirs, count}}, false});
  }
  void norm(std::string const& ours, std::string const& theirs) {
    whole(ours + ".weight", theirs + ".weight", {s_.hidden});
    if (is_gpt2_) whole(ours + ".bias", theirs + ".bias", {s_.hidden});
  }
  /// Columns of the queries, keys and values: those of one key-value head after the other.
  [[nodiscard]] std::vector<Columns> heads(std::string const& q, std::string const& k, std::string const& v,
                                           std::int64_t first_key, std::int64_t first_value) const {
    auto const d = s_.head_dim();
    auto const queries = s_.num_heads / s_.num_kv_heads * d;
    auto const first = [&](std::int64_t g) { return g * (queries + 2 * d); };
    std::vector<Columns> columns; // sorted by tensor, so that each tensor is read once
    for (std::int64_t g = 0; g < s_.num_kv_heads; ++g)
      columns.push_back({q, queries, g * queries, first(g)});
    for (std::int64_t g = 0; g < s_.num_kv_heads; ++g)
      columns.push_back({k, d, first_key + g * d, first(g) + queries});
    for (std::int64_t g = 0; g < s_.num_kv_heads; ++g)
      columns.push_back({v, d, first_value + g * d, first(g) + queries + d});
    return columns;
  }
  void add_gpt2_layer(std::int64_t l) {
    auto const ours = fmt::format("h.{}.", l), theirs = fmt::format("transformer.h.{}.", l);
    norm(ours + "ln_1", theirs + "ln_1");
    norm(ours + "ln_2", theirs + "ln_2");
    for (auto const is_weight : {true, false}) {
      std::string const leaf = is_weight ? ".weight" : ".bias";
      auto const shape = [&](std::int64_t in, std::int64_t out) {
        return is_weight ? Hdf5File::Extents{in, out} : Hdf5File::Extents{out};
      };
      auto const qkv = theirs + "attn.c_attn" + leaf;
      parts_.push_back({ours + "attn.c_attn" + leaf, shape(s_.hidden, 3 * s_.hidden),
                        heads(qkv, qkv, qkv, s_.hidden, 2 * s_.hidden), false});
      whole(ours + "attn.c_proj" + leaf, theirs + "attn.c_proj" + leaf, shape(s_.hidden, s_.hidden));
      whole(ours + "mlp.c_fc" + leaf, theirs + "mlp.c_fc" + leaf, shape(s_.hidden, s_.feed_forward));
      whole(ours + "mlp.c_proj" + leaf, theirs + "mlp.c_proj" + leaf, shape(s_.feed_forward, s_.hidden));
    }
  }
  /// Up and down matrices of a feed-forward network; gates and values alternate.
  void feed_forward(std::string const& ours, std::string const& gate, std::string const& up,
                    std::string const& down, std::int64_t width) {
    parts_.push_back(
        {ours + "c_fc.weight", {s_.hidden, 2 * width}, {{gate, width, 0, 0, 2}, {up, width, 0, 1, 2}}});
    parts_.push_back({ours + "c_proj.weight", {width, s_.hidden}, {{down, s_.hidden}}});
  }
  void gated(std::string const& ours, std::string const& theirs, std::int64_t width) {
    feed_forward(ours, theirs + "gate_proj.weight", theirs + "up_proj.weight", theirs + "down_proj.weight",
                 width);
  }
  void add_llama_layer(std::int64_t l) {
    auto const ours = fmt::format("h.{}.", l), theirs = fmt::format("model.layers.{}.", l);
    auto const attention = theirs + "self_attn.";
    whole(ours + "ln_1.weight", theirs + "input_layernorm.weight", {s_.hidden});
    whole(ours + "ln_2.weight", theirs + "post_attention_layernorm.weight", {s_.hidden});
    parts_.push_back(
        {ours + "attn.c_attn.weight",
         {s_.hidden, (s_.num_heads + 2 * s_.num_kv_heads) * s_.head_dim()},
         heads(attention + "q_proj.weight", attention + "k_proj.weight", attention + "v_proj.weight", 0, 0)});
    parts_.push_back({ours + "attn.c_proj.weight",
                      {s_.num_heads * s_.head_dim(), s_.hidden},
                      {{attention + "o_proj.weight", s_.hidden}}});
    if (s_.query_key_norm != QueryKeyNorm::none)
      for (auto const& [name, num_heads] :
           {std::pair("q_norm.weight", s_.num_heads), std::pair("k_norm.weight", s_.num_kv_heads)})
        whole(ours + "attn." + name, attention + name,
              {(s_.query_key_norm == QueryKeyNorm::all ? num_heads : 1) * s_.head_dim()});
    if (!s_.experts.has_layer(l)) return gated(ours + "mlp.", theirs + "mlp.", s_.feed_forward);
    auto const is_mixtral = family_ == HfFamily::mixtral;
    auto const mlp = theirs + (is_mixtral ? "block_sparse_moe." : "mlp.");
    auto const num_experts = s_.experts.num_experts;
    parts_.push_back(
        {ours + "mlp.router.weight", {s_.hidden, num_experts}, {{mlp + "gate.weight", num_experts}}});
    for (std::int64_t e = 0; e < num_experts; ++e) {
      auto const expert = mlp + fmt::format("experts.{}.", e);
      auto const of_ours = ours + fmt::format("mlp.experts.{}.", e);
      if (is_mixtral)
        feed_forward(of_ours, expert + "w1.weight", expert + "w3.weight", expert + "w2.weight",
                     s_.expert_width());
      else
        gated(of_ours, expert, s_.expert_width());
    }
    if (s_.experts.has_shared())
      gated(ours + "mlp.shared.", mlp + "shared_experts.", s_.experts.num_shared * s_.expert_width());
  }

  HfFamily family_;
  TransformerSettings const& s_;
  bool is_gpt2_ = false;
  std::vector<Part> parts_;
};

} // namespace

std::vector<Part> parts_of(HfFamily family, TransformerSettings const& settings) {
  return PartList(family, settings).take();
}

/// Number of rows of a part's matrices; 1 for a vector.
std::int64_t num_rows(Part const& part) {
  return part.extents.size() == 1 ? 1 : part.extents[0];
}

/// Shape of the tensor that `columns` belong to. It has all columns of the part with the same tensor.
std::vector<std::int64_t> their_shape(Part const& part, std::string const& tensor) {
  std::int64_t count = 0;
  for (auto const& columns : part.columns)
    if (columns.tensor == tensor) count += columns.count;
  if (part.extents.size() == 1) return {count};
  if (part.is_out_in) return {count, part.extents[0]};
  return {part.extents[0], count};
}

std::vector<Piece> pieces_of(std::vector<Part> const& parts, std::int64_t most) {
  std::vector<Piece> pieces;
  for (auto const& part : parts) {
    auto const rows = num_rows(part), columns = static_cast<std::int64_t>(part.extents.back());
    auto const cut = part.is_out_in ? columns : rows;
    auto const step = std::max(std::int64_t{1}, most / (part.is_out_in ? rows : columns));
    for (std::int64_t begin = 0; begin < cut; begin += step) {
      runtime::Range const range{begin, std::min(begin + step, cut)};
      pieces.push_back(part.is_out_in ? Piece{&part, {0, rows}, range} : Piece{&part, range, {0, columns}});
    }
  }
  return pieces;
}

runtime::Range detail::within(Columns const& columns, runtime::Range ours) {
  auto const first_from = [&](std::int64_t place) {
    auto const steps = (place - columns.our_first + columns.our_step - 1) / columns.our_step;
    return place <= columns.our_first ? 0 : std::min(steps, columns.count);
  };
  return {first_from(ours.begin), first_from(ours.end)};
}

} // namespace orthant::models

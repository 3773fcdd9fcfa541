#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Forward passes of a language model with given weights: logits of sequences of tokens, and completions. Sequences are shorter than the
// batch: positions after the end of a sequence do not change its logits, because attention is causal.

#include "cli/options/command.hpp"
#include "cli/options/shared_options.hpp"
#include "models/lm/transformer/transformer.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::cli {

struct InferenceOptions {
  std::string command; // its name, for messages
  std::string weights;
  GridOptions grid;
  int expert_axis = 1;
  bool force_memory = false;
};

using TokenIds = std::vector<std::int32_t>;

/// Score of a token, given the tokens before it.
struct TokenScore {
  double log_probability = 0;
  bool is_greedy = false; // it is the most probable token; ties: the lower id
};

template<class T>
class Inference {
 public:
  /// Loads the weights for passes over `num_sequences` sequences of `sequence` tokens. `num_cached`: positions of a sequence whose keys and
  /// values are kept, for forward_next(); 0: none. Collective. Throws UserError if the weights are of no language model, or do not fit grid,
  /// sequence and memory.
  Inference(Context const& context, InferenceOptions const& options, std::int64_t num_sequences,
            std::int64_t sequence, std::int64_t num_cached = 0);

  [[nodiscard]] std::int64_t vocabulary() const { return network_->settings().vocabulary; }
  [[nodiscard]] pmm::ProcessGrid const& grid() const { return *grid_; }
  /// Computes the logits of `sequences`, the same on all ranks, each at most as long as the pass. Throws UserError if an id is not in the
  /// vocabulary. Collective.
  void forward(std::vector<TokenIds> const& sequences);
  /// Computes the logits of the next token of each sequence, tokens[s] at positions[s], from the keys and values of the passes before. All
  /// positions before it must have been computed. Collective.
  void forward_next(TokenIds const& tokens, std::vector<std::int64_t> const& positions);
  /// Logits of rows `positions` of sequence `s` in the last pass, [positions x vocabulary], on all ranks. forward_next() computes row 0 only.
  /// Collective over the world: one all_reduce of that size.
  [[nodiscard]] std::vector<T> logits(std::int64_t s, runtime::Range positions) const;
  /// Scores of the last num_scored[s] tokens of each sequence, on all ranks. A sequence must have more tokens than are scored. A sequence
  /// may be one token longer than the pass. Collective: a pass, and an all_reduce of four numbers per token and part of the vocabulary.
  [[nodiscard]] std::vector<std::vector<TokenScore>> score(std::vector<TokenIds> const& sequences,
                                                           std::vector<std::int64_t> const& num_scored);

 private:
  void run(models::Transformer<T>& network, TokenIds const& ids, std::vector<std::int64_t> const& starts);
  void require_tokens(TokenIds const& ids) const;

  Context const& context_;
  std::optional<pmm::ProcessGrid> grid_;
  std::optional<models::Transformer<T>> network_;
  std::unique_ptr<models::Transformer<T>> next_; // shares weights and cache with network_
  models::Transformer<T>* last_ = nullptr;       // the network of the last pass
};

/// How the next token is drawn.
struct Sampling {
  double temperature = 1; // 0: the most probable token; ties: the lower id
  std::int64_t top_k = 0; // draw from this number of most probable tokens; 0: from all
  double top_p = 1;       // draw from the fewest most probable tokens whose probabilities add up to this
  double min_p = 0;       // draw from tokens with at least this share of the largest probability
  std::uint64_t seed = 0;
};
/// Draws token `step` of completion `s` from its logits.
template<class T>
[[nodiscard]] std::int32_t next_token(std::vector<T> const& logits, Sampling const& sampling, std::int64_t s,
                                      std::int64_t step);

extern template class Inference<float>;
extern template class Inference<double>;

} // namespace orthant::cli

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Log-probabilities of given continuations, and the score of a validation part in windows that overlap.

#include "cli/lm/lm_inference.hpp"
#include "models/training/vertex_loss.hpp"
#include "tokens/token_file.hpp"

#include <string>

namespace orthant::cli {

struct LikelihoodFiles {
  std::string requests; // JSONL: {"context": "..", "continuation": ".."}, or context_ids and continuation_ids
  std::string output;   // JSONL: {"log_likelihood": -1.5, "is_greedy": false, "num_tokens": 2}
  std::string tokenizer; // empty: the one in the weights
};

/// Scores the requests, `batch` per pass. A context that is too long for the model's positions loses its first tokens. An empty context is
/// replaced by the end token; a text that is too long is then scored in parts, each with as much context as fits. Collective. Throws
/// UserError, which names the line, if a line is not a valid request.
template<class T>
void score_requests(Context& context, InferenceOptions const& options, LikelihoodFiles const& files,
                    std::int64_t batch);

/// Score of the validation part in windows of `sequence` tokens that begin every `stride` tokens, `batch` per pass. Each token except the
/// first is predicted once: in the first window that contains it, from all tokens before it there. Records the grid in the run's record.
/// Collective.
template<class T>
[[nodiscard]] models::SplitScore score_windows(Context& context, InferenceOptions const& options,
                                               tokens::TokenFile& file, std::int64_t sequence,
                                               std::int64_t stride, std::int64_t batch);

} // namespace orthant::cli

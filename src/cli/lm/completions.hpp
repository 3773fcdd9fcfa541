#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Completions of prompts by a language model, token by token, and their texts.

#include "cli/lm/lm_inference.hpp"
#include "tokens/documents/text_tokenizer.hpp"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// The text of a completion, which grows by the bytes of a token at a time.
class CompletionText {
 public:
  /// `stops`: texts, none of them empty, before the first of which the completion ends.
  explicit CompletionText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Returns the text that no later token can change: whole characters that cannot be the beginning of a stop text. Bytes that are not
  /// valid UTF-8 become U+FFFD.
  std::string add(std::string_view bytes);
  /// Returns the rest.
  std::string finish();
  [[nodiscard]] bool has_stopped() const { return has_stopped_; }
  /// All text that add() has returned.
  [[nodiscard]] std::string const& text() const { return text_; }

 private:
  std::string give(std::size_t num_bytes);

  std::vector<std::string> stops_;
  std::string pending_, text_;
  bool has_stopped_ = false;
};

struct CompletionSettings {
  Sampling sampling;
  std::int64_t max_tokens = 16;
  std::set<std::int32_t> stop_ids; // tokens that end a completion; their texts do not belong to it
  std::vector<std::string> stops;
};

struct Completion {
  TokenIds ids;           // the new tokens, including the token that ended the completion
  std::string text;       // empty without a tokenizer
  bool has_ended = false; // by a stop text or token, not by the number of tokens
};

/// Completes `prompts`, the same on all ranks, in one batch. The model must keep keys and values of the longest prompt and max_tokens.
/// Random draws for prompt s are those of completion first + s. `tokenizer` may be null. on_text(s, text) is called on all ranks with each
/// piece of text. Collective.
template<class T>
[[nodiscard]] std::vector<Completion>
complete(Inference<T>& model, std::vector<TokenIds> const& prompts, std::int64_t first,
         CompletionSettings const& settings, tokens::TextTokenizer const* tokenizer,
         std::function<void(std::size_t, std::string const&)> const& on_text);

} // namespace orthant::cli

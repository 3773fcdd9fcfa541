// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/completions.hpp"

#include <algorithm>

namespace orthant::cli {

std::string CompletionText::give(std::size_t num_bytes) {
  auto text = tokens::to_valid_utf8(std::string_view(pending_).substr(0, num_bytes));
  pending_.erase(0, num_bytes);
  text_ += text;
  return text;
}

std::string CompletionText::add(std::string_view bytes) {
  pending_ += bytes;
  auto end = std::string::npos;
  for (auto const& stop : stops_)
    end = std::min(end, pending_.find(stop));
  if (end != std::string::npos) {
    auto text = give(end);
    pending_.clear();
    has_stopped_ = true;
    return text;
  }
  auto held = tokens::unfinished_character(pending_);
  for (auto const& stop : stops_)
    for (auto length = std::min(stop.size() - 1, pending_.size()); length > held; --length)
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) held = length;
  return give(pending_.size() - held);
}

std::string CompletionText::finish() {
  return give(pending_.size());
}

template<class T>
std::vector<Completion> complete(Inference<T>& model, std::vector<TokenIds> const& prompts,
                                 std::int64_t first, CompletionSettings const& settings,
                                 tokens::TextTokenizer const* tokenizer,
                                 std::function<void(std::size_t, std::string const&)> const& on_text) {
  TokenIds newest(prompts.size());
  std::vector<std::int64_t> positions(prompts.size());
  std::vector<Completion> completions(prompts.size());
  std::vector<CompletionText> texts(prompts.size(), CompletionText(settings.stops));
  std::size_t num_open = prompts.size();
  for (std::int64_t step = 0; step < settings.max_tokens && num_open > 0; ++step) {
    if (step == 0)
      model.forward(prompts);
    else
      model.forward_next(newest, positions);
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      auto& completion = completions[s];
      if (completion.has_ended) continue;
      auto const row = step == 0 ? std::ssize(prompts[s]) - 1 : 0;
      auto const logits = model.logits(static_cast<std::int64_t>(s), {row, row + 1});
      auto const token = next_token(logits, settings.sampling, first + static_cast<std::int64_t>(s), step);
      newest[s] = token;
      positions[s] = std::ssize(prompts[s]) + step;
      completion.ids.push_back(token);
      completion.has_ended = settings.stop_ids.contains(token);
      if (tokenizer != nullptr && !completion.has_ended) {
        on_text(s, texts[s].add(tokenizer->text_of(token)));
        completion.has_ended = texts[s].has_stopped();
      }
      if (completion.has_ended) --num_open;
    }
  }
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    if (auto const rest = texts[s].finish(); !rest.empty()) on_text(s, rest);
    completions[s].text = texts[s].text();
  }
  return completions;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::vector<Completion> complete(Inference<T>&, std::vector<TokenIds> const&, std::int64_t,       \
                                            CompletionSettings const&, tokens::TextTokenizer const*,         \
                                            std::function<void(std::size_t, std::string const&)> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::cli

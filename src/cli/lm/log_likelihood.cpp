// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/log_likelihood.hpp"

#include "cli/lm/json_lines.hpp"
#include "cli/lm/lm_files.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

/// A sequence whose last `num_scored` tokens are predicted.
struct Continuation {
  TokenIds ids;
  std::int64_t num_scored = 0;
  std::size_t request = 0; // index of the request of which it is a part
};

/// Tokenizes a context and its continuation. White space at the end of the context is moved to the continuation, because tokens rarely end
/// with white space.
Continuation encode(tokens::TextTokenizer const& tokenizer, std::string context, std::string continuation) {
  auto const end = context.find_last_not_of(" \t\n\r\f\v") + 1;
  continuation.insert(0, context.substr(end));
  context.resize(end);
  auto const num_before = std::ssize(tokenizer.encode(context));
  auto ids = tokenizer.encode(context + continuation);
  return {ids, std::ssize(ids) - num_before, 0};
}

Continuation request_of(JsonLine const& line, std::optional<tokens::TextTokenizer> const& tokenizer) {
  Continuation request;
  if (auto const ids = line.ids("continuation_ids")) {
    request.ids = line.ids("context_ids").value_or(TokenIds());
    request.num_scored = std::ssize(*ids);
    request.ids.insert(request.ids.end(), ids->begin(), ids->end());
  } else if (auto const continuation = line.text("continuation")) {
    request = encode(*tokenizer, line.text("context").value_or(std::string()), *continuation);
  } else {
    runtime::throw_user("{}: it has neither a continuation nor continuation_ids", line.place);
  }
  if (request.num_scored < 1) runtime::throw_user("{}: its continuation has no tokens", line.place);
  if (request.num_scored < std::ssize(request.ids)) return request;
  if (!tokenizer || !tokenizer->end_token())
    runtime::throw_user("{}: it has no context, and no tokenizer gives an end token to begin with",
                        line.place);
  request.ids.insert(request.ids.begin(), *tokenizer->end_token());
  return request;
}

/// Appends parts of at most `positions` predicted tokens, each with the most context that fits. A request with several parts may have only
/// one token of context; returns false if it has more.
bool add_parts(Continuation const& request, std::int64_t positions, std::vector<Continuation>& parts) {
  auto const all = std::ssize(request.ids) - 1; // tokens that can be predicted
  if (request.num_scored > positions && request.num_scored < all) return false;
  for (auto begin = all - request.num_scored; begin < all;) {
    auto const end = std::min(all, begin + positions);
    auto const first = request.ids.begin() + std::max<std::int64_t>(end - positions, 0);
    parts.push_back({TokenIds(first, request.ids.begin() + end + 1), end - begin, request.request});
    begin = end;
  }
  return true;
}

struct Requests {
  std::vector<Continuation> parts;
  std::size_t count = 0;
};

Requests read_requests(Context const& context, InferenceOptions const& options,
                       LikelihoodFiles const& files) {
  auto const& world = context.world();
  auto const model = read_model(world, options.weights).settings;
  auto const lines = read_json_lines(world, files.requests);
  std::optional<tokens::TextTokenizer> tokenizer;
  auto const is_text = [](JsonLine const& line) { return line.object.contains("continuation"); };
  if (!files.tokenizer.empty() || std::ranges::any_of(lines, is_text))
    tokenizer = open_tokenizer(world, files.tokenizer, options.weights, model.vocabulary);
  return runtime::together(world, [&] {
    Requests requests;
    for (auto const& line : lines) {
      auto request = request_of(line, tokenizer);
      request.request = requests.count++;
      if (!add_parts(request, model.max_sequence, requests.parts))
        runtime::throw_user("{}: a continuation of {} tokens is longer than the {} positions of '{}'",
                            line.place, request.num_scored, model.max_sequence, options.weights);
    }
    return requests;
  });
}

/// Length of a pass: the last token of a sequence is only predicted, never an input.
std::int64_t longest_input(std::vector<Continuation> const& requests) {
  std::int64_t longest = 1;
  for (auto const& request : requests)
    longest = std::max(longest, std::ssize(request.ids) - 1);
  return longest;
}

/// Calls take(i, scores of the last num_scored tokens of requests[i]) for each.
template<class T, class Take>
void score_batch(Inference<T>& model, std::span<Continuation const> requests, Take const& take) {
  std::vector<TokenIds> sequences;
  std::vector<std::int64_t> num_scored;
  for (auto const& request : requests) {
    sequences.push_back(request.ids);
    num_scored.push_back(request.num_scored);
  }
  auto const scores = model.score(sequences, num_scored);
  for (std::size_t i = 0; i < requests.size(); ++i)
    take(i, scores[i]);
}

} // namespace

template<class T>
void score_requests(Context& context, InferenceOptions const& options, LikelihoodFiles const& files,
                    std::int64_t batch) {
  struct Result {
    double log_likelihood = 0;
    bool is_greedy = true;
    std::size_t num_tokens = 0;
  };
  auto const& world = context.world();
  auto const requests = read_requests(context, options, files);
  auto const parts = std::span(requests.parts);
  auto const length = std::min(static_cast<std::size_t>(batch), parts.size());
  auto staged = runtime::StagedFile::create(world, files.output, "scores");
  Inference<T> model(context, options, std::ssize(parts.first(length)), longest_input(requests.parts));
  std::vector<Result> results(requests.count);
  for (std::size_t begin = 0; begin < parts.size(); begin += length) {
    auto const some = parts.subspan(begin, std::min(length, parts.size() - begin));
    score_batch(model, some, [&](std::size_t i, std::vector<TokenScore> const& scores) {
      auto& result = results[some[i].request];
      for (auto const& score : scores) {
        result.log_likelihood += score.log_probability;
        result.is_greedy = result.is_greedy && score.is_greedy;
        ++result.num_tokens;
      }
    });
  }
  std::string text;
  for (auto const& result : results)
    text += line_of({{"log_likelihood", result.log_likelihood},
                     {"is_greedy", result.is_greedy},
                     {"num_tokens", result.num_tokens}});
  runtime::together(world, [&] {
    if (world.is_root()) staged.file().write_at(0, std::as_bytes(std::span(text)));
  });
  staged.publish(world);
}

template<class T>
models::SplitScore score_windows(Context& context, InferenceOptions const& options, tokens::TokenFile& file,
                                 std::int64_t sequence, std::int64_t stride, std::int64_t batch) {
  auto const num_tokens = file.num_tokens(tokens::Part::valid);
  Inference<T> model(context, options, batch, std::min(sequence, num_tokens - 1));
  context.run_record["grid"] = models::grid_text(model.grid().shape());
  models::SplitScore total;
  double loss = 0;
  std::int64_t num_predicted = 0; // token num_predicted + 1 is the next one to predict
  for (std::int64_t begin = 0; num_predicted < num_tokens - 1;) {
    std::vector<Continuation> windows;
    for (; std::ssize(windows) < batch && num_predicted < num_tokens - 1; begin += stride) {
      auto const end = std::min(begin + sequence + 1, num_tokens);
      Continuation window{TokenIds(static_cast<std::size_t>(end - begin)), end - 1 - num_predicted, 0};
      runtime::together(context.world(), [&] { file.read(tokens::Part::valid, begin, window.ids); });
      num_predicted = end - 1;
      windows.push_back(std::move(window));
    }
    score_batch(model, std::span<Continuation const>(windows),
                [&](std::size_t, std::vector<TokenScore> const& scores) {
                  for (auto const& score : scores) {
                    loss -= score.log_probability;
                    total.num_correct += score.is_greedy ? 1 : 0;
                    ++total.num_counted;
                  }
                });
  }
  total.loss = loss / static_cast<double>(total.num_counted);
  return total;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void score_requests<T>(Context&, InferenceOptions const&, LikelihoodFiles const&, std::int64_t);  \
  template models::SplitScore score_windows<T>(Context&, InferenceOptions const&, tokens::TokenFile&,        \
                                               std::int64_t, std::int64_t, std::int64_t);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/lm_inference.hpp"

#include "cli/lm/lm_files.hpp"
#include "cli/lm/train_lm_run.hpp"
#include "cli/training/start_checks.hpp"
#include "models/lm/training/language_model.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/parameters/weights_file.hpp"
#include "pmm/cost/step_plan.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::cli {
namespace {

/// Bytes of the cache of keys and values, and of the network for forward_next(), which shares the weights of the network with `plan`.
template<class T>
std::int64_t bytes_of_next_tokens(pmm::ProcessGrid const& grid, models::TransformerPlan const& plan,
                                  std::int64_t num_cached) {
  auto const& shape = grid.shape();
  auto const& coordinates = grid.coordinates();
  auto const next = models::plan_for_memory(
      models::plan_transformer(shape, coordinates, plan.settings, plan.num_sequences, 1), shape);
  pmm::StepPlan network(shape, coordinates, sizeof(T)), weights(shape, coordinates, sizeof(T));
  models::plan_transformer_arrays(network, next);
  models::plan_parameter_arrays(weights, models::parameters_of(shape, coordinates, next));
  auto const num_numbers =
      models::num_cached_numbers(shape, coordinates, plan, num_cached) * plan.settings.num_layers +
      plan.sequences.size() * plan.local_heads_per_group() * num_cached; // scores
  return bytes_held(network) - bytes_held(weights) + num_numbers * std::int64_t{sizeof(T)};
}

} // namespace

template<class T>
Inference<T>::Inference(Context const& context, InferenceOptions const& options, std::int64_t num_sequences,
                        std::int64_t sequence, std::int64_t num_cached)
    : context_(context) {
  auto const& world = context.world();
  pmm::set_gemm_threads(1);
  if (options.weights.empty())
    runtime::throw_user("give --weights W.h5, which train-lm --save-weights or import-weights writes");
  auto const model = read_model(world, options.weights).settings;
  if (sequence > model.max_sequence)
    runtime::throw_user("{} tokens are more than the {} positions of '{}'", sequence, model.max_sequence,
                        options.weights);
  if (options.expert_axis > 1 && !model.experts.is_on())
    runtime::throw_user("--expert-axis {}: the model of '{}' has no experts to distribute; leave it out",
                        options.expert_axis, options.weights);
  models::SequenceSettings sequences;
  sequences.sequence = sequence;
  sequences.global_batch =
      std::max(num_sequences, std::int64_t{world.size()}); // each rank has a sequence on any grid
  models::OptimizerSettings optimizer;                     // without moments, since nothing is trained
  optimizer.kind = models::OptimizerKind::sgd;
  optimizer.momentum = 0;
  auto const shape = predicted_language_grid<T>(context, {options.grid.grid,
                                                          options.grid.machine,
                                                          model,
                                                          sequences,
                                                          optimizer,
                                                          0,
                                                          {.expert = options.expert_axis}})
                         .shape;
  sequences.global_batch =
      std::max(num_sequences, std::int64_t{shape.size(pmm::sequence_axes(shape).with(pmm::Axis::z))});
  grid_.emplace(world, shape);
  auto const plan = models::plan_sequences(grid_->shape(), grid_->coordinates(), model, sequences);
  auto estimate = models::estimate_memory<T>(*grid_, plan, sequences, optimizer);
  if (num_cached > 0) {
    auto const bytes = bytes_of_next_tokens<T>(*grid_, plan, num_cached);
    estimate.arrays += bytes;
    estimate.loading += bytes;
  }
  if (!options.force_memory) require_memory(context, options.command, estimate);
  network_.emplace(*grid_, model, sequences.global_batch, sequence, 0, num_cached);
  models::load_weights(*grid_, options.weights, network_->parameters());
  if (num_cached > 0)
    next_.reset(new models::Transformer<T>(models::Transformer<T>::next_token_of(*network_)));
}

template<class T>
void Inference<T>::require_tokens(TokenIds const& ids) const {
  for (auto const id : ids)
    if (id < 0 || id >= vocabulary())
      runtime::throw_user("token {} is not in the vocabulary, which has the tokens 0 to {}", id,
                          vocabulary() - 1);
}

/// A pass over the tokens of this rank's sequences, which begin at `starts`.
template<class T>
void Inference<T>::run(models::Transformer<T>& network, TokenIds const& ids,
                       std::vector<std::int64_t> const& starts) {
  network.set_tokens(ids);
  if (next_) network.set_starts(starts);
  runtime::PhaseTimes phases;
  std::ignore = network.forward(runtime::DefaultExec(), models::Pass::evaluation, 0, phases);
  last_ = &network;
}

template<class T>
void Inference<T>::forward(std::vector<TokenIds> const& sequences) {
  for (auto const& ids : sequences)
    require_tokens(ids);
  auto const length = network_->tokens().length;
  auto const own = network_->sequences();
  TokenIds ids(static_cast<std::size_t>(own.size() * length), 0);
  for (auto s = own.begin; s < std::min(own.end, std::ssize(sequences)); ++s)
    std::ranges::copy(sequences[static_cast<std::size_t>(s)], ids.begin() + (s - own.begin) * length);
  run(*network_, ids, std::vector<std::int64_t>(static_cast<std::size_t>(own.size()), 0));
}

template<class T>
void Inference<T>::forward_next(TokenIds const& tokens, std::vector<std::int64_t> const& positions) {
  require_tokens(tokens);
  auto const own = next_->sequences();
  TokenIds ids(static_cast<std::size_t>(own.size()), 0);
  std::vector<std::int64_t> starts(ids.size(), 0);
  for (auto s = own.begin; s < std::min(own.end, std::ssize(tokens)); ++s) {
    ids[static_cast<std::size_t>(s - own.begin)] = tokens[static_cast<std::size_t>(s)];
    starts[static_cast<std::size_t>(s - own.begin)] = positions[static_cast<std::size_t>(s)];
  }
  run(*next_, ids, starts);
}

template<class T>
std::vector<T> Inference<T>::logits(std::int64_t s, runtime::Range positions) const {
  std::vector<T> numbers(static_cast<std::size_t>(positions.size() * vocabulary()), T{0});
  auto const own = network_->sequences();
  // Ranks along y have the same logits, so only the first of them contributes its own.
  if (own.contains(s) && grid_->coordinates().y == 0) {
    auto const& matrix = last_->logits_gradient(); // the logits are in the same memory
    auto const columns = matrix.block().columns;
    auto const first = (s - own.begin) * last_->tokens().length + positions.begin;
    auto const rows = Kokkos::subview(
        matrix.local(),
        std::pair(static_cast<std::size_t>(first), static_cast<std::size_t>(first + positions.size())),
        Kokkos::ALL);
    auto const local = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), rows);
    for (std::int64_t t = 0; t < positions.size(); ++t)
      for (std::int64_t c = 0; c < columns.size(); ++c)
        numbers[static_cast<std::size_t>(t * vocabulary() + columns.begin + c)] =
            local(static_cast<std::size_t>(t), static_cast<std::size_t>(c));
  }
  runtime::all_reduce(runtime::host, context_.world(), numbers);
  return numbers;
}

namespace {

/// Contribution of one part of the vocabulary to the score of a token.
struct PartOfScore {
  double largest = 0; // logit
  double token = 0;   // that has it
  double sum = 0;     // of exp(logit - largest); 0: the part is empty
  double logit = 0;   // of the token to score; 0 if it is in another part

  template<class Row>
  static PartOfScore of(Row const& row, runtime::Range columns, std::int32_t scored) {
    PartOfScore part;
    for (std::int64_t c = 0; c < columns.size(); ++c) {
      auto const logit = static_cast<double>(row(c));
      if (!std::isfinite(logit))
        runtime::throw_user(
            "the logits are not finite: the weights have diverged, or overflow this precision");
      if (c == 0 || logit > part.largest) {
        part.largest = logit;
        part.token = static_cast<double>(columns.begin + c);
      }
      if (columns.begin + c == scored) part.logit = logit;
    }
    for (std::int64_t c = 0; c < columns.size(); ++c)
      part.sum += std::exp(static_cast<double>(row(c)) - part.largest);
    return part;
  }
};

TokenScore score_of(std::span<PartOfScore const> parts, std::int32_t token) {
  PartOfScore whole;
  for (auto const& part : parts)
    if (part.sum > 0 && (whole.sum == 0 || part.largest > whole.largest)) {
      whole.sum = 1;
      whole.largest = part.largest;
      whole.token = part.token;
    }
  double sum = 0;
  for (auto const& part : parts) {
    if (part.sum > 0) sum += part.sum * std::exp(part.largest - whole.largest);
    whole.logit += part.logit;
  }
  return {whole.logit - whole.largest - std::log(sum), whole.token == static_cast<double>(token)};
}

} // namespace

template<class T>
std::vector<std::vector<TokenScore>> Inference<T>::score(std::vector<TokenIds> const& sequences,
                                                         std::vector<std::int64_t> const& num_scored) {
  // Positions whose next tokens are scored.
  auto const scored_of = [&](std::int64_t s) {
    auto const end = std::ssize(sequences[static_cast<std::size_t>(s)]) - 1;
    return runtime::Range{end - num_scored[static_cast<std::size_t>(s)], end};
  };
  auto inputs = sequences;
  for (auto& ids : inputs) {
    require_tokens(ids);
    ids.pop_back();
  }
  forward(inputs);
  auto const length = network_->tokens().length;
  auto const num_parts = std::int64_t{grid_->size(pmm::Axis::x)};
  std::vector<PartOfScore> parts(static_cast<std::size_t>(std::ssize(sequences) * length * num_parts));
  auto const parts_of = [&](std::int64_t s, std::int64_t t) {
    return std::span(parts).subspan(static_cast<std::size_t>((s * length + t) * num_parts),
                                    static_cast<std::size_t>(num_parts));
  };
  runtime::together(context_.world(), [&] {
    if (grid_->coordinates().y != 0) return; // ranks along y have the same logits
    auto const& matrix = network_->logits_gradient();
    auto const logits = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), matrix.local());
    auto const own = network_->sequences();
    for (auto s = own.begin; s < std::min(own.end, std::ssize(sequences)); ++s) {
      auto const& ids = sequences[static_cast<std::size_t>(s)];
      auto const scored = scored_of(s);
      for (auto t = scored.begin; t < scored.end; ++t) {
        auto const row = static_cast<std::size_t>((s - own.begin) * length + t);
        parts_of(s, t)[static_cast<std::size_t>(grid_->coordinates().x)] =
            PartOfScore::of([&](std::int64_t c) { return logits(row, static_cast<std::size_t>(c)); },
                            matrix.block().columns, ids[static_cast<std::size_t>(t + 1)]);
      }
    }
  });
  runtime::all_reduce(runtime::host, context_.world(),
                      std::span(reinterpret_cast<double*>(parts.data()), 4 * parts.size()));
  std::vector<std::vector<TokenScore>> scores(sequences.size());
  for (std::int64_t s = 0; s < std::ssize(sequences); ++s) {
    auto const& ids = sequences[static_cast<std::size_t>(s)];
    auto const scored = scored_of(s);
    for (auto t = scored.begin; t < scored.end; ++t)
      scores[static_cast<std::size_t>(s)].push_back(
          score_of(parts_of(s, t), ids[static_cast<std::size_t>(t + 1)]));
  }
  return scores;
}

template<class T>
std::int32_t next_token(std::vector<T> const& logits, Sampling const& sampling, std::int64_t s,
                        std::int64_t step) {
  if (!std::ranges::all_of(logits, [](T logit) { return std::isfinite(logit); }))
    runtime::throw_user("the logits are not finite: the weights have diverged, or overflow this precision");
  if (sampling.temperature == 0)
    return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // In descending order, equal ones by id, but only the first top_k.
  auto const num_ordered =
      sampling.top_k > 0 ? std::min(sampling.top_k, std::ssize(order)) : std::ssize(order);
  auto const is_before = [&](auto a, auto b) {
    auto const [first, second] =
        std::pair(logits[static_cast<std::size_t>(a)], logits[static_cast<std::size_t>(b)]);
    return first > second || (first == second && a < b);
  };
  if (num_ordered == std::ssize(order))
    std::ranges::sort(order, is_before); // faster than a partial sort of all
  else
    std::ranges::partial_sort(order, order.begin() + num_ordered, is_before);
  auto const largest = static_cast<double>(logits[static_cast<std::size_t>(order.front())]);
  std::vector<double> shares; // probabilities divided by the largest one, in descending order
  double sum = 0;
  for (auto const token : order)
    sum += shares.emplace_back(std::exp(
        (static_cast<double>(logits[static_cast<std::size_t>(token)]) - largest) / sampling.temperature));
  std::size_t num_kept = 0;
  for (double kept = 0; num_kept < shares.size(); ++num_kept) {
    auto const is_beyond_k = sampling.top_k > 0 && std::cmp_greater_equal(num_kept, sampling.top_k);
    if (num_kept > 0 && (is_beyond_k || kept >= sampling.top_p * sum || shares[num_kept] < sampling.min_p))
      break;
    kept += shares[num_kept];
  }
  shares.resize(num_kept);
  constexpr std::uint32_t of_completions = 1; // stream 0 is for the order of training windows
  runtime::RandomStream const stream(sampling.seed, runtime::Purpose::tokens,
                                     static_cast<std::uint64_t>(step), of_completions);
  auto const uniform = static_cast<double>(stream.bits64(static_cast<std::uint64_t>(s)) >> 11) * 0x1p-53;
  auto rest = uniform * std::accumulate(shares.begin(), shares.end(), 0.0);
  for (std::size_t i = 0; i + 1 < num_kept; ++i)
    if ((rest -= shares[i]) < 0) return order[i];
  return order[num_kept - 1];
}

template class Inference<float>;
template class Inference<double>;
template std::int32_t next_token(std::vector<float> const&, Sampling const&, std::int64_t, std::int64_t);
template std::int32_t next_token(std::vector<double> const&, Sampling const&, std::int64_t, std::int64_t);

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/transformer.hpp"

#include "models/lm/transformer/transformer_parts.hpp"
#include "pmm/rows/norms.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <cmath>

namespace orthant::models {

using runtime::DefaultExec, runtime::PhaseTimes, runtime::ScopedTimer;

template<class T>
Transformer<T>::Transformer(pmm::ProcessGrid const& grid, TransformerSettings const& settings,
                            std::int64_t num_sequences, std::int64_t sequence, std::uint64_t seed,
                            std::int64_t num_cached, std::int64_t num_passes) {
  auto const plan =
      plan_transformer(grid.shape(), grid.coordinates(), settings, num_sequences, sequence, num_passes);
  ORTHANT_REQUIRE(num_cached == 0 || plan.stage.num_stages == 1, "a cache in a pipeline of ",
                  plan.stage.num_stages, " stages");
  auto const cache = num_cached > 0 ? std::make_shared<KeyValueCache<T>>(grid, plan, num_cached) : nullptr;
  parts_ = std::make_unique<TransformerParts<T>>(grid, plan, seed, TransformerParameters<T>(grid, plan, seed),
                                                 cache);
}

template<class T>
Transformer<T>::Transformer(std::unique_ptr<TransformerParts<T>> parts) : parts_(std::move(parts)) {}

template<class T>
Transformer<T> Transformer<T>::next_token_of(Transformer const& other) {
  auto const& p = *other.parts_;
  ORTHANT_REQUIRE(p.cache != nullptr, "a network without a cache has nothing to go on with");
  auto const plan =
      plan_transformer(p.grid.shape(), p.grid.coordinates(), p.plan.settings, p.plan.num_sequences, 1);
  return Transformer(std::make_unique<TransformerParts<T>>(p.grid, plan, p.seed, p.parameters, p.cache));
}

template<class T>
Transformer<T>::~Transformer() = default;

template<class T>
runtime::Range Transformer<T>::sequences() const {
  return parts_->plan.sequences;
}
template<class T>
pmm::SequencePart Transformer<T>::tokens() const {
  return parts_->plan.tokens();
}
template<class T>
runtime::Range Transformer<T>::layers() const {
  return parts_->plan.stage.layers;
}
template<class T>
TransformerSettings const& Transformer<T>::settings() const {
  return parts_->plan.settings;
}
template<class T>
pmm::Placement const& Transformer<T>::logits_placement() const {
  return parts_->plan.logits;
}
template<class T>
std::vector<Parameter<T>>& Transformer<T>::parameters() {
  return parts_->parameters.list();
}
template<class T>
std::vector<std::size_t> Transformer<T>::gradient_order() {
  return parts_->parameters.gradient_order();
}
template<class T>
void Transformer<T>::set_tokens(std::span<std::int32_t const> ids, std::span<std::int64_t const> positions) {
  auto& embedding = parts_->now->embedding;
  embedding.set_tokens(ids);
  embedding.set_positions(positions, parts_->now->document_positions);
}
template<class T>
void Transformer<T>::set_starts(std::span<std::int64_t const> starts) {
  ORTHANT_REQUIRE(parts_->cache != nullptr, "only a network with a cache can begin at other positions");
  parts_->cache->set_starts(starts);
}
template<class T>
pmm::DistMatrix<T> const& Transformer<T>::logits_gradient() const {
  if (!parts_->head) return no_logits_;
  return parts_->head->logits; // in place: the loss reads a row before it writes it
}

template<class T>
void Transformer<T>::set_gathers_ahead(bool gathers_ahead) {
  parts_->scratch.work.set_gathers_ahead(gathers_ahead);
  parts_->scratch.experts.messages->travels_behind_work = gathers_ahead;
}

template<class T>
std::vector<PassAction> Transformer<T>::order_of_passes(std::int64_t num_passes) const {
  auto const& stage = parts_->plan.stage;
  auto const most = StagePlan::most_in_flight(parts_->plan.settings, stage.number, stage.num_stages);
  ORTHANT_REQUIRE(std::min<std::int64_t>(most, num_passes) <= stage.num_in_flight, num_passes,
                  " passes on a stage with memory for ", stage.num_in_flight);
  return schedule_of(stage, num_passes);
}
template<class T>
void Transformer<T>::begin_passes(Pass pass, std::int64_t num_passes) {
  parts_->num_passes = num_passes;
  parts_->messages.begin(pass, num_passes);
}
template<class T>
void Transformer<T>::select_batch(std::int64_t k) {
  parts_->select_batch(k);
}
template<class T>
bool Transformer<T>::has_logits() const {
  return parts_->head.has_value();
}
template<class T>
void Transformer<T>::sum_shared_gradients(DefaultExec const& exec) {
  parts_->messages.sum_over_ends(exec, parts_->parameters.embedding().weight_gradient.storage());
}

template<class T>
pmm::DistMatrix<T> const& Transformer<T>::forward(DefaultExec const& exec, Pass pass, std::uint64_t step,
                                                  PhaseTimes& phases) {
  auto& p = *parts_;
  auto& instruments = p.grid.world().instruments();
  auto const trains = pass == Pass::training;
  auto const& stage = p.plan.stage;
  p.now->dropout = {trains ? p.plan.settings.dropout : 0.0, p.seed, step};
  p.now->router = {trains, trains ? p.plan.settings.experts.noise : 0.0, p.seed, step};
  {
    ScopedTimer const timer(instruments, phases, stage.has_embedding() ? "embedding" : "pipeline");
    p.now->input = p.messages.input(exec, p.now->number);
    p.parameters.merge_adapters(exec);
    if (stage.has_embedding()) p.embed(exec);
  }
  p.begin_tapes(trains ? runtime::CallTape::State::recording : runtime::CallTape::State::off);
  p.scratch.work.begin_pass(p.now->forward_uses);
  for (auto l = stage.layers.begin; l < stage.layers.end; ++l) {
    {
      ScopedTimer const timer(instruments, phases, "attention");
      p.attend(exec, l);
    }
    ScopedTimer const timer(instruments, phases, "feed_forward");
    p.compute_feed_forward(exec, l);
    p.combine_feed_forward(exec, l);
  }
  if (!p.head) {
    p.messages.send_output(exec, p.now->number, p.output());
    return no_logits_;
  }
  ScopedTimer const timer(instruments, phases, "head");
  p.compute_logits(exec);
  return p.head->logits;
}

template<class T>
void Transformer<T>::backward(DefaultExec const& exec, PhaseTimes& phases) {
  backward_telling(exec, phases, [](std::size_t) {});
}

template<class T>
void Transformer<T>::input_backward(DefaultExec const& exec, PhaseTimes& phases) {
  parts_->now->has_begun_backward = true;
  backward_of_streams(exec, phases, [](std::size_t) {});
  parts_->keep_early_gradients(exec);
}

template<class T>
void Transformer<T>::backward_telling(DefaultExec const& exec, PhaseTimes& phases,
                                      GradientObserver const& on_complete) {
  auto& p = *parts_;
  if (p.now->has_begun_backward) {
    p.weight_backward(exec, phases, on_complete);
    return;
  }
  backward_of_streams(exec, phases, on_complete);
  p.scratch.work.finish_all();
  p.parameters.sum_small_gradients(exec);
  p.parameters.project_adapters(exec);
}

/// Everything up to the sums of gradients of weights; without the products of these if backward passes are split.
template<class T>
void Transformer<T>::backward_of_streams(DefaultExec const& exec, PhaseTimes& phases,
                                         GradientObserver const& on_complete) {
  auto& p = *parts_;
  auto& instruments = p.grid.world().instruments();
  {
    ScopedTimer const timer(instruments, phases, p.head ? "head_backward" : "pipeline");
    p.last_trained = p.now;
    p.gradient = p.messages.gradient(exec, p.now->number);
    if (p.head) p.head_backward(exec);
  }
  p.begin_tapes(runtime::CallTape::State::replaying);
  p.scratch.work.begin_pass(p.now->backward_uses);
  for (auto const& segment : segments(p.plan)) {
    if (is_computed_again(p.plan, segment.begin)) {
      ScopedTimer const timer(instruments, phases, "recompute");
      p.recompute(exec, segment);
    }
    for (auto l = segment.end; l-- > segment.begin;)
      p.backward(exec, l, phases, on_complete);
  }
  p.messages.send_gradient(exec, p.now->number);
  ScopedTimer const timer(instruments, phases, "embedding_backward");
  if (p.plan.stage.has_embedding()) p.embed_backward(exec);
}

template<class T>
std::vector<ExpertLoad> Transformer<T>::expert_loads() const {
  std::vector<ExpertLoad> loads;
  for (auto const& block : parts_->last_trained->blocks)
    if (auto const* const experts = block->feed_forward.experts()) loads.push_back(experts->load());
  return loads;
}

template<class T>
std::vector<pmm::DispatchSizes> Transformer<T>::dispatch_sizes() const {
  std::vector<pmm::DispatchSizes> sizes;
  for (auto const& block : parts_->now->blocks)
    if (auto const* const experts = block->feed_forward.experts()) sizes.push_back(experts->sizes());
  return sizes;
}

template<class T>
std::vector<pmm::DispatchSizes> Transformer<T>::largest_dispatch_sizes() const {
  std::vector<pmm::DispatchSizes> sizes;
  for (auto const& pass : parts_->in_flight) {
    std::size_t layer = 0;
    for (auto const& block : pass->blocks) {
      auto const* const experts = block->feed_forward.experts();
      if (experts == nullptr) continue;
      if (layer == sizes.size()) sizes.emplace_back();
      sizes[layer] = largest_of(sizes[layer], experts->largest_sizes());
      ++layer;
    }
  }
  return sizes;
}

/// In double precision, the sum of squares of floats is finite unless an element is not finite.
template<class T>
std::int64_t Transformer<T>::first_layer_not_finite(DefaultExec const& exec) const {
  auto const& p = *parts_;
  runtime::Vector<double> const squares("orthant::models::squared_norms",
                                        static_cast<std::size_t>(p.plan.settings.num_layers));
  for (auto l = p.plan.stage.layers.begin; l < p.plan.stage.layers.end; ++l)
    pmm::local_squared_norm(exec, p.block(l).output, squares, static_cast<std::size_t>(l));
  pmm::sum_over_group(exec, p.grid, squares);
  runtime::all_reduce(exec, p.grid.over(batch_axes(p.grid.shape())), squares); // all ranks return the same
  runtime::compat::fence(exec, "orthant::models::Transformer/the norms are read");
  auto const on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), squares);
  std::size_t first = 0;
  while (first < on_host.extent(0) && std::isfinite(on_host(first)))
    ++first;
  return static_cast<std::int64_t>(first);
}

template class Transformer<float>;
template class Transformer<double>;

} // namespace orthant::models

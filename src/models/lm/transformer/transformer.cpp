// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/transformer.hpp"

#include "models/lm/transformer/token_embedding.hpp"
#include "pmm/rows/norms.hpp"
#include "pmm/token_rows/feed_forward.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <cmath>
#include <optional>

namespace orthant::models {
namespace {

using runtime::DefaultExec, runtime::PhaseTimes, runtime::ScopedTimer;

template<class T>
std::shared_ptr<pmm::RotaryTable<T> const> make_rotary(TransformerPlan const& plan, std::int64_t length) {
  auto const& settings = plan.settings;
  if (settings.positions == Positions::learned) return nullptr;
  return std::make_shared<pmm::RotaryTable<T> const>(length, settings.head_dim(), settings.rotary_base,
                                                     settings.rotary_scaling);
}

} // namespace

template<class T>
struct Transformer<T>::Parts {
  Parts(pmm::ProcessGrid const& on, TransformerPlan const& of, std::uint64_t with_seed,
        TransformerParameters<T> with_parameters, std::shared_ptr<KeyValueCache<T>> with_cache)
      : grid(on),
        plan(of),
        seed(with_seed),
        cache(std::move(with_cache)),
        parameters(std::move(with_parameters)),
        scratch(grid, plan),
        embedding(grid, plan),
        table(grid, parameters.embedding()),
        stream(grid, plan.stream, "orthant::models::stream"),
        final_norm(grid, plan, parameters.final_norm(), make_norm_state<T>(grid, plan), scratch.row_sums,
                   scratch.work.buffers(0)),
        normed(grid, plan.stream, "orthant::models::final_normed"),
        logits(grid, plan.logits, "orthant::models::logits"),
        gradient(grid, plan.stream, "orthant::models::stream_gradient"),
        branch(grid, plan.stream, scratch.branch),
        normed_gradient(grid, plan.stream, scratch.normed_gradient),
        head(grid, head_products(plan).product, scratch.work.buffers(0)),
        head_input_back(grid, head_products(plan).input_back, scratch.work.buffers(0)),
        head_weight_back(grid, head_products(plan).weight_back, scratch.work.buffers(0)) {
    make_blocks();
    if (!plan.settings.tied_head) own_head_table.emplace(grid, parameters.head());
  }

  VocabularyTable<T>& head_table() { return own_head_table ? *own_head_table : table; }
  [[nodiscard]] pmm::RowDropout dropout_at(std::int64_t place) const {
    if (dropout.probability == 0) return {};
    return {dropout.probability, dropout.stream(place), scratch.token_ids, stream.block().columns.begin};
  }
  /// to := from + M branch.
  void add_branch(DefaultExec const& exec, std::int64_t place, pmm::DistMatrix<T> const& from,
                  pmm::DistMatrix<T> const& to) const {
    pmm::add_dropped<T>(exec, grid.passes(), from.local(), branch.local(), dropout_at(place), to.local());
  }
  /// Gradient of the branch: that of the stream times the dropout mask M.
  pmm::DistMatrix<T> const& branch_gradient(DefaultExec const& exec, std::int64_t place) const {
    if (dropout.probability == 0) return gradient;
    pmm::drop_rows<T>(exec, grid.passes(), gradient.local(), dropout_at(place), branch.local());
    return branch;
  }
  void make_blocks();
  void begin_tapes(runtime::CallTape::State state) {
    for (auto const& block : blocks)
      block->begin_tape(state);
  }
  [[nodiscard]] pmm::DistMatrix<T> const& input_of(std::int64_t layer) const {
    return layer == 0 ? stream : blocks[static_cast<std::size_t>(layer - 1)]->output;
  }
  void attend(DefaultExec const& exec, std::int64_t layer);
  void compute_feed_forward(DefaultExec const& exec, std::int64_t layer);
  void combine_feed_forward(DefaultExec const& exec, std::int64_t layer);
  void recompute(DefaultExec const& exec, runtime::Range layers);
  void backward(DefaultExec const& exec, std::int64_t layer, PhaseTimes& phases,
                GradientObserver const& on_complete);
  void embed(DefaultExec const& exec);
  void embed_backward(DefaultExec const& exec);
  void head_backward(DefaultExec const& exec);
  /// Number of complete gradients of weights: of a head that is not tied, and of the blocks.
  [[nodiscard]] std::size_t num_complete_gradients() const {
    return (own_head_table ? 1 : 0) + scratch.work.num_finished();
  }

  pmm::ProcessGrid const& grid;
  TransformerPlan plan;
  std::uint64_t seed;
  DropoutKey dropout;                      // of the last pass
  RouterPass router;                       // of the last pass
  std::shared_ptr<KeyValueCache<T>> cache; // or null
  TransformerParameters<T> parameters;
  TransformerScratch<T> scratch;
  TokenEmbedding<T> embedding;
  VocabularyTable<T> table;
  std::optional<VocabularyTable<T>> own_head_table;
  pmm::DistMatrix<T> stream; // input of the first block
  std::vector<std::unique_ptr<TransformerBlock<T>>> blocks;
  std::vector<WeightUse<T>> forward_uses, backward_uses;
  ParallelNorm<T> final_norm;
  pmm::DistMatrix<T> normed, logits, gradient;
  pmm::DistMatrix<T> branch, normed_gradient; // in scratch
  pmm::Product<T> head, head_input_back, head_weight_back;
};

/// Each block of a segment has its own memory, which the segments use one after the other. The last product of a segment is not computed
/// again, because its output is kept.
template<class T>
void Transformer<T>::Parts::make_blocks() {
  auto const& settings = plan.settings;
  auto const rotary = make_rotary<T>(plan, cache ? cache->capacity() : plan.whole_sequence());
  auto const length = layers_per_segment(settings);
  std::vector<BlockMemory<T>> memory;
  std::vector<pmm::DistMatrix<T>> passing; // memory of outputs that are not kept
  auto const new_stream = [&] { return pmm::DistMatrix<T>(grid, plan.stream, "orthant::models::stream"); };
  for (std::int64_t l = 0; l < length; ++l)
    memory.emplace_back(grid, plan, l, scratch.experts);
  for (std::int64_t l = 0; l < settings.num_layers; ++l) {
    auto const place = static_cast<std::size_t>(l % length);
    auto const keeps = keeps_output(settings, l);
    if (!keeps && passing.size() == place) passing.push_back(new_stream());
    blocks.push_back(std::make_unique<TransformerBlock<T>>(
        grid, plan, parameters.block(static_cast<std::size_t>(l)), l, memory[place],
        keeps ? new_stream() : passing[place], scratch, rotary, cache));
  }

  for (auto& block : blocks)
    block->add_forward_uses(forward_uses, false);
  for (auto const& segment : segments(settings)) {
    for (auto l = segment.begin; l < segment.end && is_computed_again(settings, l); ++l)
      blocks[static_cast<std::size_t>(l)]->add_forward_uses(backward_uses, true);
    for (auto l = segment.end; l-- > segment.begin;)
      blocks[static_cast<std::size_t>(l)]->add_backward_uses(backward_uses);
  }
}

template<class T>
void Transformer<T>::Parts::attend(DefaultExec const& exec, std::int64_t layer) {
  auto& block = *blocks[static_cast<std::size_t>(layer)];
  runtime::TapeScope const scope(grid.world().instruments(), block.tape());
  block.attention.forward(exec, dropout, input_of(layer), branch);
  add_branch(exec, dropout_stream(layer, DropoutPlace::attention), input_of(layer), block.middle);
}

template<class T>
void Transformer<T>::Parts::compute_feed_forward(DefaultExec const& exec, std::int64_t layer) {
  auto& block = *blocks[static_cast<std::size_t>(layer)];
  runtime::TapeScope const scope(grid.world().instruments(), block.tape());
  block.feed_forward.compute(exec, router, block.middle);
}

template<class T>
void Transformer<T>::Parts::combine_feed_forward(DefaultExec const& exec, std::int64_t layer) {
  auto& block = *blocks[static_cast<std::size_t>(layer)];
  runtime::TapeScope const scope(grid.world().instruments(), block.tape_of_combine());
  block.feed_forward.combine(exec, branch);
  add_branch(exec, dropout_stream(layer, DropoutPlace::feed_forward), block.middle, block.output);
}

template<class T>
void Transformer<T>::Parts::recompute(DefaultExec const& exec, runtime::Range layers) {
  for (auto l = layers.begin; l < layers.end; ++l) {
    attend(exec, l);
    compute_feed_forward(exec, l);
    if (l + 1 < layers.end) combine_feed_forward(exec, l);
  }
}

template<class T>
void Transformer<T>::Parts::backward(DefaultExec const& exec, std::int64_t layer, PhaseTimes& phases,
                                     GradientObserver const& on_complete) {
  auto& instruments = grid.world().instruments();
  auto& block = *blocks[static_cast<std::size_t>(layer)];
  {
    ScopedTimer const timer(instruments, phases, "feed_forward_backward");
    auto const& df = branch_gradient(exec, dropout_stream(layer, DropoutPlace::feed_forward));
    block.feed_forward.backward(exec, block.middle, df, gradient);
  }
  on_complete(num_complete_gradients());
  {
    ScopedTimer const timer(instruments, phases, "attention_backward");
    auto const& da = branch_gradient(exec, dropout_stream(layer, DropoutPlace::attention));
    block.attention.backward(exec, dropout, input_of(layer), da, gradient);
  }
  on_complete(num_complete_gradients());
}

template<class T>
void Transformer<T>::Parts::embed(DefaultExec const& exec) {
  table.gather(exec);
  embedding.forward(exec, table.whole(), parameters.positions().weight, stream,
                    positions_of_pass(cache, plan.sequence, scratch.document_positions));
  if (dropout.probability > 0)
    pmm::drop_rows<T>(exec, grid.passes(), stream.local(), dropout_at(0), stream.local());
}

template<class T>
void Transformer<T>::Parts::embed_backward(DefaultExec const& exec) {
  if (dropout.probability > 0)
    pmm::drop_rows<T>(exec, grid.passes(), gradient.local(), dropout_at(0), gradient.local());
  auto const update = plan.settings.tied_head ? pmm::Update::add : pmm::Update::assign;
  embedding.backward(exec, gradient, update, table.addends(), parameters.positions().weight_gradient);
  table.reduce(exec);
}

/// Backward pass of the head, with its table E[x,y] and the stream X after the final norm.
template<class T>
void Transformer<T>::Parts::head_backward(DefaultExec const& exec) {
  // dX[z,y] := sum_x dlogits[z,x] E[x,y] is reduced while dE[x,y] := dlogits[z,x]^T X[z,y] of this rank's rows is computed.
  head_input_back.start(exec, logits, head_table().whole(), normed_gradient);
  head_weight_back.run(exec, logits, normed, head_table().addends());
  head_input_back.finish();
  if (own_head_table) own_head_table->reduce(exec);
  final_norm.backward(exec, blocks.back()->output, normed_gradient, pmm::Residual::none, gradient);
}

template<class T>
Transformer<T>::Transformer(pmm::ProcessGrid const& grid, TransformerSettings const& settings,
                            std::int64_t num_sequences, std::int64_t sequence, std::uint64_t seed,
                            std::int64_t num_cached) {
  auto const plan = plan_transformer(grid.shape(), grid.coordinates(), settings, num_sequences, sequence);
  auto const cache = num_cached > 0 ? std::make_shared<KeyValueCache<T>>(grid, plan, num_cached) : nullptr;
  parts_ = std::make_unique<Parts>(grid, plan, seed, TransformerParameters<T>(grid, plan, seed), cache);
}

template<class T>
Transformer<T>::Transformer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

template<class T>
Transformer<T> Transformer<T>::next_token_of(Transformer const& other) {
  auto const& p = *other.parts_;
  ORTHANT_REQUIRE(p.cache != nullptr, "a network without a cache has nothing to go on with");
  auto const plan =
      plan_transformer(p.grid.shape(), p.grid.coordinates(), p.plan.settings, p.plan.num_sequences, 1);
  return Transformer(std::make_unique<Parts>(p.grid, plan, p.seed, p.parameters, p.cache));
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
  parts_->embedding.set_tokens(ids);
  parts_->embedding.set_positions(positions, parts_->scratch.document_positions);
}
template<class T>
void Transformer<T>::set_starts(std::span<std::int64_t const> starts) {
  ORTHANT_REQUIRE(parts_->cache != nullptr, "only a network with a cache can begin at other positions");
  parts_->cache->set_starts(starts);
}
template<class T>
pmm::DistMatrix<T> const& Transformer<T>::logits_gradient() const {
  return parts_->logits; // in place: the loss reads a row before it writes it
}

template<class T>
void Transformer<T>::set_gathers_ahead(bool gathers_ahead) {
  parts_->scratch.work.set_gathers_ahead(gathers_ahead);
  parts_->scratch.experts.messages->travels_behind_work = gathers_ahead;
}

template<class T>
pmm::DistMatrix<T> const& Transformer<T>::forward(DefaultExec const& exec, Pass pass, std::uint64_t step,
                                                  PhaseTimes& phases) {
  auto& p = *parts_;
  auto& instruments = p.grid.world().instruments();
  auto const trains = pass == Pass::training;
  p.dropout = {trains ? p.plan.settings.dropout : 0.0, p.seed, step};
  p.router = {trains, trains ? p.plan.settings.experts.noise : 0.0, p.seed, step};
  {
    ScopedTimer const timer(instruments, phases, "embedding");
    p.parameters.merge_adapters(exec);
    p.embed(exec);
  }
  p.begin_tapes(trains ? runtime::CallTape::State::recording : runtime::CallTape::State::off);
  p.scratch.work.begin_pass(p.forward_uses);
  for (std::int64_t l = 0; l < p.plan.settings.num_layers; ++l) {
    {
      ScopedTimer const timer(instruments, phases, "attention");
      p.attend(exec, l);
    }
    ScopedTimer const timer(instruments, phases, "feed_forward");
    p.compute_feed_forward(exec, l);
    p.combine_feed_forward(exec, l);
  }
  ScopedTimer const timer(instruments, phases, "head");
  p.final_norm.forward(exec, p.input_of(p.plan.settings.num_layers), p.normed);
  if (p.own_head_table) p.own_head_table->gather(exec);
  // logits[z,x] := sum_y X[z,y] E[x,y]^T
  p.head.run(exec, p.normed, p.head_table().whole(), p.logits);
  return p.logits;
}

template<class T>
void Transformer<T>::backward(DefaultExec const& exec, PhaseTimes& phases) {
  backward_telling(exec, phases, [](std::size_t) {});
}

template<class T>
void Transformer<T>::backward_telling(DefaultExec const& exec, PhaseTimes& phases,
                                      GradientObserver const& on_complete) {
  auto& p = *parts_;
  auto& instruments = p.grid.world().instruments();
  {
    ScopedTimer const timer(instruments, phases, "head_backward");
    p.head_backward(exec);
  }
  p.begin_tapes(runtime::CallTape::State::replaying);
  p.scratch.work.begin_pass(p.backward_uses);
  for (auto const& segment : segments(p.plan.settings)) {
    if (segment.end < p.plan.settings.num_layers) {
      ScopedTimer const timer(instruments, phases, "recompute");
      p.recompute(exec, segment);
    }
    for (auto l = segment.end; l-- > segment.begin;)
      p.backward(exec, l, phases, on_complete);
  }
  ScopedTimer const timer(instruments, phases, "embedding_backward");
  p.embed_backward(exec);
  p.scratch.work.finish_all();
  p.parameters.sum_small_gradients(exec);
  p.parameters.project_adapters(exec);
}

template<class T>
std::vector<ExpertLoad> Transformer<T>::expert_loads() const {
  std::vector<ExpertLoad> loads;
  for (auto const& block : parts_->blocks)
    if (auto const* const experts = block->feed_forward.experts()) loads.push_back(experts->load());
  return loads;
}

template<class T>
std::vector<pmm::DispatchSizes> Transformer<T>::dispatch_sizes() const {
  std::vector<pmm::DispatchSizes> sizes;
  for (auto const& block : parts_->blocks)
    if (auto const* const experts = block->feed_forward.experts()) sizes.push_back(experts->sizes());
  return sizes;
}

template<class T>
std::vector<pmm::DispatchSizes> Transformer<T>::largest_dispatch_sizes() const {
  std::vector<pmm::DispatchSizes> sizes;
  for (auto const& block : parts_->blocks)
    if (auto const* const experts = block->feed_forward.experts()) sizes.push_back(experts->largest_sizes());
  return sizes;
}

/// In double precision, the sum of squares of floats is finite unless an element is not finite.
template<class T>
std::int64_t Transformer<T>::first_layer_not_finite(DefaultExec const& exec) const {
  auto const& blocks = parts_->blocks;
  auto const& grid = parts_->grid;
  runtime::Vector<double> const squares("orthant::models::squared_norms", blocks.size());
  for (std::size_t l = 0; l < blocks.size(); ++l)
    pmm::local_squared_norm(exec, blocks[l]->output, squares, l);
  pmm::sum_over_group(exec, grid, squares);
  runtime::all_reduce(exec, grid.over(batch_axes(grid.shape())), squares); // all ranks return the same
  runtime::compat::fence(exec, "orthant::models::Transformer/the norms are read");
  auto const on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), squares);
  std::size_t first = 0;
  while (first < blocks.size() && std::isfinite(on_host(first)))
    ++first;
  return static_cast<std::int64_t>(first);
}

template class Transformer<float>;
template class Transformer<double>;

} // namespace orthant::models

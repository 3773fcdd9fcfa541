// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/transformer_parts.hpp"

#include "pmm/pairs/pair_layers.hpp"
#include "pmm/rows/norms.hpp"
#include "pmm/token_rows/feed_forward.hpp"

#include <utility>

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
TransformerHead<T>::TransformerHead(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                                    TransformerParameters<T> const& parameters,
                                    TransformerScratch<T>& scratch)
    : final_norm(grid, plan, parameters.final_norm(), make_norm_state<T>(grid, plan), scratch.row_sums,
                 scratch.work.buffers(0)),
      normed(grid, plan.stream, "orthant::models::final_normed"),
      logits(grid, plan.logits, "orthant::models::logits"),
      product(grid, head_products(plan).product, scratch.work.buffers(0)),
      input_back(grid, head_products(plan).input_back, scratch.work.buffers(0)),
      weight_back(grid, head_products(plan).weight_back, scratch.work.buffers(0)) {
  if (!plan.settings.tied_head) own_table.emplace(grid, parameters.head());
}

template<class T>
TransformerParts<T>::TransformerParts(pmm::ProcessGrid const& on, TransformerPlan const& of,
                                      std::uint64_t with_seed, TransformerParameters<T> with_parameters,
                                      std::shared_ptr<KeyValueCache<T>> with_cache)
    : grid(on),
      plan(of),
      seed(with_seed),
      cache(std::move(with_cache)),
      parameters(std::move(with_parameters)),
      scratch(grid, plan),
      messages(grid, plan),
      branch(grid, plan.stream, scratch.branch),
      normed_gradient(grid, plan.stream, scratch.normed_gradient) {
  if (plan.has_table()) table.emplace(grid, parameters.embedding());
  if (plan.stage.has_head()) head.emplace(grid, plan, parameters, scratch);
  if (head && plan.stage.splits_backward)
    head->table_sum =
        runtime::Vector<T>("orthant::models::TransformerHead/table_sum", head_gradient().extent(0));
  auto const rotary = make_rotary<T>(plan, cache ? cache->capacity() : plan.whole_sequence());
  while (std::ssize(in_flight) < plan.stage.num_in_flight) {
    in_flight.push_back(std::make_unique<PassInFlight<T>>(
        grid, plan, in_flight.empty() ? scratch.document_positions : make_document_positions(plan)));
    make_blocks(*in_flight.back(), rotary);
    if (plan.stage.splits_backward)
      in_flight.back()->small_gradients = runtime::Vector<T>("orthant::models::PassInFlight/small_gradients",
                                                             parameters.small_gradients().extent(0));
  }
  select_batch(0);
  last_trained = now;
  if (plan.stage.has_head()) return;
  // Gradients are reported in the order of the whole network.
  auto const& list = parameters.list();
  for (auto const place : parameters.gradient_order()) {
    if (list[place].layer <= plan.stage.layers.end) break;
    ++num_of_later_stages;
  }
}

/// Makes the blocks of a pass. Each block of a segment has its own memory, which the segments use one after the other. The last product of
/// a segment is not computed again, because its output is kept.
template<class T>
void TransformerParts<T>::make_blocks(PassInFlight<T>& pass,
                                      std::shared_ptr<pmm::RotaryTable<T> const> const& rotary) {
  auto const length = layers_per_segment(plan);
  auto const& layers = plan.stage.layers;
  std::vector<BlockMemory<T>> memory;
  std::vector<pmm::DistMatrix<T>> passing; // memory of outputs that are not kept
  auto const new_stream = [&] { return pmm::DistMatrix<T>(grid, plan.stream, "orthant::models::stream"); };
  for (std::int64_t l = 0; l < length; ++l)
    memory.emplace_back(grid, plan, l, scratch);
  for (auto l = layers.begin; l < layers.end; ++l) {
    auto const place = static_cast<std::size_t>(place_in_segment(plan, l));
    auto const keeps = keeps_output(plan, l);
    if (!keeps && passing.size() == place) passing.push_back(new_stream());
    pass.blocks.push_back(std::make_unique<TransformerBlock<T>>(
        grid, plan, parameters.block(static_cast<std::size_t>(l)), l, memory[place],
        keeps ? new_stream() : passing[place], scratch, rotary, cache));
  }

  auto const block_of_layer = [&](std::int64_t l) -> TransformerBlock<T>& {
    return *pass.blocks[static_cast<std::size_t>(l - layers.begin)];
  };
  for (auto& block : pass.blocks)
    block->add_forward_uses(pass.forward_uses, false);
  for (auto const& segment : segments(plan)) {
    for (auto l = segment.begin; l < segment.end && is_computed_again(plan, l); ++l)
      block_of_layer(l).add_forward_uses(pass.backward_uses, true);
    for (auto l = segment.end; l-- > segment.begin;)
      block_of_layer(l).add_backward_uses(pass.backward_uses);
  }
}

template<class T>
void TransformerParts<T>::select_batch(std::int64_t k) {
  now = in_flight[static_cast<std::size_t>(k) % in_flight.size()].get();
  now->number = k;
  scratch.document_positions = now->document_positions;
}

template<class T>
void TransformerParts<T>::attend(DefaultExec const& exec, std::int64_t layer) {
  auto& block = this->block(layer);
  runtime::TapeScope const scope(grid.world().instruments(), block.tape());
  block.attention.forward(exec, now->dropout, input_of(layer), branch);
  add_branch(exec, dropout_stream(layer, DropoutPlace::attention), input_of(layer), block.middle);
}

template<class T>
void TransformerParts<T>::compute_feed_forward(DefaultExec const& exec, std::int64_t layer) {
  auto& block = this->block(layer);
  runtime::TapeScope const scope(grid.world().instruments(), block.tape());
  block.feed_forward.compute(exec, now->router, block.middle);
}

template<class T>
void TransformerParts<T>::combine_feed_forward(DefaultExec const& exec, std::int64_t layer) {
  auto& block = this->block(layer);
  runtime::TapeScope const scope(grid.world().instruments(), block.tape_of_combine());
  block.feed_forward.combine(exec, branch);
  add_branch(exec, dropout_stream(layer, DropoutPlace::feed_forward), block.middle, block.output);
}

template<class T>
void TransformerParts<T>::recompute(DefaultExec const& exec, runtime::Range layers) {
  for (auto l = layers.begin; l < layers.end; ++l) {
    attend(exec, l);
    compute_feed_forward(exec, l);
    if (l + 1 < layers.end) combine_feed_forward(exec, l);
  }
}

template<class T>
void TransformerParts<T>::backward(DefaultExec const& exec, std::int64_t layer, PhaseTimes& phases,
                                   GradientObserver const& on_complete) {
  auto& instruments = grid.world().instruments();
  auto& block = this->block(layer);
  {
    ScopedTimer const timer(instruments, phases, "feed_forward_backward");
    auto const& df = branch_gradient(exec, dropout_stream(layer, DropoutPlace::feed_forward));
    block.feed_forward.backward(exec, block.middle, df, gradient);
  }
  // Without products in between, attention would overwrite the gradients of the next layer's, which are not taken yet.
  if (plan.settings.shares_gradients && !block.feed_forward.has_linears()) scratch.work.finish_all();
  on_complete(num_complete_gradients());
  {
    ScopedTimer const timer(instruments, phases, "attention_backward");
    auto const& da = branch_gradient(exec, dropout_stream(layer, DropoutPlace::attention));
    block.attention.backward(exec, now->dropout, input_of(layer), da, gradient);
  }
  on_complete(num_complete_gradients());
}

template<class T>
void TransformerParts<T>::weight_backward(DefaultExec const& exec, PhaseTimes& phases,
                                          GradientObserver const& on_complete) {
  auto& instruments = grid.world().instruments();
  static std::vector<WeightUse<T>> const no_uses; // no weights are read
  now->has_begun_backward = false;
  restore_early_gradients(exec);
  scratch.work.begin_pass(no_uses);
  auto const& layers = plan.stage.layers;
  for (auto l = layers.end; l-- > layers.begin;) {
    auto& block = this->block(l);
    {
      ScopedTimer const timer(instruments, phases, "feed_forward_weights");
      block.feed_forward.weight_backward(exec, block.middle);
    }
    on_complete(num_complete_gradients());
    {
      ScopedTimer const timer(instruments, phases, "attention_weights");
      block.attention.weight_backward(exec, now->dropout, input_of(l));
    }
    on_complete(num_complete_gradients());
  }
  scratch.work.finish_all();
  parameters.sum_small_gradients(exec);
}

/// The table is too large to be kept for each pass in flight, so its gradients are summed here.
template<class T>
void TransformerParts<T>::keep_early_gradients(DefaultExec const& exec) {
  keep_gradient(exec, grid.passes(), parameters.small_gradients(), now->small_gradients);
  if (!head) return;
  if (now->number == 0)
    keep_gradient(exec, grid.passes(), head_gradient(), head->table_sum);
  else
    pmm::add_numbers(exec, grid.passes(), head_gradient(), head->table_sum);
}

/// Gradients are summed over the passes of a step by the caller. The table has its sum already, which counts as the gradient of the last
/// pass; those before it have 0.
template<class T>
void TransformerParts<T>::restore_early_gradients(DefaultExec const& exec) {
  keep_gradient(exec, grid.passes(), now->small_gradients, parameters.small_gradients());
  if (!head) return;
  if (now->number + 1 == num_passes) {
    keep_gradient(exec, grid.passes(), head->table_sum, head_gradient());
  } else {
    grid.passes().add({"keep_gradient", 0, runtime::array_bytes(head->table_sum)});
    Kokkos::deep_copy(exec, head_gradient(), T{0});
  }
}

template<class T>
void TransformerParts<T>::embed(DefaultExec const& exec) {
  table->gather(exec);
  now->embedding.forward(exec, table->whole(), parameters.positions().weight, now->input,
                         positions_of_pass(cache, plan.sequence, scratch.document_positions.own));
  if (now->dropout.probability > 0)
    pmm::drop_rows<T>(exec, grid.passes(), now->input.local(), dropout_at(0), now->input.local());
}

template<class T>
void TransformerParts<T>::embed_backward(DefaultExec const& exec) {
  if (now->dropout.probability > 0)
    pmm::drop_rows<T>(exec, grid.passes(), gradient.local(), dropout_at(0), gradient.local());
  auto const update = plan.adds_to_head_gradient() ? pmm::Update::add : pmm::Update::assign;
  now->embedding.backward(exec, gradient, update, table->addends(), parameters.positions().weight_gradient);
  table->reduce(exec);
}

template<class T>
void TransformerParts<T>::compute_logits(DefaultExec const& exec) {
  head->final_norm.forward(exec, output(), head->normed);
  if (!plan.stage.has_embedding() || head->own_table) head_table().gather(exec);
  // logits[z,x] := sum_y X[z,y] E[x,y]^T
  head->product.run(exec, head->normed, head_table().whole(), head->logits);
}

/// Backward pass of the head, with its table E[x,y] and the stream X after the final norm.
template<class T>
void TransformerParts<T>::head_backward(DefaultExec const& exec) {
  // dX[z,y] := sum_x dlogits[z,x] E[x,y] is reduced while dE[x,y] := dlogits[z,x]^T X[z,y] of this rank's rows is computed.
  head->input_back.start(exec, head->logits, head_table().whole(), normed_gradient);
  head->weight_back.run(exec, head->logits, head->normed, head_table().addends());
  head->input_back.finish();
  if (!plan.adds_to_head_gradient()) head_table().reduce(exec);
  head->final_norm.backward(exec, output(), normed_gradient, pmm::Residual::none, gradient);
}

template struct TransformerHead<float>;
template struct TransformerHead<double>;
template struct TransformerParts<float>;
template struct TransformerParts<double>;

} // namespace orthant::models

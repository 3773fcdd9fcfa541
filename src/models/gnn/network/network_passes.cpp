// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/network/network_passes.hpp"

#include "pmm/kernels/rounding.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::ScopedTimer;

} // namespace

template<class T>
std::unique_ptr<NetworkPasses<T>> make_network_passes(pmm::ProcessGrid const& grid,
                                                      NetworkSettings const& settings,
                                                      std::shared_ptr<NetworkParameters<T>> parameters) {
  auto const make = [&]<class Number>(Number) {
    return std::make_unique<TypedNetworkPasses<Number>>(grid, settings, std::move(parameters));
  };
  if (settings.operand_format == runtime::Wire::native) return make(T());
  if constexpr (std::is_same_v<T, float>) {
    if (settings.operand_format == runtime::Wire::bf16) return make(runtime::Bf16Number());
    return make(runtime::Fp16Number());
  } else {
    ORTHANT_REQUIRE(false, "activations in 16 bits are summed in fp32");
    return nullptr;
  }
}

template<class T>
TypedNetworkPasses<T>::TypedNetworkPasses(pmm::ProcessGrid const& grid, NetworkSettings const& settings,
                                          std::shared_ptr<NetworkParameters<Sum>> parameters)
    : grid_(grid),
      settings_(settings),
      parameters_(std::move(parameters)),
      memory_(parameters_->num_layers()),
      activated_memory_(parameters_->num_layers()),
      second_memory_(parameters_->num_layers()),
      residual_memory_(parameters_->num_layers()) {}

template<class T>
void TypedNetworkPasses<T>::require_fitting(NetworkOperands<Sum> const& operands) const {
  auto const& plan = operands.plan;
  auto const num_layers = parameters_->num_layers();
  auto const fits = plan.layers.size() == num_layers && operands.adjacency.size() == num_layers &&
                    operands.output_keys.size() == num_layers;
  ORTHANT_REQUIRE(fits, plan.layers.size(), " layers, ", operands.adjacency.size(), " blocks and ",
                  operands.output_keys.size(), " keys for ", num_layers, " weights");
  auto const require_alike = [](std::string const& name, pmm::Placement const& planned,
                                NetworkLayerParameters<Sum> const& parameters) {
    auto const& there = parameters.weight.placement();
    ORTHANT_REQUIRE(planned == there, name, " needs ", planned.to_string(), "; there is ", there.to_string());
  };
  if (plan.projection) require_alike("input.weight", plan.projection->weight, parameters_->projection());
  for (std::size_t l = 0; l < num_layers; ++l) {
    if (!plan.layers[l].transforms()) continue;
    auto const& relations = plan.layers[l].relations;
    require_alike(fmt::format("layer{}.weight", l), relations ? relations->weight() : plan.layers[l].weight,
                  parameters_->layer(l));
    ORTHANT_REQUIRE(plan.layers[l].is_residual == operands.residual(l).exists(), "the residual of layer ", l);
    ORTHANT_REQUIRE(!plan.layers[l].reads_itself() || operands.self_path(l).exists(),
                    "the self weight of layer ", l);
  }
  if (plan.head) require_alike("head.weight", plan.head->weight, parameters_->head());
}

template<class T>
void TypedNetworkPasses<T>::reserve_scratch(NetworkOperands<Sum> const& operands) {
  pmm::StepPlan const step(grid_.shape(), grid_.coordinates(), sizeof(Sum));
  scratch_.reserve(scratch_of(step, plan_, settings_));
  scratch_.relations.reserve(relation_scratch_of(grid_, plan_, operands.relations, settings_.wire));
  scratch_.relation_attention.reserve(
      relation_attention_scratch_of(grid_, plan_, operands.relations, settings_.wire).lengths);
  for (std::size_t l = 0; auto const length : shared_output_lengths(step, plan_, settings_))
    static_cast<void>(memory_[l++].output.reserve(length));
  auto const* const owned = std::get_if<OwnedAdjacency<Sum>>(&operands.adjacency.front());
  scratch_.maximum.reserve(maximum_scratch_of(step, plan_, owned ? owned->sizes : pmm::CellSizes()));
  if (owned == nullptr || !owned->edges) return;
  scratch_.attention.reserve(
      attention_scratch_of(step, plan_, owned->sizes, owned->edges->block.num_edges()));
}

template<class T>
void TypedNetworkPasses<T>::rebind(NetworkOperands<Sum> operands) {
  require_fitting(operands);
  unbind(); // layers refer to memory that is about to grow
  plan_ = operands.plan;
  shares_outputs_ = shares_outputs(plan_, settings_);
  auto const* const owned = std::get_if<OwnedAdjacency<Sum>>(&operands.adjacency.front());
  needed_rows_ = owned != nullptr ? owned->needed : nullptr;
  dropped_ = operands.dropped;
  input_.bind(std::move(operands.features), plan_.features(), settings_.input_dropout(),
              room_for_features<T>(grid_, plan_, settings_, memory_));
  reserve_scratch(operands);
  make_layers(operands);
  keeps_first_aggregate_ = keeps_first_aggregate(plan_) && !input_.is_sparse();
  has_first_aggregate_ = false;
}

template<class T>
void TypedNetworkPasses<T>::make_layers(NetworkOperands<Sum> const& operands) {
  NetworkLayerOptions options{.has_bias = settings_.has_bias,
                              .needs_input_gradient = settings_.trains_features,
                              .overlaps = settings_.overlaps,
                              .shares_outputs = shares_outputs_,
                              .formats = settings_.formats()};
  if (plan_.projection)
    projection_.emplace(grid_, *plan_.projection, parameters_->projection(), options, scratch_, projected_,
                        projection_weight_);
  if (plan_.projection && settings_.trains_features) {
    auto const& features = std::as_const(plan_).features();
    auto const is_in_place = std::is_same_v<T, Sum> && reads_shards(grid_.shape(), plan_);
    auto const count = is_in_place ? 0 : pmm::block_of(grid_, features).num_padded;
    auto const& memory = feature_gradient_numbers_.reserve(count);
    if constexpr (std::is_same_v<T, Sum>)
      feature_gradient_ = {grid_, features,
                           is_in_place ? parameters_->features_gradient().storage() : memory};
    else
      feature_gradient_ = {grid_, features, memory};
  }
  make_teleport(operands);
  layers_.reserve(plan_.layers.size());
  activations_.reserve(plan_.layers.size());
  for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
    options.needs_input_gradient = needs_input_gradient(plan_, l);
    options.has_bias = settings_.has_bias && plan_.layers[l].adds_bias;
    options.is_activated = is_activated(plan_, l) && activation_of(plan_, settings_, l).is_fused();
    NetworkLayerGraph<Sum> graph{operands.adjacency[l], operands.column_ids_of(l), operands.self_path(l),
                                 teleport_, operands.relations_of(l)};
    layers_.emplace_back(grid_, plan_.layers[l], std::move(graph), parameters_->layer(l), options, scratch_,
                         memory_[l], places_of(plan_, shares_outputs_, l, scratch_, memory_));
    residuals_.emplace_back();
    if (plan_.layers[l].is_residual)
      residuals_[l] =
          std::make_unique<Residual<T>>(grid_, plan_.layers[l], operands.residual(l),
                                        plan_.layers[l].residual_map ? &parameters_->residual(l) : nullptr,
                                        options, scratch_, residual_memory_[l]);
    if (is_activated(plan_, l))
      activations_.emplace_back(
          ActivationSite<T>{layers_[l].output(), layers_[l].output_gradient(), layers_[l].workspace()},
          activation_of(plan_, settings_, l), parameters_->layer(l), operands.output_keys[l],
          plan_.layers[l].second ? nullptr : residuals_[l].get(), scratch_, activated_memory_[l]);
    make_second(operands, l, options);
  }
  if constexpr (std::is_same_v<T, Sum>)
    if (plan_.jump)
      jump_ =
          std::make_unique<Jump<T>>(grid_, plan_, operands.jump_paths, *parameters_, scratch_, jump_memory_);
  if (!plan_.head) return;
  options.needs_input_gradient = true;
  options.has_bias = settings_.has_bias;
  options.is_activated = false;
  head_.emplace(grid_, *plan_.head, parameters_->head(), options, scratch_, logits_, head_weight_);
  auto const& logits = plan_.head->output;
  head_gradient_ =
      pmm::DistMatrix<T>(grid_, logits, scratch_.middle.reserve(pmm::block_of(grid_, logits).num_padded));
}

template<class T>
void TypedNetworkPasses<T>::make_teleport(NetworkOperands<Sum> const& operands) {
  if (!plan_.teleport) return;
  if constexpr (std::is_same_v<T, Sum>) {
    auto const first = plan_.teleport->first_layer;
    auto const length = pmm::block_of(grid_, teleport_start(plan_)).num_padded;
    auto keys = settings_.dropout > 0 ? std::optional(operands.output_keys[first - 1]) : std::nullopt;
    teleport_ =
        std::make_shared<Teleport<T>>(grid_, plan_, settings_.teleport, operands.teleport_paths,
                                      std::move(keys), teleport_memory_, scratch_.middle.reserve(length));
  }
}

template<class T>
void TypedNetworkPasses<T>::make_second(NetworkOperands<Sum> const& operands, std::size_t l,
                                        NetworkLayerOptions options) {
  seconds_.emplace_back();
  auto const& plan = plan_.layers[l].second;
  if (!plan) return;
  options.has_bias = settings_.has_bias;
  auto const parts = activation_of_second(settings_);
  options.needs_input_gradient = true;
  options.is_activated = parts.is_fused();
  auto& memory = second_memory_[l];
  auto& gradient = gets_gradient_in_middle(plan_, l) ? scratch_.middle : scratch_.gradient;
  auto const count = pmm::block_of(grid_, plan->output).num_padded;
  pmm::DistMatrix<T> const z_gradient(grid_, plan->output, gradient.reserve(count));
  NetworkLinear<T> linear(grid_, *plan, parameters_->second(l), options, scratch_, memory.output,
                          memory.weight);
  NetworkActivation<T> activation({linear.output(), z_gradient, scratch_.workspace}, parts,
                                  parameters_->second(l), operands.output_keys[l], residuals_[l].get(),
                                  scratch_, memory.activated);
  seconds_.back() = std::make_unique<Second>(Second{std::move(linear), std::move(activation), z_gradient});
}

template<class T>
void TypedNetworkPasses<T>::forward_second(DefaultExec const& exec, Pass pass, std::size_t l,
                                           Dropout const& dropout) {
  if (!seconds_[l]) return;
  seconds_[l]->linear.forward(exec, activations_[l].output());
  seconds_[l]->activation.forward(exec, pass, dropout);
}

template<class T>
void TypedNetworkPasses<T>::backward_second(DefaultExec const& exec, std::size_t l, Dropout const& dropout) {
  if (!seconds_[l]) return;
  auto& second = *seconds_[l];
  second.activation.backward(exec, dropout);
  second.linear.backward(exec, activations_[l].output(), second.gradient, activations_[l].gradient());
}

/// The memory of the logits if activations have 16 bits or outputs share memory: a loss may write the gradient there.
template<class T>
auto TypedNetworkPasses<T>::logits_gradient() const -> pmm::DistMatrix<Sum> const& {
  if constexpr (std::is_same_v<T, Sum>)
    return rounded_logits_gradient();
  else
    return logits();
}

template<class T>
auto TypedNetworkPasses<T>::output_of_layer(std::size_t l) const -> pmm::DistMatrix<Sum> const& {
  ORTHANT_REQUIRE(l >= layers_.size() || keeps_output(l), "the output of layer ", l,
                  " is not kept: set NetworkSettings::keeps_outputs");
  if constexpr (std::is_same_v<T, Sum>) {
    if (l >= layers_.size()) return logits();
    return result_of(l);
  } else {
    ORTHANT_REQUIRE(l >= activations_.size(), "layer ", l, " holds its output in 16 bits");
    return logits();
  }
}

template<class T>
Dropout TypedNetworkPasses<T>::dropout_of(std::uint64_t step, std::uint32_t layer) const {
  return {dropout_in_use_, runtime::RandomStream(settings_.seed, runtime::Purpose::dropout, step, layer)};
}

template<class T>
void TypedNetworkPasses<T>::forward_input(DefaultExec const& exec, runtime::PhaseTimes& phases) {
  ScopedTimer const timer(grid_.world().instruments(), phases, "input");
  auto dropout = dropout_of(step_in_use_, 0);
  if (projection_) dropout.probability = 0;
  input_.prepare(exec, dropout);
  if (projection_ && input_.is_sparse()) projection_->forward(exec, input_.sparse());
  if (projection_ && !input_.is_sparse()) projection_->forward(exec, input_.dense());
}

template<class T>
void TypedNetworkPasses<T>::forward_layer(DefaultExec const& exec, std::size_t l) {
  if (l == 0 && has_first_aggregate_ && dropout_in_use_ == 0)
    layers_[l].forward_from_middle(exec);
  else
    with_input(l, [&](auto const& features) { layers_[l].forward(exec, features); });
  // With dropout the aggregate differs from step to step.
  if (l == 0) has_first_aggregate_ = keeps_first_aggregate_ && dropout_in_use_ == 0;
}

template<class T>
auto TypedNetworkPasses<T>::forward(DefaultExec const& exec, Pass pass, std::uint64_t step,
                                    runtime::PhaseTimes& phases) -> pmm::DistMatrix<Sum> const& {
  auto& instruments = grid_.world().instruments();
  dropout_in_use_ = pass == Pass::training ? settings_.dropout : 0.0;
  step_in_use_ = step;
  if (parameters_->are_in_one_array()) {
    ScopedTimer const timer(instruments, phases, "parameters");
    parameters_->gather(exec);
  }
  for (auto const& block : dropped_) // all layers of a pass drop the same edges
    pmm::drop_entries(exec, grid_.passes(), block, pass == Pass::training ? settings_.edge_dropout : 0,
                      {settings_.seed, runtime::Purpose::edge_dropout, step});
  forward_input(exec, phases);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if constexpr (std::is_same_v<T, Sum>)
      if (begins_teleport(l)) {
        ScopedTimer const timer(instruments, phases, "residual");
        teleport_->start(exec, output_of(l - 1), dropout_of(step, static_cast<std::uint32_t>(l)));
      }
    if (residuals_[l]) {
      // F is sent before the products, so that these hide the messages.
      ScopedTimer const timer(instruments, phases, "residual");
      with_input(l, [&](auto const& features) { residuals_[l]->start(exec, features); });
    }
    {
      ScopedTimer const timer(instruments, phases, "forward");
      layers_[l].begin_pass(pass == Pass::training ? dropout_of_coefficients(settings_, step, l) : Dropout());
      forward_layer(exec, l);
    }
    if (l < activations_.size()) {
      ScopedTimer const timer(instruments, phases, "activation");
      auto const dropout = dropout_of(step, static_cast<std::uint32_t>(l) + 1);
      activations_[l].forward(exec, pass, plan_.layers[l].drops_output ? dropout : Dropout());
      forward_second(exec, pass, l, dropout);
    }
    if constexpr (std::is_same_v<T, Sum>)
      if (jump_) {
        ScopedTimer const timer(instruments, phases, "residual");
        jump_->take(exec, l, result_of(l));
      }
  }
  if (head_) {
    ScopedTimer const timer(instruments, phases, "forward");
    forward_head(exec);
  }
  if (has_first_aggregate_ && settings_.dropout == 0 && !keeps_features(plan_))
    input_.release(); // layer 0 reads A^ F0 from now on
  return logits();
}

template<class T>
void TypedNetworkPasses<T>::forward_head(DefaultExec const& exec) {
  auto const& last = hidden(layers_.size());
  if constexpr (std::is_same_v<T, Sum>)
    if (jump_) {
      head_->forward(exec, jump_->head_input(exec, last));
      return jump_->finish_logits(exec, head_->output());
    }
  head_->forward(exec, last);
}

template<class T>
void TypedNetworkPasses<T>::backward_head(DefaultExec const& exec) {
  auto const& last = hidden(layers_.size());
  auto const& gradient = result_gradient(layers_.size() - 1);
  if constexpr (std::is_same_v<T, Sum>)
    if (jump_) {
      head_->backward(exec, jump_->head_input(last), head_gradient_, jump_->head_input_gradient(gradient));
      return jump_->start_backward(exec, head_gradient_, gradient);
    }
  head_->backward(exec, last, head_gradient_, gradient);
}

/// `gradient`: the gradient by layer 0's input.
template<class T>
void TypedNetworkPasses<T>::backward_input(DefaultExec const& exec, pmm::DistMatrix<T> const& gradient) {
  auto const& features_gradient = parameters_->features_gradient();
  if (projection_) {
    if (input_.is_sparse())
      projection_->backward(exec, input_.sparse(), gradient, feature_gradient_);
    else
      projection_->backward(exec, input_.dense(), gradient, feature_gradient_);
    if (settings_.trains_features) input_.write_gradient(exec, feature_gradient_, features_gradient);
  } else if (settings_.trains_features) {
    input_.backward(exec, dropout_of(step_in_use_, 0), gradient);
    input_.write_gradient(exec, gradient, features_gradient);
  }
}

template<class T>
void TypedNetworkPasses<T>::backward(DefaultExec const& exec, runtime::PhaseTimes& phases) {
  auto& instruments = grid_.world().instruments();
  if constexpr (!std::is_same_v<T, Sum>)
    pmm::round_numbers(exec, logits_gradient().storage(), rounded_logits_gradient().storage());
  if (head_) {
    ScopedTimer const timer(instruments, phases, "backward");
    backward_head(exec);
  }
  for (auto l = layers_.size(); l-- > 0;) {
    if constexpr (std::is_same_v<T, Sum>)
      if (jump_) {
        ScopedTimer const timer(instruments, phases, "residual");
        jump_->add_gradient(exec, l, result_of(l), result_gradient(l));
      }
    if (l < activations_.size()) {
      ScopedTimer const timer(instruments, phases, "activation");
      // The layer above wrote its dF, which is dF' of this layer, to the same memory.
      if (residuals_[l]) residuals_[l]->start_backward(exec, result_gradient(l));
      auto const dropout = dropout_of(step_in_use_, static_cast<std::uint32_t>(l) + 1);
      backward_second(exec, l, dropout);
      activations_[l].backward(exec, plan_.layers[l].drops_output ? dropout : Dropout());
    }
    ScopedTimer const timer(instruments, phases, "backward");
    auto const* gradient = &with_input(l, [&](auto const& features) -> decltype(auto) {
      auto const& of_layer = layers_[l].backward(exec, features);
      return residuals_[l] ? residuals_[l]->finish_backward(exec, features, of_layer) : of_layer;
    });
    if constexpr (std::is_same_v<T, Sum>)
      if (begins_teleport(l))
        teleport_->finish_backward(exec, *gradient, dropout_of(step_in_use_, static_cast<std::uint32_t>(l)));
    if (l == 0) backward_input(exec, *gradient);
  }
  if (parameters_->are_in_one_array()) {
    ScopedTimer const timer(instruments, phases, "parameters");
    parameters_->sum_gradients(exec);
  }
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::unique_ptr<NetworkPasses<T>> make_network_passes(                                            \
      pmm::ProcessGrid const&, NetworkSettings const&, std::shared_ptr<NetworkParameters<T>>);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What training needs of a model. A trainer runs a forward pass, a loss on the logits, a backward pass and an
// update, and knows nothing else of what it trains:
//
//   auto const& logits = network.forward(exec, Pass::training, step, phases);
//   loss.loss_and_gradient(exec, logits, network.logits_gradient(), ..);
//   network.backward(exec, phases);                                // fills the gradients of parameters()

#include "models/parameters/parameter.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/report/timer.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace orthant::models {

enum class Pass : std::uint8_t { training, evaluation };

/// Told, in a backward pass, that the gradients of the first `num_complete` parameters of gradient_order() are complete
/// once what is enqueued is done. Numbers grow.
using GradientObserver = std::function<void(std::size_t num_complete)>;

template<class T>
class Network {
 public:
  virtual ~Network() = default;

  /// The logits, a row per vertex, token or sample. Training keys dropout by `step`; evaluation has none.
  /// Adds to `phases`. Collective. Enqueues on exec.
  virtual pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                            runtime::PhaseTimes& phases) = 0;
  /// Where the loss writes its gradient by the logits.
  [[nodiscard]] virtual pmm::DistMatrix<T> const& logits_gradient() const = 0;
  /// Gradients of all parameters, from logits_gradient(). After a training pass. Collective. Enqueues on
  /// exec.
  virtual void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) = 0;
  /// The same, and tells which gradients are complete while others are not. Those that it has not told of are complete when
  /// it returns: by default all. The same calls on all ranks.
  virtual void backward_telling(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases,
                                [[maybe_unused]] GradientObserver const& on_complete) {
    backward(exec, phases);
  }

  /// In an order that is the same on all ranks. Their memory stays where it is.
  [[nodiscard]] virtual std::vector<Parameter<T>>& parameters() = 0;
  /// Places in parameters(), in the order in which a backward pass completes their gradients: by default from the last to
  /// the first. The same on all ranks.
  [[nodiscard]] virtual std::vector<std::size_t> gradient_order() {
    std::vector<std::size_t> order;
    for (auto place = parameters().size(); place-- > 0;)
      order.push_back(place);
    return order;
  }

  /// Of the formats that activations and their gradients pass through, on the wire or as operands, the one with the
  /// least range: fp16 if it is among them.
  [[nodiscard]] virtual runtime::Wire narrowest_format() const { return runtime::Wire::native; }
  /// Whether training passes differ in nothing but the parameters, from the second one on: nothing is dropped
  /// out, and no message is checked by the host. Such a pass may be recorded and replayed.
  [[nodiscard]] virtual bool repeats_itself() const { return false; }
  /// Whether backward() leaves no outputs, and a loss no logits: gradients take their places.
  [[nodiscard]] virtual bool overwrites_outputs() const { return false; }
  /// The first layer whose output is not finite anywhere, or -1: for the message when a loss is not. If outputs are overwritten,
  /// before backward(). Collective over the group.
  [[nodiscard]] virtual std::int64_t first_layer_not_finite(runtime::DefaultExec const& /*exec*/) const {
    return -1;
  }
  /// The hidden layers whose output, as the last pass left it, is positive nowhere: after ReLU nothing passes
  /// them, forward or backward. Collective over the world.
  [[nodiscard]] virtual std::vector<std::int64_t> dead_layers(runtime::DefaultExec const& /*exec*/) const {
    return {};
  }
};

} // namespace orthant::models

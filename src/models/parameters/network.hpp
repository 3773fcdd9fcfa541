#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Interface of a model that can be trained. A trainer runs a forward pass, a loss on the logits, a backward pass and an update, and
// needs to know nothing else about the model:
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

/// An entry of the schedule of a step: a pass of micro-batch k. A network may split a backward pass: input_backward computes the gradients of
/// the activations, for which the previous stage of a pipeline waits; backward then computes the gradients of the parameters alone.
struct PassAction {
  enum class Kind : std::uint8_t { forward, input_backward, backward };
  Kind kind = Kind::forward;
  std::int64_t k = 0;
  friend bool operator==(PassAction const&, PassAction const&) = default;
};

/// Called in a backward pass when the gradients of the first `num_complete` parameters of gradient_order() are complete, as soon as
/// the work enqueued so far is done. `num_complete` increases from call to call.
using GradientObserver = std::function<void(std::size_t num_complete)>;

template<class T>
class Network {
 public:
  virtual ~Network() = default;

  /// Order of the passes of a step of `num_passes` batches. Passes of each kind are in the order of the batches. By default the
  /// backward pass of a batch follows its forward pass.
  [[nodiscard]] virtual std::vector<PassAction> order_of_passes(std::int64_t num_passes) const {
    std::vector<PassAction> actions;
    for (std::int64_t k = 0; k < num_passes; ++k) {
      actions.push_back({PassAction::Kind::forward, k});
      actions.push_back({PassAction::Kind::backward, k});
    }
    return actions;
  }
  /// Begins a step of `num_passes` batches, in the order of order_of_passes(), or as many evaluation passes.
  virtual void begin_passes(Pass /*pass*/, std::int64_t /*num_passes*/) {}
  /// Selects micro-batch k: forward(), logits_gradient() and the backward passes refer to it until the next call. Called before each pass,
  /// and before the data of the batch are bound.
  virtual void select_batch(std::int64_t /*k*/) {}
  /// False on a rank that computes no logits because other ranks have the last layers. forward() then returns an empty matrix.
  [[nodiscard]] virtual bool has_logits() const { return true; }
  /// Sums gradients over ranks that share a parameter but neither its batches nor its layers. Called after all passes of a step, and after
  /// the sums over batches. Collective over the axis pipe. Enqueues on exec.
  virtual void sum_shared_gradients(runtime::DefaultExec const& /*exec*/) {}

  /// Computes the logits, one row per vertex, token or sample. Training uses dropout keyed by `step`; evaluation uses none. Adds
  /// times to `phases`. Collective. Enqueues on exec.
  virtual pmm::DistMatrix<T> const& forward(runtime::DefaultExec const& exec, Pass pass, std::uint64_t step,
                                            runtime::PhaseTimes& phases) = 0;
  /// Matrix to which the loss writes the gradient by the logits.
  [[nodiscard]] virtual pmm::DistMatrix<T> const& logits_gradient() const = 0;
  /// Computes the gradients of the activations alone, if order_of_passes() has such a pass; backward() then computes those of the parameters.
  /// Collective. Enqueues on exec.
  virtual void input_backward(runtime::DefaultExec const& /*exec*/, runtime::PhaseTimes& /*phases*/) {}
  /// Computes the gradients of all parameters from logits_gradient(). Must follow a training pass. Collective. Enqueues on exec.
  virtual void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases) = 0;
  /// The same, but calls `on_complete` when some of the gradients are complete. Gradients that are not reported are complete on return; by
  /// default nothing is reported. All ranks make the same calls. Collective. Enqueues on exec.
  virtual void backward_telling(runtime::DefaultExec const& exec, runtime::PhaseTimes& phases,
                                [[maybe_unused]] GradientObserver const& on_complete) {
    backward(exec, phases);
  }

  /// The parameters, in the same order on all ranks. Their memory does not move.
  [[nodiscard]] virtual std::vector<Parameter<T>>& parameters() = 0;
  /// Indices into parameters(), in the order in which a backward pass completes their gradients; by default from the last to the
  /// first. The same on all ranks.
  [[nodiscard]] virtual std::vector<std::size_t> gradient_order() {
    std::vector<std::size_t> order;
    for (auto place = parameters().size(); place-- > 0;)
      order.push_back(place);
    return order;
  }

  /// The format with the smallest range through which activations or their gradients pass, in messages or as operands: fp16 if it is used.
  [[nodiscard]] virtual runtime::Wire narrowest_format() const { return runtime::Wire::native; }
  /// Whether all training passes from the second one on are equal except for the parameters: no dropout, and no message that the
  /// host checks. Such a pass may be recorded and replayed.
  [[nodiscard]] virtual bool repeats_itself() const { return false; }
  /// Whether gradients overwrite outputs in backward(), and the logits in the loss.
  [[nodiscard]] virtual bool overwrites_outputs() const { return false; }
  /// First layer with an output that is not finite, or -1. Used in the message about a loss that is not finite. If outputs are
  /// overwritten, it must be called before backward(). Collective over the group.
  [[nodiscard]] virtual std::int64_t first_layer_not_finite(runtime::DefaultExec const& /*exec*/) const {
    return -1;
  }
  /// Hidden layers whose output in the last pass has no positive element. After ReLU such a layer passes on neither values nor
  /// gradients. Collective over the world.
  [[nodiscard]] virtual std::vector<std::int64_t> dead_layers(runtime::DefaultExec const& /*exec*/) const {
    return {};
  }
};

} // namespace orthant::models

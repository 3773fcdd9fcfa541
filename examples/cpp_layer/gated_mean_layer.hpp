#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A layer that the library does not have: the mean over a vertex and its neighbors, with a gate. `*` is the product element by element.
//
//   H := A^ F      V := H W      S := sigmoid(H U)      Q := V * S                     A^ = D^-1 (A + I)
//
//   dV := dQ * S                      dW := H^T dV      dH := dV W^T + dT U^T
//   dT := dQ * V * S * (1 - S)        dU := H^T dT      dF := A^^T dH
//
// W makes values of the mean, and U decides for each of them how much of it passes (gated linear unit, Dauphin et al.,
// arXiv 1612.08083; mean aggregation as in GraphSAGE, Hamilton et al., arXiv 1706.02216). The dense products run on three axes.

#include "models/gnn/operands/graph_operands.hpp"
#include "models/parameters/parameter.hpp"
#include "pmm/product/product.hpp"
#include "runtime/numbers/random.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cpp_layer {

namespace models = orthant::models;
namespace pmm = orthant::pmm;
namespace runtime = orthant::runtime;

// [docs:axes]
/// The axes of the grid that play the roles (a, b, c) of a layer. Q lies as the F of the next layer must lie, which then has
/// the roles (c, a, b): activations never move between layers.
struct Roles {
  pmm::Axis a = pmm::Axis::x, b = pmm::Axis::y, c = pmm::Axis::z;
  [[nodiscard]] Roles next() const { return {c, a, b}; }
};

/// Where the matrices of layer `number` lie. The store numbers the vertices in two orders, and layers alternate between them.
struct LayerPlan {
  std::size_t number = 0;
  Roles roles;
  std::int64_t num_vertices = 0, num_inputs = 0, num_outputs = 0;

  [[nodiscard]] bool is_even() const { return number % 2 == 0; }
  [[nodiscard]] pmm::IndexOrder order_out() const { return is_even() ? models::order_p1 : models::order_p2; }
  [[nodiscard]] pmm::IndexOrder order_in() const { return is_even() ? models::order_p2 : models::order_p1; }

  [[nodiscard]] pmm::Placement adjacency() const { // A^[c,a]
    return {{roles.c, roles.a, pmm::Storage::replicated, order_out(), order_in()},
            {num_vertices, num_vertices}};
  }
  [[nodiscard]] pmm::Placement input() const { // F[a,b]
    return {{roles.a, roles.b, pmm::Storage::replicated, order_in()}, {num_vertices, num_inputs}};
  }
  [[nodiscard]] pmm::Placement mean() const { // H[c,b]
    return {{roles.c, roles.b, pmm::Storage::replicated, order_out()}, {num_vertices, num_inputs}};
  }
  [[nodiscard]] pmm::Placement weight() const { // W[b,a], U[b,a]: each rank along c stores a piece
    return {{roles.b, roles.a, pmm::Storage::flat_sharded}, {num_inputs, num_outputs}};
  }
  [[nodiscard]] pmm::Placement output() const { // Q[c,a], V[c,a], S[c,a]
    return {{roles.c, roles.a, pmm::Storage::replicated, order_out()}, {num_vertices, num_outputs}};
  }
};
// [docs:end]

// [docs:kernels]
/// S := sigmoid(T), in place, and Q := V * S. Local, since the three matrices lie alike. Enqueues on exec.
template<class T>
void gate(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& values, pmm::DistMatrix<T> const& gates,
          pmm::DistMatrix<T> const& outputs) {
  auto* const v = values.storage().data();
  auto* const s = gates.storage().data();
  auto* const q = outputs.storage().data();
  Kokkos::parallel_for(
      "cpp_layer::gate",
      Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, outputs.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i) {
        s[i] = T{1} / (T{1} + runtime::compat::exp(-s[i]));
        q[i] = v[i] * s[i];
      });
}

/// V := dQ * S and S := dQ * V * S * (1 - S): the gradients dV and dT take the places of what they are made of.
template<class T>
void gate_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& output_gradient,
                   pmm::DistMatrix<T> const& values, pmm::DistMatrix<T> const& gates) {
  auto const* const dq = output_gradient.storage().data();
  auto* const v = values.storage().data();
  auto* const s = gates.storage().data();
  Kokkos::parallel_for(
      "cpp_layer::gate_backward",
      Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, values.block().num_stored),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const dt = dq[i] * v[i] * s[i] * (T{1} - s[i]);
        v[i] = dq[i] * s[i];
        s[i] = dt;
      });
}
// [docs:end]

// [docs:weights]
/// Draws a weight by its global indices, so that every grid has the same numbers.
template<class T>
void draw_weight(pmm::DistMatrix<T> const& weight, runtime::RandomStream const& stream) {
  auto const scale = 1 / std::sqrt(static_cast<double>(weight.extents().rows));
  pmm::fill(
      runtime::DefaultExec(), weight, KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        return static_cast<T>(
            scale * stream.normal<double>(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
      });
}
// [docs:end]

// [docs:layer]
template<class T>
class GatedMeanLayer {
 public:
  using Matrix = pmm::DistMatrix<T>;

  /// Reads this rank's block of A^ and draws the weights. Collective over the grid's group. `grid` must outlive the layer.
  GatedMeanLayer(pmm::ProcessGrid const& grid, models::AdjacencyBlocks<T>& blocks, LayerPlan const& plan,
                 std::uint64_t seed)
      : adjacency_(blocks.get(plan.adjacency(), plan.is_even())),
        mean_(grid, plan.mean(), "cpp_layer::mean"),
        mean_gradient_(grid, plan.mean(), "cpp_layer::mean_gradient"),
        values_(grid, plan.output(), "cpp_layer::values"),
        gates_(grid, plan.output(), "cpp_layer::gates"),
        output_(grid, plan.output(), "cpp_layer::output"),
        work_(std::make_shared<pmm::Workspace<T>>()),
        aggregate_(grid, pmm::Form::product, plan.adjacency(), plan.input(), plan.mean(), {}, work_),
        transform_(grid, pmm::Form::product, plan.mean(), plan.weight(), plan.output(), {}, work_),
        weight_gradient_(grid, pmm::Form::right_grad, plan.mean(), plan.output(), plan.weight(), {}, work_),
        set_mean_gradient_(grid, pmm::Form::left_grad, plan.output(), plan.weight(), plan.mean(), {}, work_),
        add_mean_gradient_(grid, pmm::Form::left_grad, plan.output(), plan.weight(), plan.mean(),
                           {.update = pmm::Update::add}, work_),
        input_gradient_(grid, pmm::Form::right_grad, plan.adjacency(), plan.mean(), plan.input(), {}, work_) {
    for (auto const* const name : {"weight", "gate"}) {
      models::Parameter<T> parameter;
      parameter.name = "layer" + std::to_string(plan.number) + "." + name;
      parameter.layer = static_cast<std::int64_t>(plan.number);
      parameter.matrix = Matrix(grid, plan.weight(), parameter.name);
      parameter.matrix_gradient = Matrix(grid, plan.weight(), parameter.name + ".gradient");
      draw_weight(parameter.matrix, {seed + parameters_.size(), runtime::Purpose::weights, 0,
                                     static_cast<std::uint32_t>(plan.number)});
      parameters_.push_back(parameter);
    }
  }

  /// The output, until the next pass. Collective over the grid's group. Enqueues on exec.
  Matrix const& forward(runtime::DefaultExec const& exec, Matrix const& input) {
    aggregate_.run(exec, adjacency_, input, mean_);            // H[c,b] := sum_a A^[c,a] F[a,b]
    transform_.run(exec, mean_, weight().matrix, values_);     // V[c,a] := sum_b H[c,b] W[b,a]
    transform_.run(exec, mean_, gate_weight().matrix, gates_); // T[c,a] := sum_b H[c,b] U[b,a]
    gate(exec, values_, gates_, output_);
    return output_;
  }

  /// Fills the gradients of the parameters, and `input_gradient` unless it is null. Once after each forward().
  void backward(runtime::DefaultExec const& exec, Matrix const& output_gradient,
                Matrix const* input_gradient) {
    gate_backward(exec, output_gradient, values_, gates_);
    auto const& value_gradient = values_;                                        // dV
    auto const& gate_gradient = gates_;                                          // dT
    weight_gradient_.run(exec, mean_, value_gradient, weight().matrix_gradient); // dW[b,a] := sum_c H^T dV
    weight_gradient_.run(exec, mean_, gate_gradient,
                         gate_weight().matrix_gradient); // dU[b,a] := sum_c H^T dT
    if (input_gradient == nullptr) return;
    set_mean_gradient_.run(exec, value_gradient, weight().matrix, mean_gradient_); // dH[c,b] := sum_a dV W^T
    add_mean_gradient_.run(exec, gate_gradient, gate_weight().matrix, mean_gradient_); // dH += sum_a dT U^T
    input_gradient_.run(exec, adjacency_, mean_gradient_, *input_gradient); // dF[a,b] := sum_c A^^T dH
  }

  [[nodiscard]] std::vector<models::Parameter<T>> const& parameters() const { return parameters_; }

 private:
  [[nodiscard]] models::Parameter<T> const& weight() const { return parameters_[0]; }
  [[nodiscard]] models::Parameter<T> const& gate_weight() const { return parameters_[1]; }

  pmm::DistSparse<T> adjacency_;
  std::vector<models::Parameter<T>> parameters_;
  Matrix mean_, mean_gradient_, values_, gates_, output_;
  std::shared_ptr<pmm::Workspace<T>> work_;
  pmm::Product<T> aggregate_, transform_, weight_gradient_, set_mean_gradient_, add_mean_gradient_,
      input_gradient_;
};
// [docs:end]

} // namespace cpp_layer

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The aggregation of one layer, H = A^ F and dF = A^^T dH, in either schedule: products on three axes (pmm3d), or exchanges between
// the owners of vertices (rows; docs/design.md 2.2). An extended aggregation adds the vertex itself (below).

#include "models/gnn/aggregation/self_term.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/layers/activation.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/formats.hpp"

#include <memory>
#include <type_traits>
#include <variant>

namespace orthant::models {

/// A^ of one layer, in the form that its schedule needs. Copies share memory.
template<class T>
using Adjacency = std::variant<pmm::DistSparse<T>, OwnedAdjacency<T>>;

/// T: the element type of activations. A^ and logits have the type Sum.
template<class T>
class Aggregation {
 public:
  using Sum = runtime::SumOf<T>;

  virtual ~Aggregation() = default;
  /// Called before a forward pass with the dropout of attention coefficients. Other aggregations ignore it.
  virtual void begin_pass(Dropout const&) {}
  /// forward: to := A^ from. backward: to := A^^T from. The operands are F and A^ F if the layer aggregates first, otherwise U and Q.
  /// Collective over the grid's group. Both enqueue on exec.
  virtual void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                       pmm::DistMatrix<T> const& to) = 0;
  virtual void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                        pmm::DistMatrix<T> const& to) = 0;
  /// forward() for a layer that transforms first and whose output is the logits. An aggregation of 16-bit numbers must have its own.
  virtual void forward_to_logits(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                                 pmm::DistMatrix<Sum> const& to) {
    if constexpr (std::is_same_v<T, Sum>)
      forward(exec, from, to);
    else
      ORTHANT_REQUIRE(false, "this aggregation has no sums of 16-bit numbers");
  }
  /// Starts sending `from` before backward() if it need not be multiplied first. `from` must not change, and the workspace must not
  /// be used, until backward().
  virtual void prefetch_backward(runtime::DefaultExec const& /*exec*/, pmm::DistMatrix<T> const& /*from*/) {}
};

/// Makes the aggregation of a layer. formats.operand must be the format of T, and the adjacency must be that of the plan's
/// schedule; 16 bits are supported on hosts only. Otherwise throws Error. `grid` must outlive the aggregation.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NumberFormats const& formats,
                 Adjacency<runtime::SumOf<T>> adjacency,
                 std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>> workspace);

/// Lets products with A^ and its adjoint store the weights of the non-zeros (pmm/spmm/local_spmm.hpp).
template<class T>
void keep_weights(Adjacency<T> const& adjacency);

/// Reserves the buffers of make_aggregation() in the workspace.
void plan_aggregation_buffers(pmm::WorkspacePlan& work, pmm::StepPlan const& step,
                              NetworkLayerPlan const& plan, NumberFormats const& formats);

// Aggregation that adds the vertex itself with a trained factor (GIN, arXiv 1810.00826, equation 4.1). R moves rows to the placement of A^
// F (self_term.hpp):
//
//   H = A^ F + (1 + epsilon) R F          dF = A^^T dH + (1 + epsilon) R^T dH          depsilon = sum_ij dH_ij (R F)_ij

using runtime::GrowingVector;

/// Borrowed views, which must stay valid as long as the aggregation.
template<class T>
struct SelfAggregationParts {
  ResidualPath<T> path; // from aggregated() to aggregate()
  pmm::DistVector<T> epsilon, epsilon_gradient;
  runtime::Vector<double> sum;  // one element
  runtime::Vector<T> brought{}; // R F; unused if it shares memory with F
  runtime::Vector<T> moved{};   // R^T dH, if its placement differs from that of dH
};

/// Adds the vertex itself to the aggregation `of_neighbours`. The gradient of epsilon is summed over the ranks, except in the schedule
/// `rows`, where it stays partial. Runs are collective over the grid's group.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_self_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                      std::unique_ptr<Aggregation<T>> of_neighbours, SelfAggregationParts<T> parts);

/// Powers of A^ in place of A^ U (TAGConv, arXiv 1710.10370, equation 3), by Horner's rule. U has the blocks U_k = F W_k side by side,
/// which is why rows must be whole:
///
///   forward     Y := U_K     Y := A^ Y + U_k, k = K-1 .. 0     Q = Y
///   backward    dU_0 = dQ    dU_k = A^^T dU_{k-1}, k = 1 .. K
///
/// Wraps the aggregation `of_neighbours`, which multiplies by A^ once. `operand`: borrowed memory, as long as the layer's output.
/// backward() overwrites the gradient that it reads. Runs are collective over the grid's group.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_power_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                       std::unique_ptr<Aggregation<T>> of_neighbours, runtime::Vector<T> operand);

} // namespace orthant::models

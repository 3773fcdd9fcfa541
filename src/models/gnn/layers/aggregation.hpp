#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// H = A^ F and dF = A^^T dH of one layer, however the schedule makes them: as products on three axes, or
// between the owners of vertices (docs/design.md 2.2).

#include "models/gnn/layers/self_term.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "models/gnn/plan/network_products.hpp"
#include "models/layers/activation.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/numbers/formats.hpp"

#include <memory>
#include <variant>

namespace orthant::models {

/// A^ of one layer, as its schedule has it. Copies share the numbers.
template<class T>
using Adjacency = std::variant<pmm::DistSparse<T>, OwnedAdjacency<T>>;

/// T: of the numbers of activations; A^ and logits are in Sum.
template<class T>
class Aggregation {
 public:
  using Sum = runtime::SumOf<T>;

  virtual ~Aggregation() = default;
  /// Ahead of a forward pass: what drops coefficients of attention. Others have none.
  virtual void begin_pass(Dropout const&) {}
  /// to := A^ from, and to := A^^T from: of the narrower side of the layer. Collective over the grid's group.
  /// Enqueue on exec.
  virtual void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                       pmm::DistMatrix<T> const& to) = 0;
  virtual void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                        pmm::DistMatrix<T> const& to) = 0;
  /// forward() of a layer that makes the logits and transforms first.
  virtual void forward_to_logits(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                                 pmm::DistMatrix<Sum> const& to) = 0;
  /// Begins to send `from` ahead of backward(), if it need not be multiplied first. Until then it must not
  /// change, and the workspace is lent.
  virtual void prefetch_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& from) = 0;
};

/// For the layer that `plan` describes. formats.operand is that of T; 16 bits need a host (Error). `grid` must outlive
/// it. Throws Error if the adjacency is not that of the plan's schedule.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NumberFormats const& formats,
                 Adjacency<runtime::SumOf<T>> adjacency,
                 std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>> workspace);

/// Has the products with A^ and its adjoint keep weights (pmm/spmm/local_spmm.hpp).
template<class T>
void keep_weights(Adjacency<T> const& adjacency);

/// What it reserves of the workspace.
void plan_aggregation_buffers(pmm::WorkspacePlan& work, pmm::StepPlan const& step,
                              NetworkLayerPlan const& plan, NumberFormats const& formats);

// An aggregation that counts the vertex itself by a factor that is learned (GIN, arXiv 1810.00826, equation 4.1). R brings
// rows to where those of A^ F lie (residual.hpp):
//
//   H = A^ F + (1 + epsilon) R F          dF = A^^T dH + (1 + epsilon) R^T dH          depsilon = sum_ij dH_ij (R F)_ij

using runtime::GrowingVector;

/// What such a layer is made with. Views are lent.
template<class T>
struct SelfAggregationParts {
  ResidualPath<T> path; // from aggregated() to aggregate()
  pmm::DistVector<T> epsilon, epsilon_gradient;
  runtime::Vector<T> brought;  // R F, if it does not lie where F stays
  runtime::Vector<T> moved;    // R^T dH, if it is elsewhere
  runtime::Vector<double> sum; // of one number
};

/// `of_neighbours` with the vertex itself. Its gradient of epsilon is summed over the ranks, unless gradients are addends
/// (schedule rows). Collective over the grid's group, as `of_neighbours`.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_self_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                      std::unique_ptr<Aggregation<T>> of_neighbours, SelfAggregationParts<T> parts);

} // namespace orthant::models

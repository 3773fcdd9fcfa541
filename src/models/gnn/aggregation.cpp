// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation.hpp"

namespace orthant::models {
namespace {

using runtime::DefaultExec;

/// Products on three axes (pmm/product/pmm.hpp).
template<class T>
class ProductAggregation final : public Aggregation<T> {
 public:
  ProductAggregation(pmm::ProcessGrid const& grid, GcnLayerProducts const& products,
                     pmm::DistSparse<T> adjacency, std::shared_ptr<pmm::Workspace<T>> const& workspace)
      : adjacency_(std::move(adjacency)),
        forward_(grid, products.aggregate, workspace),
        backward_(grid, products.aggregate_back, workspace) {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    forward_.run(exec, adjacency_, from, to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    backward_.run(exec, adjacency_, from, to);
  }
  void prefetch_backward(DefaultExec const&, pmm::DistMatrix<T> const&) override {}

 private:
  pmm::DistSparse<T> adjacency_;
  pmm::Product<T> forward_, backward_;
};

/// Between the owners of whole rows (pmm/aggregate/aggregate.hpp).
template<class T>
class OwnedAggregation final : public Aggregation<T> {
 public:
  OwnedAggregation(pmm::ProcessGrid const& grid, GcnLayerAggregates const& plans,
                   OwnedAdjacency<T> const& adjacency, std::shared_ptr<pmm::Workspace<T>> const& workspace)
      : forward_(grid, plans.forward, adjacency.forward, workspace, adjacency.needed),
        backward_(grid, plans.backward, adjacency.backward, workspace, adjacency.needed) {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    forward_.run(exec, from, to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    backward_.run(exec, from, to);
  }
  void prefetch_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from) override {
    backward_.prefetch(exec, from);
  }

 private:
  pmm::Aggregate<T> forward_, backward_;
};

} // namespace

template<class T>
std::unique_ptr<Aggregation<T>> make_aggregation(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                                                 runtime::Wire wire, Adjacency<T> adjacency,
                                                 std::shared_ptr<pmm::Workspace<T>> workspace) {
  if (auto* const owned = std::get_if<OwnedAdjacency<T>>(&adjacency)) {
    ORTHANT_REQUIRE(plan.owners, "layer ", plan.index, " has no owners of vertices");
    auto const needed = owned->needed ? owned->needed->counts() : pmm::NeededCountsOfAxes{};
    return std::make_unique<OwnedAggregation<T>>(grid, aggregates_of(plan, owned->sizes, wire, needed),
                                                 *owned, workspace);
  }
  ORTHANT_REQUIRE(!plan.owners, "layer ", plan.index, " is one of owners of vertices");
  return std::make_unique<ProductAggregation<T>>(
      grid, products_of(plan, wire), std::get<pmm::DistSparse<T>>(std::move(adjacency)), workspace);
}

void plan_aggregation_buffers(pmm::WorkspacePlan& work, pmm::StepPlan const& step, GcnLayerPlan const& plan) {
  auto const wire = runtime::Wire::native; // buffers hold numbers as they are
  if (plan.owners) {
    auto const& kept = plan.owners->kept;
    auto const plans =
        aggregates_of(plan, cells_of(step, plan), wire, kept ? kept->needed : pmm::NeededCountsOfAxes{});
    plan_buffers(work, step, plans.forward);
    plan_buffers(work, step, plans.backward);
    return;
  }
  auto const products = products_of(plan, wire);
  plan_buffers(work, step, products.aggregate);
  plan_buffers(work, step, products.aggregate_back);
}

template std::unique_ptr<Aggregation<float>> make_aggregation(pmm::ProcessGrid const&, GcnLayerPlan const&,
                                                              runtime::Wire, Adjacency<float>,
                                                              std::shared_ptr<pmm::Workspace<float>>);
template std::unique_ptr<Aggregation<double>> make_aggregation(pmm::ProcessGrid const&, GcnLayerPlan const&,
                                                               runtime::Wire, Adjacency<double>,
                                                               std::shared_ptr<pmm::Workspace<double>>);

} // namespace orthant::models

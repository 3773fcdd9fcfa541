// SPDX-License-Identifier: Apache-2.0
#include "models/aggregation/maximum_aggregation.hpp"

#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Vector;

template<class T>
class MaximumAggregation final : public Aggregation<T> {
 public:
  MaximumAggregation(pmm::ProcessGrid const& grid, MaximumSteps const& steps, EdgeOperands const& edges,
                     std::shared_ptr<pmm::Workspace<T>> const& workspace, MaximumScratch<T>& scratch,
                     MaximumPlaces& places)
      : grid_(grid),
        s_(steps),
        edges_(edges),
        values_(grid, steps.values, workspace),
        result_(grid, steps.result, workspace),
        values_memory_(scratch.values.reserve(0)),
        result_memory_(scratch.result.reserve(0)),
        memory_{scratch.found, places.reserve(steps.num_results())} {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    auto const y = values_.bring(exec, from.storage(), values_memory_);
    auto const p = s_.result_steps.has_copy() ? result_memory_ : to.storage();
    count_product();
    edge_maximum(exec, grid_.over(s_.axis), grid_.passes(), edges_.block, edges_.column_ids, s_.width, y,
                 memory_, p);
    result_.bring_back(exec, p, to.storage());
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    auto const dp = result_.bring(exec, from.storage(), result_memory_);
    auto const d = s_.values_steps.has_copy() ? values_memory_ : to.storage();
    count_product();
    edge_maximum_backward(exec, edges_.block, s_.width, memory_.places, dp, d);
    values_.bring_back(exec, d, to.storage());
  }
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<T> const& to) override {
    forward(exec, from, to);
  }
  void prefetch_backward(DefaultExec const&, pmm::DistMatrix<T> const&) override {}

 private:
  void count_product() const { grid_.world().instruments().flops.sparse += 2 * s_.counts.edges * s_.width; }

  pmm::ProcessGrid const& grid_;
  MaximumSteps s_;
  EdgeOperands edges_;
  pmm::BlockRows<T> values_, result_;
  Vector<T> values_memory_, result_memory_; // of all layers in turn
  pmm::MaximumMemory<T> memory_;            // places: of the layer
};

} // namespace

template<class T>
void MaximumScratch<T>::reserve(MaximumScratchPlan const& plan) {
  static_cast<void>(values.reserve(plan.values));
  static_cast<void>(result.reserve(plan.result));
  auto const wanted = static_cast<std::size_t>(plan.found);
  if (wanted <= found.extent(0)) return;
  auto const length = found.extent(0) == 0 ? wanted : wanted + wanted / 8;
  found = {}; // the old memory goes before the new comes
  found = runtime::Vector<runtime::ValueIndex<T>>(
      Kokkos::view_alloc("orthant::models::maximum_found", Kokkos::WithoutInitializing), length);
}

template<class T>
std::unique_ptr<Aggregation<T>>
make_maximum_aggregation(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                         OwnedAdjacency<T> const& adjacency, std::shared_ptr<pmm::Workspace<T>> workspace,
                         MaximumScratch<T>& scratch, MaximumPlaces& places) {
  auto const moves_all = !adjacency.needed || adjacency.needed->counts() == pmm::NeededCountsOfAxes{};
  ORTHANT_REQUIRE(adjacency.edges && moves_all, "the maximum of layer ", plan.index,
                  " needs a block of edges, to which all rows move");
  auto const& edges = *adjacency.edges;
  ORTHANT_REQUIRE(static_cast<std::int64_t>(edges.column_ids.extent(0)) == edges.block.num_columns,
                  "the maximum of layer ", plan.index, " needs the ids of columns");
  MaximumSteps const steps(grid.shape(), grid.coordinates(), maximum_plan_of(plan), adjacency.sizes,
                           edges.block.num_edges());
  return std::make_unique<MaximumAggregation<T>>(grid, steps, edges, std::move(workspace), scratch, places);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template struct MaximumScratch<T>;                                                                         \
  template std::unique_ptr<Aggregation<T>> make_maximum_aggregation(                                         \
      pmm::ProcessGrid const&, GcnLayerPlan const&, OwnedAdjacency<T> const&,                                \
      std::shared_ptr<pmm::Workspace<T>>, MaximumScratch<T>&, MaximumPlaces&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

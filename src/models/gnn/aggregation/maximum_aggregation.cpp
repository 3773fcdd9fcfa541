// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/maximum_aggregation.hpp"

#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

/// Steps in the schedule `rows`. They are made with 0 edges, because the sizes used here do not depend on the number of edges.
MaximumSteps steps_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer, pmm::CellSizes const& cells) {
  return {step.shape(), step.coordinates(), maximum_plan_of(layer), cells, 0};
}

MaximumScratchPlan scratch_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer,
                              pmm::CellSizes const& cells) {
  if (!layer.owners)
    return {.found = plane_maximum_of(step.shape(), step.coordinates(), layer, 0).num_results()};
  auto const s = steps_of(step, layer, cells);
  return {s.values_steps.has_copy() ? s.values_steps.num_in_block() : 0,
          s.result_steps.has_copy() ? s.result_steps.num_in_block() : 0, s.num_results()};
}

/// Cells of the whole graph.
pmm::CellSizes whole_cells_of(pmm::StepPlan const& step, NetworkLayerPlan const& layer) {
  return layer.owners ? cells_of(step, layer) : pmm::CellSizes{};
}

} // namespace

void MaximumScratchPlan::add(MaximumScratchPlan const& other) {
  values = std::max(values, other.values);
  result = std::max(result, other.result);
  found = std::max(found, other.found);
}

void MaximumScratchPlan::list(pmm::StepPlan& step) const {
  step.add_array("orthant::models::maximum_values", step.scalar_bytes(values));
  step.add_array("orthant::models::maximum_result", step.scalar_bytes(result));
  step.add_array("orthant::models::maximum_found", found * std::int64_t{sizeof(runtime::ValueIndex<double>)});
}

MaximumScratchPlan maximum_scratch_of(pmm::StepPlan const& step, NetworkPlan const& plan,
                                      pmm::CellSizes const& cells) {
  MaximumScratchPlan scratch;
  for (auto const& layer : plan.layers)
    if (layer.takes_maximum) scratch.add(scratch_of(step, layer, cells_of(layer, cells)));
  return scratch;
}

void reserve_maximum(pmm::WorkspacePlan& work, pmm::StepPlan const& step, NetworkPlan const& plan) {
  for (auto const& layer : plan.layers) {
    if (!layer.takes_maximum || !layer.owners) continue;
    auto const s = steps_of(step, layer, cells_of(step, layer));
    for (auto const* const steps : {&s.values_steps, &s.result_steps})
      reserve_block_rows(work, *steps);
  }
}

void plan_maximum_arrays(pmm::StepPlan& step, NetworkPlan const& plan) {
  MaximumScratchPlan scratch;
  for (auto const& layer : plan.layers) {
    if (!layer.takes_maximum) continue;
    auto const of_layer = scratch_of(step, layer, whole_cells_of(step, layer));
    scratch.add(of_layer);
    step.add_array("orthant::models::maximum_places",
                   of_layer.found * std::int64_t{sizeof(runtime::LocalColumn)});
  }
  scratch.list(step);
}

namespace {

using runtime::DefaultExec;
using runtime::Vector;

void count_product(pmm::ProcessGrid const& grid, std::int64_t num_edges, std::int64_t width) {
  grid.world().instruments().flops.sparse += 2 * num_edges * width;
}

/// Maximum in the schedule `rows`, between the owners of whole rows.
template<class T>
class MaximumAggregation final : public Aggregation<T> {
 public:
  MaximumAggregation(pmm::ProcessGrid const& grid, MaximumSteps const& steps, EdgeOperands const& edges,
                     Vector<T> kept, std::shared_ptr<pmm::Workspace<T>> const& workspace,
                     MaximumScratch<T>& scratch, MaximumPlaces& places)
      : grid_(grid),
        s_(steps),
        edges_(edges),
        kept_(std::move(kept)),
        values_(grid, steps.values, workspace, edges.moved_columns),
        result_(grid, steps.result, workspace, edges.moved_rows),
        values_memory_(scratch.values.reserve(0)),
        result_memory_(scratch.result.reserve(0)),
        memory_{scratch.found, places.reserve(steps.num_results())} {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    auto const y = values_.bring(exec, from.storage(), values_memory_);
    auto const p = s_.result_steps.has_copy() ? result_memory_ : to.storage();
    count_product(grid_, s_.counts.edges, s_.width);
    edge_maximum(exec, grid_.over(s_.axis), grid_.passes(), edges_.block, edges_.column_ids, s_.width, y,
                 memory_, pmm::MaximumPart::of_block, p, kept_);
    result_.bring_back(exec, p, to.storage());
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    auto const dp = result_.bring(exec, from.storage(), result_memory_);
    auto const d = s_.values_steps.has_copy() ? values_memory_ : to.storage();
    count_product(grid_, s_.counts.edges, s_.width);
    edge_maximum_backward(exec, edges_.block, s_.width, memory_.places, dp, d);
    values_.bring_back(exec, d, to.storage());
  }

 private:
  pmm::ProcessGrid const& grid_;
  MaximumSteps s_;
  EdgeOperands edges_;
  Vector<T> kept_; // if edges are dropped: 0 for dropped ones
  pmm::BlockRows<T> values_, result_;
  Vector<T> values_memory_, result_memory_; // memory that layers share
  pmm::MaximumMemory<T> memory_;            // its places are memory of the layer
};

/// Maximum in the schedule `pmm3d`, on three axes. The block and its transpose are the lists of edges by row and by column.
template<class T>
class PlaneMaximumAggregation final : public Aggregation<T> {
 public:
  PlaneMaximumAggregation(pmm::ProcessGrid const& grid, PlaneMaximumSteps const& steps, runtime::Wire wire,
                          pmm::DistSparse<T> const& adjacency, Vector<std::int64_t> column_ids,
                          MaximumScratch<T>& scratch, MaximumPlaces& places)
      : grid_(grid),
        s_(steps),
        wire_(wire),
        column_ids_(std::move(column_ids)),
        kept_(adjacency.forward().block().csr.values),
        memory_{scratch.found, places.reserve(steps.num_results())} {
    auto const& by_row = adjacency.forward().block().csr;
    auto const& by_column = adjacency.adjoint().block().csr;
    block_ = {by_row.num_rows,
              by_row.num_columns,
              by_row.row_offsets,
              by_row.columns,
              by_column.row_offsets,
              by_column.columns,
              {}};
  }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    count_product(grid_, s_.counts.edges, s_.width);
    edge_maximum(exec, grid_.over(s_.over_maxima()), grid_.passes(), block_, column_ids_, s_.width,
                 from.storage(), memory_, pmm::MaximumPart::all, to.storage(), kept_);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    count_product(grid_, s_.counts.edges, s_.width);
    edge_maximum_backward(exec, block_, s_.width, memory_.places, from.storage(), to.storage());
    if (s_.num_gradients() == 0) return;
    runtime::all_reduce(exec, grid_.over(s_.over_gradients()),
                        runtime::part_of(to.storage(), 0, s_.num_gradients()), runtime::Reduction::sum,
                        wire_);
  }

 private:
  pmm::ProcessGrid const& grid_;
  PlaneMaximumSteps s_;
  runtime::Wire wire_; // of gradients; maxima are compared as they are
  pmm::EdgeBlock block_;
  Vector<std::int64_t> column_ids_;
  Vector<T> kept_;               // if edges are dropped: 0 for dropped ones
  pmm::MaximumMemory<T> memory_; // its places are memory of the layer
};

} // namespace

template<class T>
void MaximumScratch<T>::reserve(MaximumScratchPlan const& plan) {
  static_cast<void>(values.reserve(plan.values));
  static_cast<void>(result.reserve(plan.result));
  auto const wanted = static_cast<std::size_t>(plan.found);
  if (wanted <= found.extent(0)) return;
  auto const length = found.extent(0) == 0 ? wanted : wanted + wanted / 8;
  found = {}; // free the old memory first
  found = runtime::Vector<runtime::ValueIndex<T>>(
      Kokkos::view_alloc("orthant::models::maximum_found", Kokkos::WithoutInitializing), length);
}

template<class T>
std::unique_ptr<Aggregation<T>>
make_maximum_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, runtime::Wire wire,
                         Adjacency<T> const& adjacency, Vector<std::int64_t> const& column_ids,
                         std::shared_ptr<pmm::Workspace<T>> workspace, MaximumScratch<T>& scratch,
                         MaximumPlaces& places) {
  auto const require_ids = [&](Vector<std::int64_t> const& ids, std::int64_t num_columns) {
    ORTHANT_REQUIRE(static_cast<std::int64_t>(ids.extent(0)) == num_columns, "the maximum of layer ",
                    plan.index, " needs the ids of columns");
  };
  if (!plan.owners) {
    auto const& blocks = std::get<pmm::DistSparse<T>>(adjacency);
    auto const& csr = blocks.forward().block().csr;
    require_ids(column_ids, csr.num_columns);
    auto const steps = plane_maximum_of(grid.shape(), grid.coordinates(), plan, csr.num_nonzeros());
    return std::make_unique<PlaneMaximumAggregation<T>>(grid, steps, wire, blocks, column_ids, scratch,
                                                        places);
  }
  auto const& owned = std::get<OwnedAdjacency<T>>(adjacency);
  ORTHANT_REQUIRE(owned.edges != nullptr, "the maximum of layer ", plan.index, " needs a block of edges");
  auto const& edges = *owned.edges;
  require_ids(edges.column_ids, edges.block.num_columns);
  MaximumSteps const steps(grid.shape(), grid.coordinates(),
                           maximum_plan_of(plan, needed_counts_of(owned), wire), owned.sizes,
                           edges.block.num_edges());
  return std::make_unique<MaximumAggregation<T>>(grid, steps, edges, owned.forward.block().csr.values,
                                                 std::move(workspace), scratch, places);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template struct MaximumScratch<T>;                                                                         \
  template std::unique_ptr<Aggregation<T>> make_maximum_aggregation(                                         \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, runtime::Wire, Adjacency<T> const&,                  \
      Vector<std::int64_t> const&, std::shared_ptr<pmm::Workspace<T>>, MaximumScratch<T>&, MaximumPlaces&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

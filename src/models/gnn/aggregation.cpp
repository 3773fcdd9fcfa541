// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation.hpp"

#include "pmm/kernels/rounding.hpp"

#include <type_traits>

namespace orthant::models {
namespace {

using runtime::DefaultExec;

/// Products on three axes (pmm/product/pmm.hpp). Rounded operands lie in the workspace: a product with a sparse matrix
/// has no other use for the place of its left operand.
template<class T, class Operand>
class ProductAggregation final : public Aggregation<T> {
 public:
  ProductAggregation(pmm::ProcessGrid const& grid, GcnLayerProducts const& products,
                     pmm::DistSparse<T> adjacency, std::shared_ptr<pmm::Workspace<T>> const& workspace)
      : adjacency_(std::move(adjacency)),
        workspace_(workspace),
        forward_(grid, products.aggregate, workspace),
        backward_(grid, products.aggregate_back, workspace) {
    if constexpr (rounds)
      for (auto const& product : {products.aggregate, products.aggregate_back})
        workspace->template reserve_as<Operand>(pmm::Slot::left, block_of(grid, product.right).num_padded);
  }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    forward_.run(exec, adjacency_, as_operand(exec, from), to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    backward_.run(exec, adjacency_, as_operand(exec, from), to);
  }
  void prefetch_backward(DefaultExec const&, pmm::DistMatrix<T> const&) override {}

 private:
  static constexpr bool rounds = !std::is_same_v<T, Operand>;

  pmm::DistMatrix<Operand> as_operand(DefaultExec const& exec, pmm::DistMatrix<T> const& from) const {
    if constexpr (rounds) {
      auto const numbers = workspace_->template lend_as<Operand>(pmm::Slot::left, from.block().num_padded);
      pmm::round_numbers(exec, from.storage(), numbers);
      return {from.grid(), from.placement(), numbers};
    } else {
      return from;
    }
  }

  pmm::DistSparse<T> adjacency_;
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::Product<Operand, T> forward_, backward_;
};

/// Between the owners of whole rows (pmm/aggregate/aggregate.hpp).
template<class T, class Operand>
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
  pmm::Aggregate<T, Operand> forward_, backward_;
};

template<class Operand, class T>
std::unique_ptr<Aggregation<T>> make(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                                     NumberFormats const& formats, Adjacency<T> adjacency,
                                     std::shared_ptr<pmm::Workspace<T>> workspace) {
  if (auto* const owned = std::get_if<OwnedAdjacency<T>>(&adjacency)) {
    ORTHANT_REQUIRE(plan.owners, "layer ", plan.index, " has no owners of vertices");
    auto const needed = owned->needed ? owned->needed->counts() : pmm::NeededCountsOfAxes{};
    return std::make_unique<OwnedAggregation<T, Operand>>(
        grid, aggregates_of(plan, owned->sizes, formats, needed), *owned, workspace);
  }
  ORTHANT_REQUIRE(!plan.owners, "layer ", plan.index, " is one of owners of vertices");
  return std::make_unique<ProductAggregation<T, Operand>>(
      grid, products_of(plan, formats), std::get<pmm::DistSparse<T>>(std::move(adjacency)), workspace);
}

} // namespace

template<class T>
std::unique_ptr<Aggregation<T>> make_aggregation(pmm::ProcessGrid const& grid, GcnLayerPlan const& plan,
                                                 NumberFormats const& formats, Adjacency<T> adjacency,
                                                 std::shared_ptr<pmm::Workspace<T>> workspace) {
  if (formats.operand == runtime::Wire::native)
    return make<T>(grid, plan, formats, std::move(adjacency), std::move(workspace));
  if constexpr (std::is_same_v<T, float>) {
    if (formats.operand == runtime::Wire::bf16)
      return make<runtime::Bf16Number>(grid, plan, formats, std::move(adjacency), std::move(workspace));
    return make<runtime::Fp16Number>(grid, plan, formats, std::move(adjacency), std::move(workspace));
  }
  ORTHANT_REQUIRE(false, "16-bit operands are summed in fp32");
  return nullptr;
}

void plan_aggregation_buffers(pmm::WorkspacePlan& work, pmm::StepPlan const& step, GcnLayerPlan const& plan,
                              NumberFormats const& formats) {
  if (plan.owners) {
    auto const& kept = plan.owners->kept;
    auto const plans =
        aggregates_of(plan, cells_of(step, plan), formats, kept ? kept->needed : pmm::NeededCountsOfAxes{});
    plan_buffers(work, step, plans.forward);
    plan_buffers(work, step, plans.backward);
    return;
  }
  auto const products = products_of(plan, formats);
  for (auto const& product : {products.aggregate, products.aggregate_back}) {
    plan_buffers(work, step, product);
    if (formats.operand != runtime::Wire::native)
      work.reserve(pmm::Slot::left,
                   pmm::num_holding(step.block(product.right).num_padded, step.wire_bytes(1, formats.operand),
                                    step.scalar_bytes(1)));
  }
}

template std::unique_ptr<Aggregation<float>> make_aggregation(pmm::ProcessGrid const&, GcnLayerPlan const&,
                                                              NumberFormats const&, Adjacency<float>,
                                                              std::shared_ptr<pmm::Workspace<float>>);
template std::unique_ptr<Aggregation<double>> make_aggregation(pmm::ProcessGrid const&, GcnLayerPlan const&,
                                                               NumberFormats const&, Adjacency<double>,
                                                               std::shared_ptr<pmm::Workspace<double>>);

} // namespace orthant::models

// SPDX-License-Identifier: Apache-2.0
#include "models/aggregation/aggregation.hpp"

#include <optional>
#include <type_traits>

namespace orthant::models {
namespace {

using runtime::Bf16Number;
using runtime::DefaultExec;
using runtime::Fp16Number;

/// Products on three axes (pmm/product/pmm.hpp).
template<class T>
class ProductAggregation final : public Aggregation<T> {
 public:
  using Sum = runtime::SumOf<T>;

  ProductAggregation(pmm::ProcessGrid const& grid, NetworkLayerProducts const& products,
                     pmm::DistSparse<Sum> adjacency, std::shared_ptr<pmm::Workspace<Sum>> const& workspace)
      : adjacency_(std::move(adjacency)),
        backward_(grid, products.aggregate_back, workspace) {
    if (products.aggregate.options.result_format == runtime::format_of<T>)
      forward_.emplace(grid, products.aggregate, workspace);
    else
      to_logits_.emplace(grid, products.aggregate, workspace);
  }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    forward_.value().run(exec, adjacency_, from, to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    backward_.run(exec, adjacency_, from, to);
  }
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<Sum> const& to) override {
    if constexpr (std::is_same_v<T, Sum>)
      forward(exec, from, to);
    else
      to_logits_.value().run(exec, adjacency_, from, to);
  }
  void prefetch_backward(DefaultExec const&, pmm::DistMatrix<T> const&) override {}

 private:
  pmm::DistSparse<Sum> adjacency_;
  std::optional<pmm::Product<T>> forward_;        // one of them
  std::optional<pmm::Product<T, Sum>> to_logits_; // of 16-bit numbers
  pmm::Product<T> backward_;
};

/// Between the owners of whole rows (pmm/aggregate/aggregate.hpp).
template<class T>
class OwnedAggregation final : public Aggregation<T> {
 public:
  using Sum = runtime::SumOf<T>;

  OwnedAggregation(pmm::ProcessGrid const& grid, NetworkLayerAggregates const& plans,
                   OwnedAdjacency<Sum> const& adjacency,
                   std::shared_ptr<pmm::Workspace<Sum>> const& workspace)
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
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<Sum> const& to) override {
    forward_.run(exec, from, to);
  }
  void prefetch_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from) override {
    backward_.prefetch(exec, from);
  }

 private:
  pmm::Aggregate<T> forward_, backward_;
};

} // namespace

template<class T>
std::unique_ptr<Aggregation<T>>
make_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NumberFormats const& formats,
                 Adjacency<runtime::SumOf<T>> adjacency,
                 std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>> workspace) {
  using Sum = runtime::SumOf<T>;
  if (auto* const owned = std::get_if<OwnedAdjacency<Sum>>(&adjacency)) {
    ORTHANT_REQUIRE(plan.owners, "layer ", plan.index, " has no owners of vertices");
    auto const needed = owned->needed ? owned->needed->counts() : pmm::NeededCountsOfAxes{};
    return std::make_unique<OwnedAggregation<T>>(grid, aggregates_of(plan, owned->sizes, formats, needed),
                                                 *owned, workspace);
  }
  ORTHANT_REQUIRE(!plan.owners, "layer ", plan.index, " is one of owners of vertices");
  return std::make_unique<ProductAggregation<T>>(
      grid, products_of(plan, formats), std::get<pmm::DistSparse<Sum>>(std::move(adjacency)), workspace);
}

template<class T>
void keep_weights(Adjacency<T> const& adjacency) {
  DefaultExec const exec;
  if (auto const* const owned = std::get_if<OwnedAdjacency<T>>(&adjacency)) {
    owned->forward.keep_weights(exec);
    owned->backward.keep_weights(exec);
  } else {
    auto const& blocks = std::get<pmm::DistSparse<T>>(adjacency);
    blocks.forward().keep_weights(exec);
    blocks.adjoint().keep_weights(exec);
  }
}

void plan_aggregation_buffers(pmm::WorkspacePlan& work, pmm::StepPlan const& step,
                              NetworkLayerPlan const& plan, NumberFormats const& formats) {
  if (plan.owners) {
    auto const& kept = plan.owners->kept;
    auto const plans =
        aggregates_of(plan, cells_of(step, plan), formats, kept ? kept->needed : pmm::NeededCountsOfAxes{});
    plan_buffers(work, step, plans.forward);
    plan_buffers(work, step, plans.backward);
    return;
  }
  auto const products = products_of(plan, formats);
  plan_buffers(work, step, products.aggregate);
  plan_buffers(work, step, products.aggregate_back);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::unique_ptr<Aggregation<T>> make_aggregation(                                                 \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, NumberFormats const&, Adjacency<runtime::SumOf<T>>,  \
      std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>>);
template void keep_weights(Adjacency<float> const&);
template void keep_weights(Adjacency<double> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(Bf16Number)
ORTHANT_INSTANTIATE(Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

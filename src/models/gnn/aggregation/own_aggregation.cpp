// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/own_aggregation.hpp"

#include <type_traits>

namespace orthant::models {
namespace {

constexpr auto kept_label = "orthant::models::own_convolution";

/// Placements of the kept matrices, those of inputs first.
std::vector<pmm::Placement> kept_placements(NetworkLayerPlan const& layer) {
  std::vector<pmm::Placement> all(static_cast<std::size_t>(layer.own->num_kept_inputs), layer.aggregated());
  all.insert(all.end(), static_cast<std::size_t>(layer.own->num_kept_results), layer.aggregate());
  return all;
}

} // namespace

void plan_own_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer) {
  if (!layer.own) return;
  for (auto const& placement : kept_placements(layer))
    plan_matrix(step, placement, kept_label);
}

template<class T>
std::unique_ptr<Aggregation<T>>
make_own_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                     std::unique_ptr<Aggregation<T>> of_neighbors, OwnMemory<T>& memory) {
  OwnAggregationParts<T> parts{grid, plan, std::move(of_neighbors), {}, {}};
  auto const placements = kept_placements(plan);
  while (memory.size() < placements.size())
    memory.emplace_back(kept_label);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    auto const length = pmm::block_of(grid, placements[i]).num_padded;
    auto& kept =
        static_cast<std::int64_t>(i) < plan.own->num_kept_inputs ? parts.kept_inputs : parts.kept_results;
    kept.emplace_back(grid, placements[i], memory[i].reserve(length));
  }
  if constexpr (std::is_same_v<T, float>)
    return plan.own->make_float(std::move(parts));
  else
    return plan.own->make_double(std::move(parts));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::unique_ptr<Aggregation<T>> make_own_aggregation(                                             \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, std::unique_ptr<Aggregation<T>>, OwnMemory<T>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

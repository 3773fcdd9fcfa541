// SPDX-License-Identifier: Apache-2.0
#include "models/lm/plan/expert_plan.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace orthant::models {

std::vector<std::int64_t> balanced_places(std::span<std::int64_t const> loads, int num_ranks) {
  auto const num_experts = std::ssize(loads);
  ORTHANT_REQUIRE(num_experts % num_ranks == 0, num_experts, " experts on ", num_ranks, " ranks");
  auto const load_of = [&](std::int64_t expert) { return loads[static_cast<std::size_t>(expert)]; };
  std::vector<std::int64_t> order(loads.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, std::greater<>(), load_of);

  struct Rank {
    std::int64_t load = 0;
    std::vector<std::int64_t> experts;
  };
  auto const per_rank = num_experts / num_ranks;
  std::vector<Rank> ranks(static_cast<std::size_t>(num_ranks));
  for (auto const expert : order) {
    Rank* least = nullptr;
    for (auto& rank : ranks)
      if (std::ssize(rank.experts) < per_rank && (least == nullptr || rank.load < least->load)) least = &rank;
    least->load += load_of(expert);
    least->experts.push_back(expert);
  }

  std::vector<std::int64_t> places(loads.size());
  std::int64_t next = 0;
  for (auto& rank : ranks) {
    std::ranges::sort(rank.experts);
    for (auto const expert : rank.experts)
      places[static_cast<std::size_t>(expert)] = next++;
  }
  if (imbalance_of_ranks(loads, places, num_ranks) >= imbalance_of_ranks(loads, {}, num_ranks))
    std::iota(places.begin(), places.end(), std::int64_t{0});
  return places;
}

double imbalance_of_ranks(std::span<std::int64_t const> loads, std::span<std::int64_t const> places,
                          int num_ranks) {
  auto const per_rank = std::ssize(loads) / num_ranks;
  std::vector<std::int64_t> sums(static_cast<std::size_t>(num_ranks), 0);
  for (std::size_t e = 0; e < loads.size(); ++e) {
    auto const place = places.empty() ? static_cast<std::int64_t>(e) : places[e];
    sums[static_cast<std::size_t>(place / per_rank)] += loads[e];
  }
  auto const sum = std::reduce(sums.begin(), sums.end());
  if (sum == 0) return 1;
  return static_cast<double>(*std::ranges::max_element(sums)) * num_ranks / static_cast<double>(sum);
}

pmm::Range own_experts(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                       ExpertSettings const& settings) {
  if (settings.num_experts % shape.expert != 0)
    runtime::throw_user(
        "--experts {} cannot be dealt to the {} ranks of --expert-axis evenly; take a multiple",
        settings.num_experts, shape.expert);
  auto const per_rank = settings.num_experts / shape.expert;
  return {coordinates.expert * per_rank, (coordinates.expert + 1) * per_rank};
}

ExpertArray::ExpertArray(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                         ExpertPlan const& plan, pmm::Placement const& of_expert)
    : own(plan.own) {
  auto const block = block_of(shape, coordinates, of_expert);
  num_rows = block.rows.size();
  num_columns = block.columns.size();
  auto const num_pieces = std::int64_t{shape.z};
  auto const size = (own.size() * block_size() + num_pieces - 1) / num_pieces;
  num_gathered = size * num_pieces;
  piece = {coordinates.z * size, (coordinates.z + 1) * size};
}

pmm::Range ExpertArray::own_piece(std::int64_t place) const {
  if (place < own.begin || place >= own.end) return {0, 0};
  auto const begin = (place - own.begin) * block_size();
  auto const first = std::clamp(piece.begin - begin, std::int64_t{0}, block_size());
  return {first, std::clamp(piece.end - begin, first, block_size())};
}

std::int64_t ExpertArray::begin_of(std::int64_t place) const {
  if (place < own.begin || place >= own.end) return 0;
  return std::clamp((place - own.begin) * block_size() - piece.begin, std::int64_t{0}, piece.size());
}

pmm::Placement placement_of(ExpertArray const& array, pmm::Placement of_expert, std::int64_t place) {
  of_expert.own_piece = array.own_piece(place);
  return of_expert;
}

double largest_imbalance(ExpertSettings const& settings, int num_owners) {
  // A token chooses an expert at most once, so a rank gets at most min(K, E/G) of the K choices of each token.
  return std::max(1.0, std::min(static_cast<double>(num_owners), static_cast<double>(settings.num_experts) /
                                                                     static_cast<double>(settings.top_k)));
}

double assumed_imbalance(ExpertSettings const& settings, int num_owners, bool is_training) {
  auto assumed = std::min(settings.planned_imbalance.value_or(1), largest_imbalance(settings, num_owners));
  if (is_training && settings.capacity) assumed = std::min(assumed, *settings.capacity);
  return std::max(1.0, assumed);
}

ExpertPlan plan_for_memory(ExpertPlan plan, pmm::GridShape const& shape) {
  auto& settings = plan.settings;
  if (settings.is_on() && !settings.planned_imbalance)
    settings.planned_imbalance = (1 + largest_imbalance(settings, shape.size(plan.axes.owners))) / 2;
  return plan;
}

pmm::DispatchSizes sizes_of(pmm::StepPlan const& step, ExpertPlan const& plan, std::int64_t layer,
                            bool is_training) {
  if (!plan.loads.empty()) return plan.loads.at(plan.place_of(layer));
  auto const& settings = plan.settings;
  auto const num_owners = step.shape().size(plan.axes.owners);
  auto const balanced = balanced_sizes(step.shape(), step.coordinates(), plan.axes,
                                       step.block(plan.stream).rows.size(), settings.top_k);
  return fullest_sizes(balanced, num_owners, assumed_imbalance(settings, num_owners, is_training));
}

} // namespace orthant::models

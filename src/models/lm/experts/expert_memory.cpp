// SPDX-License-Identifier: Apache-2.0
#include "models/lm/experts/expert_memory.hpp"

#include <algorithm>
#include <string>

namespace orthant::models {
namespace {

constexpr auto routing_label = "orthant::models::ExpertMemory/routing";

/// Lengths of the arrays that do not change.
struct FixedLengths {
  FixedLengths(pmm::GridShape const& shape, pmm::Coordinates const& coordinates, ExpertPlan const& plan)
      : num_rows(block_of(shape, coordinates, plan.stream).rows.size()),
        num_experts(plan.settings.num_experts),
        num_choices(num_rows * plan.settings.top_k) {
    ExpertArray const up(shape, coordinates, plan, plan.up), down(shape, coordinates, plan, plan.down);
    if (shape.z > 1) gathered = std::max(up.num_gathered, down.num_gathered);
  }
  std::int64_t num_rows, num_experts, num_choices, gathered = 0;
};

pmm::DispatchSizes largest_sizes_of(pmm::StepPlan const& step, ExpertPlan const& plan,
                                    std::vector<std::int64_t> const& layers, bool is_training) {
  pmm::DispatchSizes largest;
  for (auto const layer : layers)
    largest = largest_of(largest, sizes_of(step, plan, layer, is_training));
  return largest;
}

template<class T>
runtime::Vector<T> make_array(std::string const& label, std::int64_t length) {
  return runtime::Vector<T>(label, static_cast<std::size_t>(length));
}

} // namespace

template<class T>
ExpertScratch<T>::ExpertScratch(pmm::ProcessGrid const& grid, ExpertPlan const& plan) {
  if (!plan.settings.is_on()) return;
  FixedLengths const lengths(grid.shape(), grid.coordinates(), plan);
  logits =
      runtime::Matrix<T>("orthant::models::ExpertScratch/logits", static_cast<std::size_t>(lengths.num_rows),
                         static_cast<std::size_t>(lengths.num_experts));
  weight_gradient = make_array<T>("orthant::models::ExpertScratch/weight_gradient", lengths.num_choices);
  gathered = make_array<T>("orthant::models::ExpertScratch/gathered", lengths.gathered);
  addends = make_array<T>("orthant::models::ExpertScratch/addends", lengths.gathered);
}

template<class T>
ExpertMemory<T>::ExpertMemory(pmm::ProcessGrid const& grid, ExpertPlan const& plan,
                              ExpertScratch<T> const& scratch)
    : routing(routing_label, block_of(grid, plan.stream).rows.size(), plan.settings.num_experts,
              plan.settings.top_k),
      shares(make_array<T>("orthant::models::ExpertMemory/shares", plan.settings.num_experts)),
      dispatch(grid, plan.axes, plan.settings.num_experts, scratch.messages) {}

void plan_expert_scratch(pmm::StepPlan& step, ExpertPlan const& plan,
                         std::vector<std::int64_t> const& layers) {
  if (!plan.settings.is_on()) return;
  FixedLengths const lengths(step.shape(), step.coordinates(), plan);
  auto const add = [&](char const* label, std::int64_t length) {
    step.add_array(std::string("orthant::models::ExpertScratch/") + label, step.scalar_bytes(length));
  };
  add("logits", lengths.num_rows * lengths.num_experts);
  add("weight_gradient", lengths.num_choices);
  add("gathered", lengths.gathered);
  add("addends", lengths.gathered);
  auto const sizes = largest_sizes_of(step, plan, layers, false); // evaluations fill it, too
  auto const trained = largest_sizes_of(step, plan, layers, true);
  auto const hidden = step.block(plan.stream).columns.size();
  add("rows", sizes.num_arrived * hidden);
  add("inner", trained.num_arrived * step.block(plan.down).rows.size());
  add("outer", trained.num_arrived * step.block(plan.up).columns.size());
  if (travels(step.shape(), plan.axes)) add("returned", sizes.num_sent * hidden);
  plan_dispatch_buffers(step, plan.axes, sizes, hidden);
}

void plan_expert_memory(pmm::StepPlan& step, ExpertPlan const& plan,
                        std::vector<std::int64_t> const& layers) {
  auto const sizes = largest_sizes_of(step, plan, layers, false); // evaluations fill it, too
  auto const hidden = step.block(plan.stream).columns.size();
  auto const add = [&](char const* label, std::int64_t length) {
    step.add_array(std::string("orthant::models::ExpertMemory/") + label, step.scalar_bytes(length));
  };
  plan_routing(step, routing_label, step.block(plan.stream).rows.size(), plan.settings.num_experts,
               plan.settings.top_k);
  add("shares", plan.settings.num_experts);
  plan_dispatch_arrays(step, sizes);
  add("arrived", sizes.num_arrived * hidden);
  add("expanded", sizes.num_arrived * step.block(plan.up).columns.size());
  add("activated", sizes.num_arrived * step.block(plan.down).rows.size());
  add("returned", sizes.num_sent * hidden);
}

template struct ExpertScratch<float>;
template struct ExpertScratch<double>;
template struct ExpertMemory<float>;
template struct ExpertMemory<double>;

} // namespace orthant::models

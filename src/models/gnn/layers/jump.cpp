// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/jump.hpp"

#include "models/layers/joined_numbers.hpp"

#include <algorithm>

namespace orthant::models {

using runtime::DefaultExec;

namespace {

bool moves_any(NetworkPlan const& plan) {
  for (std::size_t k = 0; k < plan.jump->layers.size(); ++k)
    if (plan.jump_source(k) != plan.jump_target()) return true;
  return false;
}
/// Two questions about memory: whether moved numbers need an array besides their sum or maximum, and whether their source needs one.
bool needs_moved(NetworkPlan const& plan) {
  return plan.jump->kind == JumpKind::max || moves_any(plan);
}
bool needs_source(NetworkPlan const& plan) {
  return plan.jump->kind == JumpKind::cat || moves_any(plan);
}

} // namespace

void plan_jump_arrays(pmm::StepPlan& step, NetworkPlan const& plan) {
  if (!plan.jump) return;
  auto const target = step.block(plan.jump_target()).num_padded;
  step.add_array("orthant::models::jump", step.scalar_bytes(target));
  step.add_array("orthant::models::jump_gradient", step.scalar_bytes(target));
  if (needs_moved(plan)) step.add_array("orthant::models::jump_moved", step.scalar_bytes(target));
  std::int64_t num_source = 0;
  for (std::size_t k = 0; k < plan.jump->layers.size(); ++k)
    num_source = std::max(num_source, step.block(plan.jump_source(k)).num_padded);
  if (needs_source(plan)) step.add_array("orthant::models::jump_source", step.scalar_bytes(num_source));
  if (plan.jump->kind == JumpKind::max)
    step.add_array("orthant::models::jump_winners", target * std::int64_t{sizeof(std::uint16_t)});
}

void plan_jump_path_arrays(pmm::StepPlan& step, NetworkPlan const& plan, NetworkEpochTraits const& traits) {
  for (std::size_t k = 0; plan.jump && k < plan.jump->layers.size(); ++k) {
    auto const& source = plan.jump_source(k);
    auto const& target = plan.jump_target();
    if (source == target) continue;
    if (plan.layers.front().owners)
      plan_selection_arrays(step, source, target);
    else
      for (auto const is_backward : {false, true})
        plan_relayout_arrays(step, traits.jump_sizes(plan, k, is_backward));
  }
}

void plan_jump_buffers(NetworkScratchPlan& scratch, pmm::StepPlan const& step, NetworkPlan const& plan) {
  if (!plan.jump) return;
  for (auto const& map : plan.jump->maps) {
    auto const products = residual_products_of(map, {});
    for (auto const& product : {products.product, products.input_back, products.weight_back})
      plan_buffers(scratch.workspace, step, product);
  }
}

template<class T>
Jump<T>::Jump(pmm::ProcessGrid const& grid, NetworkPlan const& plan, std::vector<ResidualPath<T>> paths,
              NetworkParameters<T> const& parameters, NetworkScratch<T>& scratch, JumpMemory<T>& memory)
    : plan_(*plan.jump) {
  auto const lent = [&](pmm::Placement const& placement, GrowingVector<T>& numbers) {
    return pmm::DistMatrix<T>(grid, placement, numbers.reserve(pmm::block_of(grid, placement).num_padded));
  };
  ORTHANT_REQUIRE(paths.size() == layers().size(), paths.size(), " ways of ", layers().size(), " layers");
  auto const& target = plan.jump_target();
  joined_ = lent(target, memory.joined);
  gradient_ = lent(target, memory.gradient);
  if (needs_moved(plan)) moved_ = lent(target, memory.moved);
  if (plan_.kind == JumpKind::max) winners_ = memory.winners.reserve(pmm::block_of(grid, target).num_padded);
  std::int64_t num_source = 0;
  for (std::size_t k = 0; k < layers().size(); ++k)
    num_source = std::max(num_source, pmm::block_of(grid, plan.jump_source(k)).num_padded);
  if (needs_source(plan))
    static_cast<void>(memory.source.reserve(num_source)); // memory of every layer's source
  for (std::size_t k = 0; k < layers().size(); ++k) {
    Source source{std::move(paths[k]), {}, {}};
    if (needs_source(plan)) source.source = lent(plan.jump_source(k), memory.source);
    if (concatenates()) {
      auto const products = residual_products_of(plan.jump->maps[k], {});
      auto const& of_map = parameters.jump(layers()[k]);
      source.map.emplace(Map{of_map.weight, of_map.weight_gradient,
                             pmm::Product<T>(grid, products.product, scratch.workspace),
                             pmm::Product<T>(grid, products.weight_back, scratch.workspace),
                             pmm::Product<T>(grid, products.input_back, scratch.workspace)});
    }
    sources_.push_back(std::move(source));
  }
}

template<class T>
void Jump<T>::join(DefaultExec const& exec, std::size_t number, pmm::DistMatrix<T> const& numbers) const {
  if (plan_.kind == JumpKind::max) return join_maximum(exec, number, numbers, joined_, winners_);
  if (number == 0) return copy_numbers(exec, numbers, joined_);
  models::add(exec, joined_, numbers, joined_);
}

template<class T>
void Jump<T>::take(DefaultExec const& exec, std::size_t l, pmm::DistMatrix<T> const& result) {
  auto const k = plan_.number_of(l);
  if (!k) return;
  auto& [path, map, source] = sources_[*k];
  // V[a,c] := sum_b F[a,b] W[b,c]
  if (map) map->product.run(exec, result, map->weight, source);
  auto const& from = map ? source : result;
  if (!path.is_local) path.bring(exec, from, moved_);
  join(exec, *k, path.is_local ? from : moved_);
}

template<class T>
pmm::DistMatrix<T> const& Jump<T>::head_input(DefaultExec const& exec, pmm::DistMatrix<T> const& last) {
  if (concatenates()) return last;
  join(exec, layers().size(), last);
  if (plan_.kind == JumpKind::mean)
    scale_numbers(exec, 1.0 / static_cast<double>(layers().size() + 1), joined_);
  return joined_;
}

template<class T>
void Jump<T>::finish_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& logits) const {
  if (concatenates() && !layers().empty()) models::add(exec, logits, joined_, logits);
}

template<class T>
void Jump<T>::start_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& logits_gradient,
                             pmm::DistMatrix<T> const& last) {
  if (concatenates()) return copy_numbers(exec, logits_gradient, gradient_);
  if (plan_.kind == JumpKind::max) return share_of_maximum(exec, layers().size(), gradient_, winners_, last);
  scale_numbers(exec, 1.0 / static_cast<double>(layers().size() + 1), gradient_);
  copy_numbers(exec, gradient_, last);
}

template<class T>
void Jump<T>::add_gradient(DefaultExec const& exec, std::size_t l, pmm::DistMatrix<T> const& result,
                           pmm::DistMatrix<T> const& gradient) {
  auto const k = plan_.number_of(l);
  if (!k) return;
  auto& [path, map, source] = sources_[*k];
  if (plan_.kind == JumpKind::max) share_of_maximum(exec, *k, gradient_, winners_, moved_);
  auto const& share = plan_.kind == JumpKind::max ? moved_ : gradient_;
  if (!path.is_local) path.bring_back(exec, share, source);
  auto const& here = path.is_local ? share : source;
  if (!map) return models::add(exec, gradient, here, gradient);
  map->weight_back.run(exec, result, here, map->weight_gradient);
  map->input_back.run(exec, here, map->weight, gradient); // added
}

template class Jump<float>;
template class Jump<double>;

} // namespace orthant::models

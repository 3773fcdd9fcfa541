// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/layers/teleport.hpp"

#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;

constexpr auto brought_label = "orthant::models::teleport";
constexpr auto gradient_label = "orthant::models::teleport_gradient";

template<class T>
class TeleportAggregation final : public Aggregation<T> {
 public:
  TeleportAggregation(std::unique_ptr<Aggregation<T>> of_neighbours, std::shared_ptr<Teleport<T>> teleport,
                      std::size_t site)
      : of_neighbours_(std::move(of_neighbours)),
        teleport_(std::move(teleport)),
        site_(site) {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    // P := (1 - alpha) A^ F + alpha H0
    of_neighbours_->forward(exec, from, to);
    teleport_->add(exec, site_, to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    // dF := (1 - alpha) A^^T dP
    if (!std::exchange(is_split_, false)) teleport_->split(exec, site_, from);
    of_neighbours_->backward(exec, from, to);
  }
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<T> const& to) override {
    forward(exec, from, to);
  }
  void prefetch_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from) override {
    teleport_->split(exec, site_, from);
    is_split_ = true;
    of_neighbours_->prefetch_backward(exec, from);
  }

 private:
  std::unique_ptr<Aggregation<T>> of_neighbours_;
  std::shared_ptr<Teleport<T>> teleport_;
  std::size_t site_;
  bool is_split_ = false; // split() has already run for the next backward()
};

} // namespace

void plan_teleport_arrays(pmm::StepPlan& step, NetworkPlan const& plan, bool drops_out) {
  if (!plan.teleport) return;
  auto const& start = teleport_start(plan);
  for (auto const& site : plan.teleport->sites) {
    if (site != start) plan_matrix(step, site, brought_label);
    plan_matrix(step, site, gradient_label);
  }
  if (drops_out && plan.teleport->drops_start) plan_matrix(step, start, "orthant::models::dropped_start");
}

void plan_teleport_path_arrays(pmm::StepPlan& step, NetworkPlan const& plan,
                               NetworkEpochTraits const& traits) {
  if (!plan.teleport) return;
  auto const& start = teleport_start(plan);
  auto const has_owners = plan.layers.front().owners.has_value();
  for (auto const& site : plan.teleport->sites) {
    if (site == start) continue;
    if (has_owners) plan_selection_arrays(step, start, site);
    for (auto const is_backward : {false, true})
      if (!has_owners) plan_relayout_arrays(step, traits.teleport_sizes(plan, site, is_backward));
  }
}

template<class T>
Teleport<T>::Teleport(pmm::ProcessGrid const& grid, NetworkPlan const& plan, double alpha,
                      std::vector<ResidualPath<T>> paths, std::optional<BlockKeys> keys,
                      TeleportMemory<T>& memory, runtime::Vector<T> returned)
    : alpha_(alpha),
      drops_start_(plan.teleport.value().drops_start && keys.has_value()),
      paths_(std::move(paths)),
      keys_(std::move(keys).value_or(BlockKeys{})),
      returned_(grid, teleport_start(plan), std::move(returned)) {
  auto const& sites = plan.teleport->sites;
  ORTHANT_REQUIRE(paths_.size() == sites.size(), paths_.size(), " ways to ", sites.size(), " sites");
  while (memory.brought.size() < sites.size()) {
    memory.brought.emplace_back(brought_label);
    memory.gradients.emplace_back(gradient_label);
  }
  for (std::size_t s = 0; s < sites.size(); ++s) {
    auto const length = pmm::block_of(grid, sites[s]).num_padded;
    auto const in = [&](GrowingVector<T>& lent) {
      return pmm::DistMatrix<T>(grid, sites[s], lent.reserve(length));
    };
    brought_.push_back(paths_[s].is_local ? pmm::DistMatrix<T>() : in(memory.brought[s]));
    gradients_.push_back(in(memory.gradients[s]));
  }
  if (drops_start_)
    dropped_ = {grid, returned_.placement(), memory.dropped.reserve(returned_.block().num_padded)};
}

template<class T>
void Teleport<T>::start(DefaultExec const& exec, pmm::DistMatrix<T> const& start, Dropout const& dropout) {
  for (std::size_t s = 0; s < paths_.size(); ++s) {
    if (paths_[s].is_local)
      brought_[s] = start;
    else
      paths_[s].bring(exec, start, brought_[s]);
  }
  has_gradient_.assign(paths_.size(), false);
  input_ = drops(dropout) ? dropped_ : start;
  if (drops(dropout))
    apply_dropout(exec, start.grid().passes(), start.local(), dropout, keys_, dropped_.local());
}

template<class T>
void Teleport<T>::add(DefaultExec const& exec, std::size_t site, pmm::DistMatrix<T> const& sum) const {
  add_teleport(exec, alpha_, brought_[site], sum);
}

template<class T>
void Teleport<T>::split(DefaultExec const& exec, std::size_t site, pmm::DistMatrix<T> const& gradient) {
  auto const which = has_gradient_[site] ? StartGradient::further : StartGradient::first;
  split_gradient(exec, alpha_, which, gradient, gradients_[site]);
  has_gradient_[site] = true;
}

template<class T>
void Teleport<T>::finish_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                                  Dropout const& dropout) const {
  if (drops(dropout))
    apply_dropout(exec, gradient.grid().passes(), gradient.local(), dropout, keys_, gradient.local());
  for (std::size_t s = 0; s < paths_.size(); ++s) {
    if (!paths_[s].is_local) paths_[s].bring_back(exec, gradients_[s], returned_);
    models::add(exec, gradient, paths_[s].is_local ? gradients_[s] : returned_, gradient);
  }
}

template<class T>
std::unique_ptr<Aggregation<T>> make_teleport_aggregation(std::unique_ptr<Aggregation<T>> of_neighbours,
                                                          std::shared_ptr<Teleport<T>> teleport,
                                                          std::size_t site) {
  return std::make_unique<TeleportAggregation<T>>(std::move(of_neighbours), std::move(teleport), site);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class Teleport<T>;                                                                                \
  template std::unique_ptr<Aggregation<T>> make_teleport_aggregation(                                        \
      std::unique_ptr<Aggregation<T>>, std::shared_ptr<Teleport<T>>, std::size_t);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models

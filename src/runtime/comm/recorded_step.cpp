// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/recorded_step.hpp"

#include "runtime/comm/collectives.hpp"

#include <utility>

namespace orthant::runtime {

std::string RecordedStep::record(Communicator const& group, std::vector<Communicator const*> communicators,
                                 std::function<void()> const& enqueue) {
  communicators_ = std::move(communicators);
  instruments_ = &group.instruments();
  // What is recorded is counted, although nothing is done; it counts when it is replayed.
  auto const flops_before = std::exchange(instruments_->flops, {});
  auto const passes_before = std::exchange(instruments_->passes.total, {});
  std::vector<Ledger> before;
  for (auto const* comm : communicators_)
    before.push_back(std::exchange(comm->ledger(), {}));
  auto failure = graph_.capture(queue_, enqueue);
  flops_ = std::exchange(instruments_->flops, flops_before);
  passes_ = std::exchange(instruments_->passes.total, passes_before);
  calls_.clear();
  for (auto const* comm : communicators_)
    calls_.push_back(comm->ledger());
  auto const all_have_it = all_reduced(group, std::int32_t{graph_.exists()}, Reduction::min) != 0;
  // The reduction above is no part of the step.
  for (std::size_t i = 0; i < communicators_.size(); ++i)
    communicators_[i]->ledger() = before[i];
  if (all_have_it) return {};
  graph_ = {};
  return failure.empty() ? "another rank could not record it" : failure;
}

void RecordedStep::replay() {
  graph_.launch(queue_);
  for (std::size_t i = 0; i < communicators_.size(); ++i)
    communicators_[i]->ledger().add_calls(calls_[i]);
  instruments_->flops += flops_;
  instruments_->passes.total += passes_;
}

} // namespace orthant::runtime

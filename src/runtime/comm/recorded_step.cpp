// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/recorded_step.hpp"

#include "runtime/comm/collectives.hpp"

#include <utility>

namespace orthant::runtime {

RecordedStep::RecordedStep(DeviceQueue const& queue, Communicator const& group,
                           std::vector<Communicator const*> communicators)
    : queue_(queue),
      group_(group),
      communicators_(std::move(communicators)) {}

std::string RecordedStep::record(std::function<void()> const& enqueue) {
  // Calls are counted while they are recorded, although nothing is sent; they count when they are replayed.
  std::vector<Ledger> before;
  for (auto const* comm : communicators_)
    before.push_back(std::exchange(comm->ledger(), {}));
  auto failure = graph_.capture(queue_, enqueue);
  calls_.clear();
  for (auto const* comm : communicators_)
    calls_.push_back(comm->ledger());
  auto const all_have_it = all_reduced(group_, std::int32_t{graph_.exists()}, Reduction::min) != 0;
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
}

} // namespace orthant::runtime

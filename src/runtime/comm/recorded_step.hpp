#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A step that the ranks of a group record together and then replay: a graph of device work
// (runtime/device/device_graph.hpp), and the calls that its collectives count. What differs from step to step must be in the device's memory.

#include "runtime/comm/communicator.hpp"
#include "runtime/device/device_graph.hpp"

#include <functional>
#include <string>
#include <vector>

namespace orthant::runtime {

class RecordedStep {
 public:
  /// `queue` must outlive the recording.
  explicit RecordedStep(DeviceQueue const& queue) : queue_(queue) {}

  /// Records what `enqueue` enqueues on the queue, instead of doing it. `communicators` are all that it
  /// communicates over; they and `group` must outlive the recording. Recorded collectives must be launched by
  /// all ranks or by none: if one rank cannot record, no rank has a recording. Returns the reason then, on
  /// every rank, and otherwise an empty text. Collective over the group.
  [[nodiscard]] std::string record(Communicator const& group, std::vector<Communicator const*> communicators,
                                   std::function<void()> const& enqueue);
  [[nodiscard]] bool exists() const { return graph_.exists(); }

  /// Enqueues the recorded step, and counts its calls, its arithmetic and its passes. Throws Error if the device refuses.
  void replay();

 private:
  DeviceQueue const& queue_;
  std::vector<Communicator const*> communicators_;
  std::vector<Ledger> calls_; // of one step, per communicator
  Instruments* instruments_ = nullptr;
  FlopCount flops_; // of one step
  PassCount passes_;
  DeviceGraph graph_;
};

} // namespace orthant::runtime

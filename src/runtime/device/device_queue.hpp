#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A device queue, and a graph of work enqueued on it. The graph is recorded once and can then be launched any number of times, with the
// recorded arguments of its kernels and copies. Without a device backend both are empty.
//
//   DeviceQueue queue;
//   DeviceGraph graph;
//   auto const failure = graph.capture(queue, [&] { step(); });   // nothing runs
//   if (graph.exists()) graph.launch(queue);                      // step() runs

#include "runtime/unique_handle.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orthant::runtime {

/// A queue (cudaStream_t, hipStream_t) that does not synchronize with others: before it reads results of the default queue or of Kokkos's
/// default instance, the caller must wait for that work.
class DeviceQueue {
 public:
  /// Creates the queue on the current device. Throws Error if the device refuses.
  DeviceQueue();
  /// Null without a device backend.
  [[nodiscard]] void* native() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(void* stream) const noexcept;
  };
  UniqueHandle<void*, nullptr, Destroy> stream_;
};

/// The queue of all trainings of this process, created at the first call and then kept. Libraries keep data per queue (workspaces, choices
/// of algorithms), so every training reuses them. One host thread at a time.
[[nodiscard]] DeviceQueue const& training_queue();

class DeviceGraph {
 public:
  /// Runs `enqueue` and records the work that it enqueues on `queue`, without executing it. `enqueue` must neither wait for the queue nor
  /// allocate, and may be run again if recording fails. Returns an empty text, or the reason if no graph exists.
  [[nodiscard]] std::string capture(DeviceQueue const& queue, std::function<void()> const& enqueue);
  [[nodiscard]] bool exists() const { return graph_.owns(); }
  /// Enqueues the recorded work. Throws Error if the device refuses.
  void launch(DeviceQueue const& queue) const;

 private:
  struct Destroy {
    void operator()(void* graph) const noexcept;
  };
  UniqueHandle<void*, nullptr, Destroy> graph_;
};

// Times at which a device reaches points of its queue. Time stamps are enqueued like any other work, and read after the host has waited for
// the queue. Only if kernels run on a device.

class DeviceClock {
 public:
  /// Clock for a queue (cudaStream_t, hipStream_t), which must outlive the clock. Null if this build has no device.
  [[nodiscard]] static std::shared_ptr<DeviceClock> create(void* native_stream);

  /// Enqueues a time stamp and returns its number, counted from 0. Creates an event only if there were never so many stamps before.
  std::size_t stamp();
  /// Seconds between two stamps. Throws Error unless the host has waited for the queue since.
  [[nodiscard]] double seconds(std::size_t begin, std::size_t end) const;
  /// Restarts the numbering at 0.
  void clear() { num_stamps_ = 0; }

 private:
  explicit DeviceClock(void* native_stream) : stream_(native_stream) {}
  struct DestroyEvent {
    void operator()(void* event) const noexcept;
  };
  void* stream_;
  std::vector<UniqueHandle<void*, nullptr, DestroyEvent>> events_;
  std::size_t num_stamps_ = 0;
};

} // namespace orthant::runtime

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A device queue of one's own, and a graph of the work that was enqueued on it: recorded once, then launched
// whole as often as wanted, with the arguments that its kernels and copies had. Without a device backend both
// are empty.
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

/// A queue (cudaStream_t, hipStream_t) that waits for no other: work of the default queue, and what Kokkos's
/// default instance was given, must be waited for before it reads the results.
class DeviceQueue {
 public:
  /// On the current device. Throws Error where the device refuses.
  DeviceQueue();
  /// Null without a device backend.
  [[nodiscard]] void* native() const { return stream_.get(); }

 private:
  struct Destroy {
    void operator()(void* stream) const noexcept;
  };
  UniqueHandle<void*, nullptr, Destroy> stream_;
};

/// The queue of this process's trainings, made by the first and kept: what libraries hold for a queue
/// (workspaces, choices) then serves every training. One host thread at a time.
[[nodiscard]] DeviceQueue const& training_queue();

class DeviceGraph {
 public:
  /// Runs `enqueue`, whose work on `queue` is recorded in place of being done. It must not wait for the queue
  /// nor allocate, and may be run again where this fails: then no graph exists, and the reason is returned;
  /// otherwise an empty text.
  [[nodiscard]] std::string capture(DeviceQueue const& queue, std::function<void()> const& enqueue);
  [[nodiscard]] bool exists() const { return graph_.owns(); }
  /// Enqueues the recorded work. Throws Error where the device refuses.
  void launch(DeviceQueue const& queue) const;

 private:
  struct Destroy {
    void operator()(void* graph) const noexcept;
  };
  UniqueHandle<void*, nullptr, Destroy> graph_;
};

// When a device comes to a point of its queue: time stamps that are enqueued like any other work, and read
// once the queue has been waited for. Only where kernels run on a device.

class DeviceClock {
 public:
  /// For a queue (cudaStream_t, hipStream_t), which must outlive it; null where this build has no device:
  /// then there is no clock.
  [[nodiscard]] static std::shared_ptr<DeviceClock> create(void* native_stream);

  /// Enqueues a time stamp and returns its number, counted from 0. Makes an event only where there have never
  /// been as many stamps.
  std::size_t stamp();
  /// Seconds between two stamps. Throws Error unless the queue has been waited for since.
  [[nodiscard]] double seconds(std::size_t begin, std::size_t end) const;
  /// The next stamp is number 0 again.
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

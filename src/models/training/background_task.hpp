#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A second thread that runs the same function whenever it is started.
//
// The work may access host memory only through pointers, spans and vectors. It must not call MPI, nor copy, create or destroy Kokkos Views:
// their reference counts are not atomic on the Serial backend.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace orthant::models {

class BackgroundTask {
 public:
  /// Starts the thread. `work` runs once per start().
  explicit BackgroundTask(std::function<void()> work);
  BackgroundTask(BackgroundTask const&) = delete;
  BackgroundTask& operator=(BackgroundTask const&) = delete;
  /// Waits until the work is done, if it is running.
  ~BackgroundTask();

  /// Runs the work once, on the thread. Must not be called while the work runs; otherwise throws Error.
  void start();
  [[nodiscard]] bool is_started() const { return is_started_; }
  /// Whether wait() would return immediately.
  [[nodiscard]] bool is_done();
  /// Waits for the work of the last start(). Afterwards this thread may access what the work wrote. Rethrows exceptions of the work.
  void wait();

 private:
  enum class State { idle, wanted, done, ending };
  void run();

  std::function<void()> work_;
  bool is_started_ = false; // used by the owning thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;  // guarded by mutex_
  std::exception_ptr failure_; // guarded by mutex_
  std::thread thread_;         // declared last, because the thread uses all other members
};

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A second thread that does one piece of work at a time, again and again.
//
// The work may touch host memory through pointers, spans and vectors only: no MPI, and no Kokkos View is
// copied, made or freed there, because reference counts of Views are not atomic on the Serial backend.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace orthant::models {

class BackgroundTask {
 public:
  /// Starts the thread, which waits for start().
  explicit BackgroundTask(std::function<void()> work);
  BackgroundTask(BackgroundTask const&) = delete;
  BackgroundTask& operator=(BackgroundTask const&) = delete;
  /// Waits for work under way.
  ~BackgroundTask();

  /// Lets the thread do the work once. Not while it is under way (Error).
  void start();
  [[nodiscard]] bool is_started() const { return is_started_; }
  /// Whether wait() would return at once.
  [[nodiscard]] bool is_done();
  /// Waits for the work of the last start(); what it wrote is this thread's now. Throws what it threw.
  void wait();

 private:
  enum class State { idle, wanted, done, ending };
  void run();

  std::function<void()> work_;
  bool is_started_ = false; // of the owner
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;  // guarded
  std::exception_ptr failure_; // guarded
  std::thread thread_;         // last: it uses all of the above
};

} // namespace orthant::models

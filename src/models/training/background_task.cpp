// SPDX-License-Identifier: Apache-2.0
#include "models/training/background_task.hpp"

#include "runtime/error.hpp"

#include <utility>

namespace orthant::models {

BackgroundTask::BackgroundTask(std::function<void()> work)
    : work_(std::move(work)),
      thread_([this] { run(); }) {}

BackgroundTask::~BackgroundTask() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != State::wanted; });
    state_ = State::ending;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundTask::start() {
  ORTHANT_REQUIRE(!is_started_, "work is started that is under way");
  is_started_ = true;
  {
    std::lock_guard const lock(mutex_);
    state_ = State::wanted;
  }
  changed_.notify_all();
}

bool BackgroundTask::is_done() {
  std::lock_guard const lock(mutex_);
  return state_ == State::done;
}

void BackgroundTask::wait() {
  ORTHANT_REQUIRE(is_started_, "work is awaited that was not started");
  is_started_ = false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ == State::done; });
  state_ = State::idle;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundTask::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return state_ == State::wanted || state_ == State::ending; });
    if (state_ == State::ending) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    state_ = State::done;
    changed_.notify_all();
  }
}

} // namespace orthant::models

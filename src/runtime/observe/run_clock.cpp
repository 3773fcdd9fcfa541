// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/run_clock.hpp"

#include <time.h>
#include <utility>

namespace orthant::runtime {

double thread_processor_seconds() {
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void RunClock::emulate(EmulatedMachine machine, std::function<double()> processor_seconds) {
  machine_ = std::move(machine);
  processor_seconds_ = std::move(processor_seconds);
  seconds_ = 0;
  work_ = 0;
  steady_ = nullptr;
  processor_ = processor_seconds_();
}

RunClock::Clock::time_point RunClock::now() {
  if (!machine_) return Clock::now();
  std::chrono::duration<double> const since_start(virtual_seconds());
  return Clock::time_point(std::chrono::round<Clock::duration>(since_start));
}

void RunClock::wait_for_work(Clock::time_point begin, double seconds) {
  if (machine_) advance_to(std::chrono::duration<double>(begin.time_since_epoch()).count() + seconds);
}

double RunClock::work_seconds() const {
  if (!machine_) return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  return machine_->seconds_per_processor_second * processor_seconds_();
}

void RunClock::begin_step(SteadyWork& steady) {
  if (!machine_) return;
  std::ignore = virtual_seconds(); // counts the work done before the step
  steady.begin_step();
  steady_ = &steady;
}

void RunClock::end_step() {
  if (!machine_) return;
  std::ignore = virtual_seconds();
  steady_ = nullptr;
}

double RunClock::virtual_seconds() {
  if (num_pauses_ == 0) count_work();
  auto const work = std::exchange(work_, 0);
  seconds_ += steady_ == nullptr ? work : steady_->of(work);
  return seconds_;
}

void RunClock::advance_to(double seconds) {
  seconds_ = std::max(virtual_seconds(), seconds);
}

void RunClock::wait_for_call(double begin, double end) {
  auto const seconds = end - begin;
  auto const work = virtual_seconds() - begin;
  auto const hidden = std::min(seconds, machine_->overlap * work);
  advance_to(begin + work + (seconds - hidden));
}

void RunClock::pause() {
  if (machine_ && num_pauses_++ == 0) count_work();
}

void RunClock::go_on() {
  if (machine_ && --num_pauses_ == 0) processor_ = processor_seconds_();
}

void RunClock::count_work() {
  auto const now = processor_seconds_();
  work_ += machine_->seconds_per_processor_second * (now - processor_);
  processor_ = now;
}

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/position.hpp"

#include <algorithm>
#include <pthread.h>
#include <utility>

namespace orthant::runtime {
namespace {

template<std::size_t Size>
void assign(std::array<char, Size>& field, std::string_view text) {
  auto const length = std::min(text.size(), Size - 1);
  std::copy_n(text.data(), length, field.data());
  field[length] = '\0';
}

std::string_view file_name(std::source_location where) {
  auto const path = std::string_view(where.file_name());
  auto const slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

double seconds_of(clockid_t clock) {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

} // namespace

void Position::enter(std::string_view what, std::string_view axis, std::int64_t sequence, std::int64_t bytes,
                     std::source_location where) {
  std::lock_guard const lock(mutex_);
  now_.is_waiting = true;
  now_.sequence = sequence;
  now_.bytes = bytes;
  now_.line = where.line();
  assign(now_.what, what);
  assign(now_.axis, axis);
  assign(now_.file, file_name(where));
  note_change();
}

void Position::leave() {
  std::lock_guard const lock(mutex_);
  now_.is_waiting = false;
  note_change();
}

Position::Work Position::begin_work(std::source_location where) {
  Work work;
  work.is_open = pthread_getcpuclockid(pthread_self(), &work.clock) == 0;
  assign(work.file, file_name(where));
  work.line = where.line();
  std::lock_guard const lock(mutex_);
  note_change();
  return std::exchange(work_, work);
}

void Position::end_work(Work const& outer) {
  std::lock_guard const lock(mutex_);
  work_ = outer;
  note_change();
}

void Position::note_change() {
  ++now_.num_changes;
  since_ = Clock::now();
}

Whereabouts Position::read() const {
  std::lock_guard const lock(mutex_);
  auto copy = now_;
  copy.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  copy.is_working = work_.is_open;
  if (copy.is_working && !copy.is_waiting) copy.processor_seconds = seconds_of(work_.clock);
  copy.work_file = work_.file;
  copy.work_line = work_.line;
  return copy;
}

} // namespace orthant::runtime

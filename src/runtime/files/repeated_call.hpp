#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// System calls that a signal interrupts or that a busy file server turns away.

#include <cerrno>
#include <chrono>
#include <thread>

namespace orthant::runtime {

/// Repeats a system call, which returns a negative number and sets errno if it fails, as often as it is
/// interrupted (EINTR), and for two seconds while it is told to try again (EAGAIN), which passes in
/// milliseconds.
template<class Call>
auto repeated(Call&& call) {
  using Clock = std::chrono::steady_clock;
  auto const give_up = Clock::now() + std::chrono::seconds(2);
  for (;;) {
    auto const result = call();
    if (result >= 0 || (errno != EINTR && errno != EAGAIN)) return result;
    if (errno == EINTR) continue;
    if (Clock::now() > give_up) {
      errno = EAGAIN;
      return result;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

} // namespace orthant::runtime

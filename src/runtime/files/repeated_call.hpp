#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// System calls that a signal interrupts or that a busy file server turns away.

#include <cerrno>
#include <chrono>
#include <thread>

namespace orthant::runtime {

/// Repeats a system call, which returns a negative number and sets errno if it fails, while it is interrupted
/// (EINTR) or told to try again (EAGAIN). Such a state passes in milliseconds; a call that is still refused
/// after two seconds has failed.
template<class Call>
auto repeated(Call&& call) {
  using Clock = std::chrono::steady_clock;
  auto const give_up = Clock::now() + std::chrono::seconds(2);
  for (;;) {
    auto const result = call();
    if (result >= 0 || (errno != EINTR && errno != EAGAIN)) return result;
    auto const code = errno;
    if (Clock::now() > give_up) {
      errno = code;
      return result;
    }
    if (code == EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/stop_signals.hpp"

#include <atomic>

namespace orthant::runtime {
namespace {

std::atomic<int> received_signal = 0;
std::atomic<bool> has_asked = false; // by SIGTERM or SIGINT
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait");

extern "C" void note_signal(int signal) {
  received_signal.store(signal);
  if (signal == SIGUSR1 || !has_asked.exchange(true)) return;
  // Whoever asks twice does not want to wait for the end of a step.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

} // namespace

StopSignals::StopSignals() {
  received_signal.store(0);
  has_asked.store(false);
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &action, &before_[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &before_[i], nullptr);
}

int StopSignals::received() const {
  return received_signal.load();
}

char const* name_of_signal(int signal) {
  switch (signal) {
  case SIGUSR1:
    return "SIGUSR1";
  case SIGTERM:
    return "SIGTERM";
  case SIGINT:
    return "SIGINT";
  default:
    return "a signal";
  }
}

} // namespace orthant::runtime

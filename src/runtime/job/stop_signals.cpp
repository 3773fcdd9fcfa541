// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/stop_signals.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <unistd.h>

namespace orthant::runtime {
namespace {

std::atomic<int> received_signal = 0;
std::atomic<bool> has_asked = false; // by SIGTERM or SIGINT
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait");

std::atomic<char const*> answer_to_interrupt = nullptr;
static_assert(std::atomic<char const*>::is_always_lock_free, "a signal handler must not wait");

extern "C" void note_signal(int signal) {
  received_signal.store(signal);
  if (signal == SIGUSR1) return;
  if (!has_asked.exchange(true)) {
    auto const* const answer = answer_to_interrupt.load();
    auto const before = errno; // of what was interrupted
    if (signal == SIGINT && answer != nullptr)
      static_cast<void>(!write(STDERR_FILENO, answer, std::strlen(answer)));
    errno = before;
    return;
  }
  // Whoever asks twice does not want to wait for the end of a step.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

} // namespace

StopSignals::StopSignals(char const* answer) {
  received_signal.store(0);
  answer_to_interrupt.store(answer);
  has_asked.store(false);
  // The handler has a stack of its own. Products that oneDNN 2.6.3 compiles keep numbers below the stack pointer, where the handler's
  // frame would lie: 10 of 60 interrupted trainings ended with a corrupted heap (with OpenBLAS and LIBXSMM none of 60 each; with
  // this stack none of 150).
  constexpr std::size_t size = std::size_t{1} << 16;
  alignas(64) static std::array<std::byte, size> stack;
  stack_t own{};
  own.ss_sp = stack.data();
  own.ss_size = stack.size();
  auto const has_stack = sigaltstack(&own, nullptr) == 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART | (has_stack ? SA_ONSTACK : 0);
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

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Signals that ask a long job to end: SIGUSR1 (what a scheduler is told to send before the time limit), SIGTERM
// and SIGINT. While this object lives, the last of them is noted, and the job asks for it where it can stop. A
// second SIGTERM or SIGINT ends the process at once.

#include <array>
#include <csignal>

namespace orthant::runtime {

class StopSignals {
 public:
  /// Catches the signals. One object at a time. `answer`, a text that must outlive it, is written to stderr at the
  /// first SIGINT, which somebody at a terminal has sent; null: nothing is.
  explicit StopSignals(char const* answer = nullptr);
  /// Signals do again what they did before.
  ~StopSignals();
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;

  /// The last signal that came, or 0.
  [[nodiscard]] int received() const;

 private:
  static constexpr std::array<int, 3> signals{SIGUSR1, SIGTERM, SIGINT};
  std::array<struct sigaction, signals.size()> before_{};
};

/// "SIGUSR1", "SIGTERM", "SIGINT", or "a signal".
[[nodiscard]] char const* name_of_signal(int signal);

} // namespace orthant::runtime

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where this rank stands: the collective it is in, or the last one it finished. Written by the thread that
// communicates, read by the watchdog's thread. Plain data of fixed size, so it travels between ranks as
// bytes.

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <source_location>
#include <string_view>

namespace orthant::runtime {

struct Whereabouts {
  bool is_waiting = false;     // inside a collective now
  std::int64_t sequence = 0;   // number of the collective on its communicator, from 0
  std::int64_t bytes = 0;      // logical bytes of the buffer
  double seconds = 0;          // since it was entered, or since it was left
  std::array<char, 24> what{}; // operation
  std::array<char, 24> axis{};
  std::array<char, 40> file{}; // of the call, without directories
  std::uint32_t line = 0;
};

/// Enter and leave cost one uncontended lock and one clock read each.
class Position {
 public:
  void enter(std::string_view what, std::string_view axis, std::int64_t sequence, std::int64_t bytes,
             std::source_location where);
  void leave();
  [[nodiscard]] Whereabouts read() const;

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  Whereabouts now_;
  Clock::time_point since_ = Clock::now();
};

/// Marks a stretch that may wait for other ranks but is no collective of ours (a bare MPI call, parallel
/// HDF5), so that the watchdog covers it too.
class WaitingScope {
 public:
  WaitingScope(Position& position, std::string_view what,
               std::source_location where = std::source_location::current())
      : position_(position) {
    position_.enter(what, "world", 0, 0, where);
  }
  WaitingScope(WaitingScope const&) = delete;
  WaitingScope& operator=(WaitingScope const&) = delete;
  ~WaitingScope() { position_.leave(); }

 private:
  Position& position_;
};

} // namespace orthant::runtime

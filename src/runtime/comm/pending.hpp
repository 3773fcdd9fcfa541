#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An operation between its start and its end, as the caller sees it: its record in ledger, trace and watchdog,
// and the exchange that carries it out.

#include "runtime/comm/backend.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/virtual_calls.hpp"

#include <chrono>

namespace orthant::runtime::detail {

struct KeptResult;

class Pending {
 public:
  Pending(Communicator const& comm, Call const& call, Mode mode)
      : comm_(comm),
        call_(call),
        mode_(mode),
        sequence_(comm.next_sequence()) {}
  Pending(Pending const&) = delete;
  Pending& operator=(Pending const&) = delete;

  void begin();
  void finish(std::source_location where);
  [[nodiscard]] bool test();
  /// An error unwinds, and nobody will wait: what is under way goes on without the caller's buffers.
  void abandon() noexcept {
    if (exchange_) exchange_->abandon();
  }

 private:
  [[nodiscard]] std::int64_t logical_bytes() const;
  void wait(std::source_location where);

  Communicator const& comm_;
  Call call_;
  Mode mode_;
  std::int64_t sequence_;
  bool is_done_ = false;
  Backend* backend_ = nullptr;
  std::unique_ptr<Exchange> exchange_;   // null: nothing to wait for
  std::shared_ptr<VirtualCall> virtual_; // null: the clock is real
  KeptResult* kept_ = nullptr;           // where a tape wants the result
  double virtual_began_ = 0;
  std::chrono::steady_clock::time_point began_;
};

} // namespace orthant::runtime::detail

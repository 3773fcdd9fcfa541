#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Every call of a communicator, counted (DESIGN 2.4). Bytes are the logical buffer in its wire type:
//
//   all_reduce, broadcast        the buffer                 all_to_all   what goes to other ranks
//   exclusive_scan               the buffer                 send         the message (receive: no bytes)
//   all_gather, reduce_scatter   the full (gathered) side   barrier      nothing
//
// A group of one counts nothing. Summing `bytes` over the ranks gives the job's `comm_bytes`.

#include <array>
#include <cstdint>
#include <string_view>

namespace orthant::runtime {

enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  exclusive_scan,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier
};
inline constexpr std::size_t num_operations = 9;

[[nodiscard]] std::string_view name_of(Operation operation);

struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  double seconds = 0; // host time inside the call and inside wait()
  friend bool operator==(LedgerEntry const&, LedgerEntry const&) = default;
  LedgerEntry& operator+=(LedgerEntry const& other) {
    calls += other.calls;
    bytes += other.bytes;
    seconds += other.seconds;
    return *this;
  }
};

/// One communicator's counts on this rank.
class Ledger {
 public:
  void add(Operation operation, std::int64_t bytes) {
    auto& entry = entries_[static_cast<std::size_t>(operation)];
    ++entry.calls;
    entry.bytes += bytes;
  }
  void add_seconds(Operation operation, double seconds) {
    entries_[static_cast<std::size_t>(operation)].seconds += seconds;
  }
  [[nodiscard]] LedgerEntry const& operator[](Operation operation) const {
    return entries_[static_cast<std::size_t>(operation)];
  }
  [[nodiscard]] LedgerEntry total() const;
  void clear() { entries_ = {}; }

 private:
  std::array<LedgerEntry, num_operations> entries_{};
};

} // namespace orthant::runtime

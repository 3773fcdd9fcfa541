#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Every call of a communicator, counted (docs/design.md 2.4). Bytes are the logical buffer in its wire type:
//
//   all_reduce, broadcast        the buffer                 all_to_all   what goes to other ranks
//   exclusive_scan               the buffer                 send         the message (receive: no bytes)
//   all_gather, reduce_scatter   the full (gathered) side   barrier      nothing
//
// A group of one counts nothing. Summing `bytes` over the ranks gives the job's `comm_bytes`.
//
// Sent bytes are what a rank of a group of G hands to its neighbor in ring algorithms (docs/design.md 2.4).
// They compare schedules, which logical buffers do not: an all_reduce moves twice what a gather does.
//
//   all_reduce                   2 (G-1)/G of the buffer        broadcast, exclusive_scan   (G-1)/G of it
//   all_gather, reduce_scatter   (G-1)/G of the full side       all_to_all, send            what goes out

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

/// Bytes that rank `rank` of a group of `size` sends in a call that counts `bytes`. Fractions are dealt so
/// that the sum over the ranks is exact.
[[nodiscard]] std::int64_t sent_bytes(Operation operation, std::int64_t bytes, int rank, int size);

struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  std::int64_t sent_bytes = 0;
  double seconds = 0; // host time inside the call and inside wait()
  friend bool operator==(LedgerEntry const&, LedgerEntry const&) = default;
  LedgerEntry& operator+=(LedgerEntry const& other) {
    calls += other.calls;
    bytes += other.bytes;
    sent_bytes += other.sent_bytes;
    seconds += other.seconds;
    return *this;
  }
};

/// One communicator's counts on this rank.
class Ledger {
 public:
  void add(Operation operation, std::int64_t bytes, std::int64_t sent_bytes) {
    auto& entry = entries_[static_cast<std::size_t>(operation)];
    ++entry.calls;
    entry.bytes += bytes;
    entry.sent_bytes += sent_bytes;
  }
  /// Counts the calls of another ledger once more, without their seconds: a recorded step is replayed.
  void add_calls(Ledger const& other);
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

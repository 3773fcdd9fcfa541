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
#include <vector>

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

// Element-wise work, which memory bounds: every pass over arrays, counted as it is enqueued.
//
// Bytes are what a pass must move between memory and the processor: each array that it reads, once, and each
// array that it writes, once, in their own types (a mask of bits in bits). An array that is updated in place is
// read and written. Not counted are single numbers (a loss, the factors of an update), what one kernel of a
// pass leaves for its next, and what the processor's caches move again.
//
// Products and collectives are no passes: what they copy, round or encode is theirs.

struct LocalPass {
  /// The label of its kernel without the namespace, so that a profile and a list can be held side by side; a copy of a
  /// whole array has no kernel. Must live as long as the program.
  std::string_view name;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t flops = 0;          // of a pass that consists of products (attention); else 0
  std::int64_t random_numbers = 0; // drawn in passing: one for each number that dropout may drop
  std::int64_t exponentials = 0;   // and logarithms; attention counts none: its rows of scores stand for them
  /// Sums and maxima over single rows of tokens or logits; of attention, over rows of scores.
  std::int64_t row_sums = 0;

  [[nodiscard]] std::int64_t bytes() const { return bytes_read + bytes_written; }
  friend bool operator==(LocalPass const&, LocalPass const&) = default;
};

/// The result of a call is kept, or handed out in place of the call (comm/call_tape.hpp).
[[nodiscard]] constexpr LocalPass pass_of_kept(std::int64_t num_bytes) {
  return {"keep_result", num_bytes, num_bytes};
}
[[nodiscard]] constexpr LocalPass pass_of_replayed(std::int64_t num_bytes) {
  return {"replay_result", num_bytes, num_bytes};
}

/// Of the passes that a process has enqueued.
struct PassCount {
  std::int64_t passes = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;

  PassCount& operator+=(PassCount const& other) {
    passes += other.passes;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    return *this;
  }
  friend bool operator==(PassCount const&, PassCount const&) = default;
};

/// Not for several threads at once.
struct PassLedger {
  PassCount total;
  std::vector<LocalPass>* list = nullptr; // if set, every pass is appended to it: for tests and tools

  /// A pass that moves nothing is none.
  void add(LocalPass const& pass) {
    if (pass.bytes() == 0) return;
    total += {1, pass.bytes_read, pass.bytes_written};
    if (list != nullptr) list->push_back(pass);
  }
};

/// Bytes of all elements of these Views.
template<class... Views>
[[nodiscard]] std::int64_t array_bytes(Views const&... views) {
  return (std::int64_t{0} + ... +
          static_cast<std::int64_t>(views.size() * sizeof(typename Views::value_type)));
}

} // namespace orthant::runtime

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Counts of every call of a communicator (docs/design.md 2.4). Bytes are the size of the logical buffer in its wire type:
//
//   all_reduce, broadcast        the buffer                 all_to_all   the parts for other ranks
//   exclusive_scan               the buffer                 send         the message (receive: no bytes)
//   all_gather, reduce_scatter   the full (gathered) side   barrier      nothing
//
// A group of one counts nothing. The sum of `bytes` over the ranks is the job's `comm_bytes`.
//
// Sent bytes are the bytes that a rank of a group of size G sends to its neighbor in ring algorithms (docs/design.md 2.4). They allow
// comparing schedules, which logical buffers do not: an all_reduce moves twice as much as an all_gather.
//
//   all_reduce                   2 (G-1)/G of the buffer        broadcast, exclusive_scan   (G-1)/G of the buffer
//   all_gather, reduce_scatter   (G-1)/G of the full side       all_to_all, send            the outgoing bytes

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

/// Bytes that rank `rank` of a group of `size` ranks sends in a call that counts `bytes`. Fractions are distributed so that the sum over
/// the ranks is exact.
[[nodiscard]] std::int64_t sent_bytes(Operation operation, std::int64_t bytes, int rank, int size);

struct LedgerEntry {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
  std::int64_t sent_bytes = 0;
  double seconds = 0; // time of the host in calls and in wait()
  friend bool operator==(LedgerEntry const&, LedgerEntry const&) = default;
  LedgerEntry& operator+=(LedgerEntry const& other) {
    calls += other.calls;
    bytes += other.bytes;
    sent_bytes += other.sent_bytes;
    seconds += other.seconds;
    return *this;
  }
};

/// What encoded messages have lost: sums of squares over a sample of the numbers that this rank has encoded.
struct WireLoss {
  double lost = 0; // of the differences from what is decoded
  double sent = 0; // of the numbers

  WireLoss& operator+=(WireLoss const& other) {
    lost += other.lost;
    sent += other.sent;
    return *this;
  }
};

/// Counts of one communicator on this rank.
class Ledger {
 public:
  void add(Operation operation, std::int64_t bytes, std::int64_t sent_bytes) {
    auto& entry = entries_[static_cast<std::size_t>(operation)];
    ++entry.calls;
    entry.bytes += bytes;
    entry.sent_bytes += sent_bytes;
  }
  /// Adds the calls of another ledger without their seconds, when a recorded step is replayed.
  void add_calls(Ledger const& other);
  void add_seconds(Operation operation, double seconds) {
    entries_[static_cast<std::size_t>(operation)].seconds += seconds;
  }
  [[nodiscard]] LedgerEntry const& operator[](Operation operation) const {
    return entries_[static_cast<std::size_t>(operation)];
  }
  [[nodiscard]] LedgerEntry total() const;
  void add_loss(WireLoss const& loss) { loss_ += loss; }
  [[nodiscard]] WireLoss const& loss() const { return loss_; }
  void clear() { *this = {}; }

 private:
  WireLoss loss_;
  std::array<LedgerEntry, num_operations> entries_{};
};

// Elementwise work, which is bound by memory: every pass over arrays is counted when it is enqueued.
//
// The bytes of a pass are the least that it must move between memory and the processor: each array that it reads, once, and each array that
// it writes, once, in their own types (a bit mask in bits). An array that is updated in place is read and written. Not counted are scalars
// (a loss, the factors of an update), data between the kernels of one pass, and repeated transfers by the processor's caches.
//
// Products and collectives are not passes: their copies, rounding and encoding count as parts of them.

struct LocalPass {
  /// The label of its kernel without the namespace, so that a profile and a list of passes can be compared. A copy of a whole array has no
  /// kernel. Must live as long as the program.
  std::string_view name;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t flops = 0;          // only for a pass that consists of products (attention); otherwise 0
  std::int64_t random_numbers = 0; // drawn in the pass: one for each number that dropout may drop
  std::int64_t exponentials = 0;   // and logarithms; 0 for attention, where the rows of scores represent them
  /// Sums and maxima over single rows of tokens or logits; for attention, over rows of scores.
  std::int64_t row_sums = 0;

  [[nodiscard]] std::int64_t bytes() const { return bytes_read + bytes_written; }
  friend bool operator==(LocalPass const&, LocalPass const&) = default;
};

/// Passes that copy the result of a call to a tape, or from a tape in place of the call (comm/call_tape.hpp).
[[nodiscard]] constexpr LocalPass pass_of_kept(std::int64_t num_bytes) {
  return {"keep_result", num_bytes, num_bytes};
}
[[nodiscard]] constexpr LocalPass pass_of_replayed(std::int64_t num_bytes) {
  return {"replay_result", num_bytes, num_bytes};
}

/// Totals of the passes that a process has enqueued.
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

/// Must not be used by several threads at the same time.
struct PassLedger {
  PassCount total;
  std::vector<LocalPass>* list = nullptr; // if set, every pass is appended to it: for tests and tools

  /// A pass without bytes is not counted.
  void add(LocalPass const& pass) {
    if (pass.bytes() == 0) return;
    total += {1, pass.bytes_read, pass.bytes_written};
    if (list != nullptr) list->push_back(pass);
  }
};

/// Total bytes of the elements of these Views.
template<class... Views>
[[nodiscard]] std::int64_t array_bytes(Views const&... views) {
  return (std::int64_t{0} + ... +
          static_cast<std::int64_t>(views.size() * sizeof(typename Views::value_type)));
}

} // namespace orthant::runtime

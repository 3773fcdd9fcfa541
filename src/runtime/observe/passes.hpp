#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Element-wise work, which memory bounds: every pass over arrays, counted as it is enqueued.
//
// Bytes are what a pass must move between memory and the processor: each array that it reads, once, and each
// array that it writes, once, in their own types (a mask of bits in bits). An array that is updated in place is
// read and written. Not counted are single numbers (a loss, the factors of an update), what one kernel of a
// pass leaves for its next, and what the processor's caches move again.
//
// Products and collectives are no passes: what they copy, round or encode is theirs.

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant::runtime {

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

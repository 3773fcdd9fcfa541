// SPDX-License-Identifier: Apache-2.0
//
// Backend for blocking calls on host memory within a node (shared_slots.hpp). Short messages pass through memory that the ranks share; of
// long ones, each rank tells the others where its numbers are, and they read them there. Either way a call has two or three steps, however
// long it is, because ranks that share a core wait long for each step. Sums are added in the order of the ranks, so all ranks get the same
// bits.

#include "runtime/backends/reduction.hpp"
#include "runtime/backends/shared_slots.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace orthant::runtime::detail {
namespace {

void copy_bytes(std::byte* into, std::byte const* from, std::int64_t count) {
  if (count > 0) std::memcpy(into, from, static_cast<std::size_t>(count));
}

/// True if the message is short enough for the slots.
bool fits_in_slot(Call const& call, std::int64_t slot_bytes) {
  constexpr std::int64_t most_copied_twice = 8192; // from there on, reading where the numbers are is faster
  auto const bytes = [&](std::int64_t count) {
    return count * static_cast<std::int64_t>(size_of(call.type));
  };
  switch (call.operation) {
  case Operation::all_reduce:
    return bytes(call.receive_count) <= slot_bytes;
  case Operation::reduce_scatter:
    return bytes(call.send_count) <= slot_bytes;
  case Operation::all_to_all: // with counts, ranks do not know each other's lengths
    return call.send_counts.empty() && bytes(call.send_count) <= most_copied_twice;
  default:
    return bytes(call.receive_count) <= most_copied_twice;
  }
}

using Scratch = std::array<std::vector<std::byte>, 3>;

/// One call.
class SharedCall {
 public:
  SharedCall(SharedSlots& slots, Scratch& scratch, Call const& call)
      : slots_(slots),
        scratch_(scratch),
        call_(call),
        rank_(slots.rank()),
        size_(slots.size()),
        element_bytes_(static_cast<std::int64_t>(size_of(call.type))),
        send_(static_cast<std::byte const*>(call.send)),
        receive_(static_cast<std::byte*>(call.receive)),
        fits_(fits_in_slot(call, slots.slot_bytes())) {}

  void run() {
    switch (call_.operation) {
    case Operation::all_reduce:
      return fits_ ? all_reduce_in_slots() : all_reduce();
    case Operation::reduce_scatter:
      return reduce_scatter();
    case Operation::all_gather:
      return all_gather();
    case Operation::all_to_all:
      return all_to_all();
    default:
      return broadcast();
    }
  }

 private:
  static constexpr std::int64_t most_added_by_all = std::int64_t{16} << 10;
  static constexpr std::int64_t piece_bytes = std::int64_t{128} << 10; // stays in the cache until it is added
  using Begins = std::vector<std::int64_t>;                            // bytes, one more than ranks

  [[nodiscard]] std::int64_t bytes(std::int64_t count) const { return count * element_bytes_; }
  /// Of parts of `total` numbers; without counts, of parts that differ by one at most.
  [[nodiscard]] Begins begins_in_bytes(std::span<std::int64_t const> counts, std::int64_t total) const {
    Begins begins{0};
    for (int r = 0; r < size_; ++r)
      begins.push_back(counts.empty() ? bytes(balanced_range(total, size_, r).end)
                                      : begins.back() + bytes(counts[index(r)]));
    return begins;
  }
  /// Calls work(r) for the other ranks, each rank in an order of its own.
  template<class Work>
  void for_each_other(Work&& work) const {
    for (int i = 1; i < size_; ++i)
      work((rank_ + i) % size_);
  }

  void tell(void const* address) {
    std::memcpy(slots_.begin_step(), &address, sizeof address);
    slots_.publish();
  }
  [[nodiscard]] std::byte const* told_by(int rank) const {
    std::byte const* address = nullptr;
    std::memcpy(&address, slots_.slot_of(rank), sizeof address);
    return address;
  }

  /// out := operand(0) op operand(1) op .., in this order. `out` may be this rank's operand.
  template<class Operand>
  void reduce_in_order(std::byte* out, std::int64_t num_bytes, Operand&& operand) {
    auto const count = num_bytes / element_bytes_;
    auto* const sum = rank_ < 2 ? out : scratch(0, num_bytes); // own numbers are read before the second sum
    auto const* const first = operand(0);
    reduce(call_, sum, first, operand(1), count);
    for (int r = 2; r < size_; ++r)
      reduce(call_, sum, sum, operand(r), count);
    if (sum != out) copy_bytes(out, sum, num_bytes);
  }
  /// The same for the numbers [begin, end) behind the address that each rank has told, in pieces that stay in the cache.
  void read_and_reduce(std::byte* out, std::byte const* own, std::int64_t begin, std::int64_t end) {
    for (auto place = begin; place < end; place += piece_bytes) {
      auto const length = std::min(piece_bytes, end - place);
      reduce_in_order(out + (place - begin), length, [&](int r) -> std::byte const* {
        if (r == rank_) return own + place;
        auto* const piece = scratch(r == 0 ? 1 : 2, piece_bytes); // the first two are needed at once
        slots_.read(r, piece, told_by(r) + place, length);
        return piece;
      });
    }
  }

  void all_reduce_in_slots() {
    auto const num_bytes = bytes(call_.receive_count);
    copy_bytes(slots_.begin_step(), receive_, num_bytes);
    slots_.publish();
    if (num_bytes <= most_added_by_all)
      return reduce_in_order(receive_, num_bytes, [&](int r) { return slots_.slot_of(r); });
    auto const begins = begins_in_bytes({}, call_.receive_count); // each rank adds its part
    auto const begin = begins[index(rank_)];
    auto const length = begins[index(rank_) + 1] - begin;
    reduce_in_order(receive_ + begin, length, [&](int r) { return slots_.slot_of(r) + begin; });
    copy_bytes(slots_.begin_step(), receive_ + begin, length);
    slots_.publish();
    for_each_other([&](int r) {
      auto const of_other = begins[index(r)];
      copy_bytes(receive_ + of_other, slots_.slot_of(r), begins[index(r) + 1] - of_other);
    });
  }

  /// A rank writes its part of the sums over its own numbers: the others do not read these.
  void all_reduce() {
    auto const begins = begins_in_bytes({}, call_.receive_count);
    auto const begin = begins[index(rank_)];
    tell(receive_);
    read_and_reduce(receive_ + begin, receive_, begin, begins[index(rank_) + 1]);
    tell(receive_); // again, as this rank's sums are there now
    for_each_other([&](int r) {
      auto const of_other = begins[index(r)];
      slots_.read(r, receive_ + of_other, told_by(r) + of_other, begins[index(r) + 1] - of_other);
    });
    slots_.wait_for_all();
  }

  void reduce_scatter() {
    auto const begins = begins_in_bytes(call_.send_counts, call_.send_count);
    auto const begin = begins[index(rank_)];
    auto const length = begins[index(rank_) + 1] - begin;
    if (fits_) {
      auto* const into = slots_.begin_step();
      for_each_other([&](int r) {
        auto const of_other = begins[index(r)];
        copy_bytes(into + of_other, send_ + of_other, begins[index(r) + 1] - of_other);
      });
      slots_.publish();
      return reduce_in_order(receive_, length,
                             [&](int r) { return r == rank_ ? send_ + begin : slots_.slot_of(r) + begin; });
    }
    tell(send_);
    read_and_reduce(receive_, send_, begin, begin + length);
    slots_.wait_for_all();
  }

  void all_gather() {
    auto const begins = begins_in_bytes(call_.receive_counts, call_.receive_count);
    auto* const own = receive_ + begins[index(rank_)];
    auto const own_bytes = begins[index(rank_) + 1] - begins[index(rank_)];
    if (fits_)
      copy_bytes(slots_.begin_step(), send_, own_bytes);
    else
      std::memcpy(slots_.begin_step(), &send_, sizeof send_);
    slots_.publish();
    if (send_ != own && own_bytes > 0) std::memmove(own, send_, index(own_bytes));
    for_each_other([&](int r) {
      auto const length = begins[index(r) + 1] - begins[index(r)];
      if (fits_)
        copy_bytes(receive_ + begins[index(r)], slots_.slot_of(r), length);
      else
        slots_.read(r, receive_ + begins[index(r)], told_by(r), length);
    });
    if (!fits_) slots_.wait_for_all();
  }

  void all_to_all() {
    auto const sent = begins_in_bytes(call_.send_counts, call_.send_count);
    auto const received = begins_in_bytes(call_.receive_counts, call_.receive_count);
    auto* const into = slots_.begin_step();
    if (fits_) {
      copy_bytes(into, send_, sent.back());
    } else { // where the numbers are, and where in them the parts begin
      std::memcpy(into, &send_, sizeof send_);
      std::memcpy(into + sizeof send_, sent.data(), sent.size() * sizeof sent[0]);
    }
    slots_.publish();
    if (!keeps_own_part(call_, rank_))
      copy_bytes(receive_ + received[index(rank_)], send_ + sent[index(rank_)],
                 sent[index(rank_) + 1] - sent[index(rank_)]);
    for_each_other([&](int r) {
      auto* const part = receive_ + received[index(r)];
      auto const length = received[index(r) + 1] - received[index(r)];
      if (fits_) return copy_bytes(part, slots_.slot_of(r) + sent[index(rank_)], length);
      std::int64_t begin = 0;
      std::memcpy(&begin, slots_.slot_of(r) + sizeof send_ + index(rank_) * sizeof begin, sizeof begin);
      slots_.read(r, part, told_by(r) + begin, length);
    });
    if (!fits_) slots_.wait_for_all();
  }

  void broadcast() {
    auto const num_bytes = bytes(call_.receive_count);
    auto const is_root = rank_ == call_.peer;
    if (fits_) {
      auto* const into = slots_.begin_step();
      if (is_root) copy_bytes(into, receive_, num_bytes);
      slots_.publish();
      if (!is_root) copy_bytes(receive_, slots_.slot_of(call_.peer), num_bytes);
      return;
    }
    tell(receive_);
    if (!is_root) slots_.read(call_.peer, receive_, told_by(call_.peer), num_bytes);
    slots_.wait_for_all();
  }

  std::byte* scratch(std::size_t slot, std::int64_t num_bytes) {
    auto& buffer = scratch_[slot];
    if (buffer.size() < index(num_bytes)) buffer.resize(index(num_bytes));
    return buffer.data();
  }

  SharedSlots& slots_;
  Scratch& scratch_;
  Call const& call_;
  int rank_, size_;
  std::int64_t element_bytes_;
  std::byte const* send_;
  std::byte* receive_;
  bool fits_;
};

class SharedMemoryBackend final : public Backend {
 public:
  explicit SharedMemoryBackend(std::unique_ptr<SharedSlots> slots) : slots_(std::move(slots)) {}

  bool takes(Call const& call, Mode mode) const override {
    if (mode != Mode::blocking || call.wire != Wire::native || call.on_device || is_arg_max(call))
      return false;
    switch (call.operation) {
    case Operation::all_reduce:
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
    case Operation::broadcast:
      // Encoded numbers come in calls of more bytes than this one.
      return slots_->can_read() || (call.type != DataType::byte && fits_in_slot(call, slots_->slot_bytes()));
    default:
      return false;
    }
  }
  bool is_ordered_by_stream() const override { return false; }
  std::unique_ptr<Exchange> begin(Communicator const& /*comm*/, Call const& call, Mode /*mode*/) override {
    SharedCall(*slots_, scratch_, call).run();
    return nullptr;
  }

 private:
  std::unique_ptr<SharedSlots> slots_;
  Scratch scratch_;
};

} // namespace

std::unique_ptr<Backend> make_shared_memory_backend(Communicator const& comm, bool may_read) {
  if (comm.size() == 1 || !comm.shares_memory()) return nullptr;
  auto slots = SharedSlots::make(comm, may_read);
  auto const is_first = comm.axis() == "world"; // one line for all groups of a job
  if (comm.is_root() && is_first && may_read && (!slots || !slots->can_read()))
    comm.instruments().log.info("the ranks of this node cannot {}: their {} messages go through MPI",
                                slots ? "read each other's memory" : "map shared memory",
                                slots ? "long" : "own");
  if (!slots) return nullptr;
  return std::make_unique<SharedMemoryBackend>(std::move(slots));
}

} // namespace orthant::runtime::detail

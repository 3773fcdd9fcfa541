// SPDX-License-Identifier: Apache-2.0
//
// Backend for host memory that carries out all_gather, reduce_scatter and all_reduce by lists of rounds (comm/rounds.hpp), and all_to_all
// in two levels, with messages of MPI. It leaves all other calls to the backends behind it.
//
// Sums are added in an order that the list decides. All ranks get the same bits of an all_reduce, because each part of it is added on one
// rank (ring, recursive, two_level) or by pairs of ranks that exchange their operands (doubling, nvrar).

#include "runtime/backends/phased_exchange.hpp"
#include "runtime/backends/reduction.hpp"
#include "runtime/backends/two_level_all_to_all.hpp"
#include "runtime/comm/algorithm_choice.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

namespace orthant::runtime::detail {
namespace {

/// A list of rounds. A message whose parts do not lie side by side, or whose parts are added, passes through scratch memory in pieces: one
/// is added or put in place, in the processor's cache, while the next one arrives.
class RoundExchange final : public PhasedExchange {
 public:
  RoundExchange(Communicator const& comm, MPI_Comm messages, int tag, Call const& call,
                std::vector<Round> const& rounds)
      : PhasedExchange(comm, messages, tag, call),
        rounds_(rounds) {}

 private:
  enum Slot : std::size_t { packed, arriving, sums };

  struct Part {
    std::byte const* source; // operand, or sum so far
    std::byte* target;
    std::int64_t num_bytes;
  };

  void begin() override;
  bool advance(bool waits) override;
  void begin_round(Round const& round);
  void receive_piece(Round const& round);
  void take_piece(Round const& round);
  [[nodiscard]] std::int64_t num_bytes_of(std::vector<int> const& parts) const {
    std::int64_t sum = 0;
    for (auto const part : parts)
      sum += parts_[index(part)].num_bytes;
    return sum;
  }
  [[nodiscard]] std::byte* half(std::int64_t offset) {
    return scratch(arriving, std::min(2 * piece_bytes_, message_bytes_)) +
           offset / piece_bytes_ % 2 * piece_bytes_;
  }

  std::vector<Round> const& rounds_;
  std::vector<Part> parts_;
  std::size_t round_ = 0;
  bool has_begun_ = false;
  // The message that arrives in pieces.
  std::int64_t message_bytes_ = 0; // 0: it arrives in its place
  std::int64_t asked_ = 0;         // bytes that MPI may receive so far
  std::int64_t taken_ = 0;
  std::size_t part_ = 0; // of round.received: the next byte belongs to it
  std::int64_t offset_in_part_ = 0;
  std::array<MPI_Request, 2> pieces_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

void RoundExchange::begin() {
  auto const size = comm_.size();
  auto const& counts =
      call_.operation == Operation::reduce_scatter ? call_.send_counts : call_.receive_counts;
  auto const is_scatter = call_.operation == Operation::reduce_scatter;
  auto const num_elements = is_scatter ? call_.send_count : call_.receive_count;
  auto* const result = static_cast<std::byte*>(call_.receive);
  auto* const sums_of_others = is_scatter ? scratch(sums, num_elements * element_bytes_) : nullptr;
  std::int64_t begin = 0;
  for (int r = 0; r < size; ++r) {
    auto const count = counts.empty() ? balanced_range(num_elements, size, r).size() : counts[index(r)];
    auto const is_own = r == comm_.rank();
    auto* target = is_scatter ? (is_own ? result : sums_of_others + begin) : result + begin;
    auto const* source = is_scatter ? static_cast<std::byte const*>(call_.send) + begin : target;
    if (call_.operation == Operation::all_gather && is_own && call_.send != target && count > 0)
      std::memmove(target, call_.send, static_cast<std::size_t>(count * element_bytes_));
    parts_.push_back({source, target, count * element_bytes_});
    begin += count * element_bytes_;
  }
  advance(false);
}

void RoundExchange::begin_round(Round const& round) {
  auto const are_adjacent = [&](std::vector<int> const& parts, auto&& address) {
    for (std::size_t i = 1; i < parts.size(); ++i)
      if (address(parts_[index(parts[i])]) !=
          address(parts_[index(parts[i - 1])]) + parts_[index(parts[i - 1])].num_bytes)
        return false;
    return true;
  };
  auto const target = [](Part const& part) -> std::byte const* { return part.target; };
  auto const num_received = num_bytes_of(round.received);
  message_bytes_ = asked_ = taken_ = offset_in_part_ = 0;
  part_ = 0;
  if (round.adds || !are_adjacent(round.received, target)) {
    message_bytes_ = num_received;
    receive_piece(round);
    receive_piece(round);
  } else if (num_received > 0) {
    receive(parts_[index(round.received.front())].target, num_received, round.from);
  }
  auto const num_sent = num_bytes_of(round.sent);
  if (num_sent == 0) return;
  auto const* message = parts_[index(round.sent.front())].source;
  auto const changes_while_sent = round.adds && round.sent == round.received;
  if (changes_while_sent || !are_adjacent(round.sent, [](Part const& part) { return part.source; })) {
    auto* into = scratch(packed, num_sent);
    message = into;
    for (auto const part : round.sent) {
      auto const num_bytes = parts_[index(part)].num_bytes;
      std::memcpy(into, parts_[index(part)].source, static_cast<std::size_t>(num_bytes));
      into += num_bytes;
    }
  }
  send(message, num_sent, round.to);
}

void RoundExchange::receive_piece(Round const& round) {
  auto const length = std::min(piece_bytes_, message_bytes_ - asked_);
  if (length == 0) return;
  ORTHANT_MPI(MPI_Irecv(half(asked_), static_cast<int>(length), MPI_BYTE, round.from, tag_, messages_,
                        &pieces_[index(asked_ / piece_bytes_ % 2)]));
  asked_ += length;
}

/// Adds the piece that has arrived to its parts, or puts it there.
void RoundExchange::take_piece(Round const& round) {
  auto const* piece = half(taken_);
  auto left = std::min(piece_bytes_, message_bytes_ - taken_);
  taken_ += left;
  while (left > 0) {
    auto& part = parts_[index(round.received[part_])];
    auto const length = std::min(left, part.num_bytes - offset_in_part_);
    auto* const into = part.target + offset_in_part_;
    auto const* const own = part.source + offset_in_part_;
    if (!round.adds)
      std::memcpy(into, piece, static_cast<std::size_t>(length));
    else if (round.from < comm_.rank()) // the same order on both ranks of a pair
      reduce(call_, into, piece, own, length / element_bytes_);
    else
      reduce(call_, into, own, piece, length / element_bytes_);
    piece += length;
    left -= length;
    offset_in_part_ += length;
    if (offset_in_part_ == part.num_bytes) {
      part.source = part.target;
      ++part_;
      offset_in_part_ = 0;
    }
  }
}

bool RoundExchange::advance(bool waits) {
  for (; round_ < rounds_.size(); ++round_, has_begun_ = false) {
    auto const& round = rounds_[round_];
    if (!std::exchange(has_begun_, true)) begin_round(round);
    while (taken_ < message_bytes_) {
      auto& piece = pieces_[index(taken_ / piece_bytes_ % 2)];
      int has_arrived = 1;
      if (waits)
        ORTHANT_MPI(MPI_Wait(&piece, MPI_STATUS_IGNORE));
      else
        ORTHANT_MPI(MPI_Test(&piece, &has_arrived, MPI_STATUS_IGNORE));
      if (has_arrived == 0) return false;
      take_piece(round);
      receive_piece(round);
    }
    if (!are_over(waits)) return false;
  }
  return true;
}

class RoundBackend final : public Backend {
 public:
  RoundBackend(Communicator const& comm, std::shared_ptr<JobAlgorithms const> algorithms,
               std::shared_ptr<Progress> progress)
      : axis_(comm.axis()),
        rank_(comm.rank()),
        shape_(shape_of(comm.job_ranks(), algorithms->node_of_rank)),
        algorithms_(std::move(algorithms)),
        progress_(std::move(progress)) {
    MPI_Comm copy = MPI_COMM_NULL; // so that any tag is free
    ORTHANT_MPI(MPI_Comm_dup(comm.mpi(), &copy));
    messages_ = MpiComm(copy);
    ORTHANT_MPI(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  }

  bool takes(Call const& call, Mode /*mode*/) const override {
    return algorithm_of(call) != Algorithm::library;
  }
  bool is_ordered_by_stream() const override { return false; }
  std::shared_ptr<Progress> progress() const override { return progress_; }
  MatchTags* tags() override { return &tags_; }

  std::unique_ptr<Exchange> begin(Communicator const& comm, Call const& call, Mode mode) override {
    // Gathers with tags may begin in different orders on the ranks.
    auto const tag = call.tag > 0 ? num_own_tags + call.tag : static_cast<int>(num_calls_++ % num_own_tags);
    std::unique_ptr<PhasedExchange> exchange;
    if (call.operation == Operation::all_to_all)
      exchange = std::make_unique<TwoLevelAllToAll>(comm, messages_.get(), tag, call, shape_);
    else
      exchange = std::make_unique<RoundExchange>(comm, messages_.get(), tag, call,
                                                 rounds(call.operation, list_of(call)));
    exchange->start(progress_, mode);
    return mode == Mode::blocking ? nullptr : std::move(exchange);
  }

 private:
  static constexpr int num_own_tags = max_user_tag - MatchTags::num_tags;

  /// Encoded numbers are accepted by their count and come as bytes, for which a table may prefer the library.
  [[nodiscard]] Algorithm list_of(Call const& call) const {
    auto const algorithm = algorithm_of(call);
    return algorithm == Algorithm::library ? Algorithm::recursive : algorithm;
  }

  /// The library for calls that this backend leaves to others.
  [[nodiscard]] Algorithm algorithm_of(Call const& call) const {
    if (call.wire != Wire::native || call.on_device || is_arg_max(call)) return Algorithm::library;
    auto const choice = [&](std::int64_t count) {
      return algorithms_->choice.of(call.operation, axis_, shape_,
                                    count * static_cast<std::int64_t>(size_of(call.type)));
    };
    switch (call.operation) {
    case Operation::all_reduce:
    case Operation::all_gather:
      return choice(call.receive_count);
    case Operation::reduce_scatter:
      return choice(call.send_count);
    case Operation::
        all_to_all: // with counts, the number of bytes may differ between ranks; without, it follows the same choice
      return choice(0);
    default:
      return Algorithm::library;
    }
  }
  std::vector<Round> const& rounds(Operation operation, Algorithm algorithm) {
    auto const [entry, is_new] = rounds_.try_emplace({operation, algorithm});
    if (is_new) entry->second = rounds_of(operation, algorithm, shape_, rank_);
    return entry->second;
  }

  std::string axis_;
  int rank_;
  NodeShape shape_;
  std::shared_ptr<JobAlgorithms const> algorithms_;
  std::shared_ptr<Progress> progress_;
  MpiComm messages_;
  MatchTags tags_;
  std::int64_t num_calls_ = 0; // without tags of their own; equal on all ranks
  std::map<std::pair<Operation, Algorithm>, std::vector<Round>> rounds_;
};

} // namespace

std::unique_ptr<Backend> make_round_backend(Communicator const& comm,
                                            std::shared_ptr<JobAlgorithms const> algorithms,
                                            std::shared_ptr<Progress> progress) {
  if (comm.size() == 1 || algorithms->choice.is_library(comm.axis())) return nullptr;
  return std::make_unique<RoundBackend>(comm, std::move(algorithms), std::move(progress));
}

} // namespace orthant::runtime::detail

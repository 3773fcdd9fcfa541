#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sends any number of small records to the ranks that own them, in rounds of bounded memory: each rank fills
// an outbox, one all_to_allv delivers all of them, each rank consumes what arrived, until no rank has more.

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace orthant::graph {

/// What one rank sends in one round. Lives across rounds, so its storage is used again.
template<class Record>
class Outbox {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % sizeof(std::int32_t) == 0);

 public:
  Outbox(int num_ranks, std::int64_t capacity)
      : counts_(static_cast<std::size_t>(num_ranks)),
        capacity_(static_cast<std::size_t>(capacity)) {
    records_.reserve(capacity_);
    if (num_ranks > 1) destinations_.reserve(capacity_);
  }

  [[nodiscard]] bool is_full() const { return records_.size() >= capacity_; }
  /// Records that fit until it is full; producers that cannot stop at once may go beyond.
  [[nodiscard]] std::int64_t room() const {
    return is_full() ? 0 : static_cast<std::int64_t>(capacity_ - records_.size());
  }
  void push(int destination, Record const& record) {
    records_.push_back(record);
    if (counts_.size() > 1) destinations_.push_back(destination);
    ++counts_[static_cast<std::size_t>(destination)];
  }

  /// Delivers: returns this rank's arrivals of the round, valid until the next call, ordered by sender and
  /// then as pushed, and empties the outbox. `has_more` becomes true where any rank's was. Collective.
  [[nodiscard]] std::span<Record const> deliver(runtime::Communicator const& comm, bool& has_more);

 private:
  std::vector<Record> records_;
  std::vector<std::int32_t> destinations_;
  std::vector<std::int64_t> counts_;
  std::size_t capacity_;
  std::vector<Record> sorted_;
  std::vector<Record> arrived_;
  std::vector<std::int64_t> headers_; // [2 x ranks] to send, then to receive
};

/// Largest number of records a rank puts in one round, such that what all ranks send to one of them stays
/// bounded too.
[[nodiscard]] constexpr std::int64_t records_per_round(int num_ranks) {
  constexpr std::int64_t usual = std::int64_t{1} << 18;
  constexpr std::int64_t most_arriving = std::int64_t{1} << 23;
  return std::max<std::int64_t>(256, std::min(usual, most_arriving / num_ranks));
}
[[nodiscard]] inline std::int64_t records_per_round(runtime::Communicator const& comm) {
  return records_per_round(comm.size());
}

/// Runs rounds until every rank's producer is done.
/// produce(outbox) fills the outbox until it is full or nothing is left, and returns whether more is to come;
///                 it may throw: the error is made everybody's.
/// consume(span)   takes what arrived; must not throw on one rank alone.
/// Collective.
template<class Record, class Produce, class Consume>
void exchange(runtime::Communicator const& comm, Outbox<Record>& outbox, Produce&& produce,
              Consume&& consume) {
  bool mine = true;
  for (bool has_more = true; has_more;) {
    mine = runtime::together(comm, [&] { return mine && produce(outbox); });
    has_more = mine;
    consume(outbox.deliver(comm, has_more));
  }
}

template<class Record, class Produce, class Consume>
void exchange(runtime::Communicator const& comm, Produce&& produce, Consume&& consume) {
  Outbox<Record> outbox(comm.size(), records_per_round(comm));
  exchange(comm, outbox, produce, consume);
}

template<class Record>
std::span<Record const> Outbox<Record>::deliver(runtime::Communicator const& comm, bool& has_more) {
  auto const num_ranks = counts_.size();
  if (num_ranks == 1) {
    arrived_.swap(records_);
    records_.clear();
    records_.reserve(capacity_);
    counts_[0] = 0;
    return arrived_;
  }

  // Counts and the wish for another round travel together.
  headers_.assign(4 * num_ranks, 0);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    headers_[2 * rank] = counts_[rank];
    headers_[2 * rank + 1] = has_more ? 1 : 0;
  }
  std::span<std::int64_t> const all(headers_);
  runtime::all_to_all(runtime::host, comm, all.first(2 * num_ranks), all.last(2 * num_ranks));

  constexpr auto words = static_cast<std::int64_t>(sizeof(Record) / sizeof(std::int32_t));
  std::vector<std::int64_t> starts(num_ranks + 1, 0);
  std::vector<std::int64_t> send_words(num_ranks);
  std::vector<std::int64_t> receive_words(num_ranks);
  std::int64_t num_arriving = 0;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    starts[rank + 1] = starts[rank] + counts_[rank];
    send_words[rank] = counts_[rank] * words;
    auto const* const header = &headers_[2 * num_ranks + 2 * rank];
    receive_words[rank] = header[0] * words;
    num_arriving += header[0];
    has_more = has_more || header[1] != 0;
  }

  sorted_.resize(records_.size());
  for (std::size_t i = 0; i < records_.size(); ++i)
    sorted_[static_cast<std::size_t>(starts[static_cast<std::size_t>(destinations_[i])]++)] = records_[i];
  arrived_.resize(static_cast<std::size_t>(num_arriving));
  auto const as_words = [](auto* data, std::size_t count) {
    using Word = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                                    std::int32_t const, std::int32_t>;
    return std::span<Word>(reinterpret_cast<Word*>(data), count * static_cast<std::size_t>(words));
  };
  runtime::all_to_allv(runtime::host, comm, as_words(std::as_const(sorted_).data(), sorted_.size()),
                       send_words, as_words(arrived_.data(), arrived_.size()), receive_words);

  records_.clear();
  destinations_.clear();
  std::fill(counts_.begin(), counts_.end(), 0);
  return arrived_;
}

} // namespace orthant::graph

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sends any number of small records to their owner ranks, in rounds of bounded memory: each rank fills an outbox, one all_to_allv delivers
// all outboxes, and each rank consumes the records that arrived, until no rank has more.

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

/// Records that one rank sends in one round. The object is reused in all rounds to reuse its storage.
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
  /// Number of records that still fit; producers that cannot stop at once may push more.
  [[nodiscard]] std::int64_t room() const {
    return is_full() ? 0 : static_cast<std::int64_t>(capacity_ - records_.size());
  }
  void push(int destination, Record const& record) {
    records_.push_back(record);
    if (counts_.size() > 1) destinations_.push_back(destination);
    ++counts_[static_cast<std::size_t>(destination)];
  }

  /// Sends the records and empties the outbox. Returns the records that this rank received, valid until the next call, ordered by sender
  /// and then as pushed. Sets `has_more` to true if it was true on any rank. Collective.
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

/// Largest number of records that a rank sends per round, such that the number of records that one rank receives is also bounded.
[[nodiscard]] constexpr std::int64_t records_per_round(int num_ranks) {
  constexpr std::int64_t usual = std::int64_t{1} << 18;
  constexpr std::int64_t most_arriving = std::int64_t{1} << 23;
  return std::max<std::int64_t>(256, std::min(usual, most_arriving / num_ranks));
}
[[nodiscard]] inline std::int64_t records_per_round(runtime::Communicator const& comm) {
  return records_per_round(comm.size());
}

/// Runs rounds until every rank's producer has finished. Collective.
/// produce(outbox)  fills the outbox until it is full or nothing is left, and returns true if it has more records.
///                  If it throws, all ranks throw the error.
/// consume(span)    processes the received records; must not throw on one rank alone.
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

  // Counts and `has_more` are sent together.
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

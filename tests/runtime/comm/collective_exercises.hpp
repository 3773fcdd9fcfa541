#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Every collective once, on one group, against a serial computation, its calls and bytes against the closed
// forms of docs/design.md 2.4.

#include "exercise_buffers.hpp"
#include "exercise_numbers.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace orthant::testing {

enum class Mode { blocking, asynchronous };

template<class T, class Storage>
class Exercises {
 public:
  using Reduction = runtime::Reduction;
  using Operation = runtime::Operation;
  using Length = std::int64_t;

  Exercises(runtime::Communicator const& comm, int group, Mode mode, std::vector<Length> lengths)
      : comm_(comm),
        numbers_(group, comm.size()),
        mode_(mode),
        lengths_(std::move(lengths)),
        stream_(Storage::stream()) {}

  void all() const {
    for (auto const length : lengths_) {
      SCOPED_TRACE(::testing::Message() << "length " << length << ", group of " << size() << " on "
                                        << comm_.axis() << ", chunk limit " << comm_.chunk_limit()
                                        << (mode_ == Mode::blocking ? ", blocking" : ", asynchronous"));
      for (auto const reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
        all_reduce(length, reduction);
        reduce_scatter(length, reduction);
        reduce_scatterv(length, reduction);
      }
      all_gather(length);
      all_gatherv(length);
      all_gather_in_place(length);
      for (int root = 0; root < size(); ++root)
        broadcast(length, root);
      all_to_all(length);
      all_to_allv(length);
      shift(length);
      if constexpr (std::is_same_v<Storage, InVector>) exclusive_scan(length);
    }
    barrier();
  }

 private:
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] int rank() const { return comm_.rank(); }

  template<class Run, class Start>
  void perform(Run&& run, Start&& start) const {
    if (mode_ == Mode::blocking) return run();
    auto request = start();
    request.wait();
  }

  /// Checks what the ledger has gained since it was made.
  class Counted {
   public:
    Counted(Exercises const& exercises, Operation operation, Length elements)
        : ledger_(exercises.comm_.ledger()),
          operation_(operation),
          before_(ledger_[operation]),
          bytes_(exercises.size() == 1 ? 0 : elements * static_cast<Length>(sizeof(T))),
          calls_(exercises.size() == 1 ? 0 : 1),
          total_(ledger_.total()) {}
    Counted(Counted const&) = delete;
    Counted& operator=(Counted const&) = delete;
    ~Counted() {
      auto const& now = ledger_[operation_];
      EXPECT_EQ(now.calls - before_.calls, calls_) << name_of(operation_);
      EXPECT_EQ(now.bytes - before_.bytes, bytes_) << name_of(operation_);
      EXPECT_EQ(ledger_.total().calls - total_.calls, calls_) << "beside " << name_of(operation_);
    }

   private:
    runtime::Ledger const& ledger_;
    Operation operation_;
    runtime::LedgerEntry before_;
    Length bytes_;
    Length calls_;
    runtime::LedgerEntry total_;
  };

  void all_reduce(Length length, Reduction reduction) const {
    auto data = Storage::put(numbers_.entries(rank(), length));

    {
      Counted const counted(*this, Operation::all_reduce, length);
      perform([&] { runtime::all_reduce(stream_, comm_, data, reduction); },
              [&] { return runtime::start_all_reduce(stream_, comm_, data, reduction); });
    }

    auto expected = numbers_.blank(length);
    for (Length i = 0; i < length; ++i)
      expected[static_cast<std::size_t>(i)] = numbers_.reduced(i, reduction);
    EXPECT_EQ(Storage::template get<T>(data), expected) << "all_reduce";
  }

  void exclusive_scan(Length length) const {
    auto data = numbers_.entries(rank(), length);

    {
      Counted const counted(*this, Operation::exclusive_scan, length);
      runtime::exclusive_scan(comm_, data);
    }

    std::vector<T> expected(static_cast<std::size_t>(length));
    for (int earlier = 0; earlier < rank(); ++earlier)
      for (Length i = 0; i < length; ++i)
        expected[static_cast<std::size_t>(i)] += numbers_.entry(earlier, i);
    EXPECT_EQ(data, expected) << "exclusive_scan";
  }

  void reduce_scatter(Length length, Reduction reduction) const {
    auto const in = Storage::put(numbers_.entries(rank(), length * size()));
    auto out = Storage::put(numbers_.blank(length));

    {
      Counted const counted(*this, Operation::reduce_scatter, length * size());
      perform([&] { runtime::reduce_scatter(stream_, comm_, in, out, reduction); },
              [&] { return runtime::start_reduce_scatter(stream_, comm_, in, out, reduction); });
    }

    auto expected = numbers_.blank(length);
    for (Length i = 0; i < length; ++i)
      expected[static_cast<std::size_t>(i)] = numbers_.reduced(rank() * length + i, reduction);
    EXPECT_EQ(Storage::template get<T>(out), expected) << "reduce_scatter";
    EXPECT_EQ(Storage::template get<T>(in), numbers_.entries(rank(), length * size())) << "the input is kept";
  }

  void reduce_scatterv(Length length, Reduction reduction) const {
    auto const counts = numbers_.uneven(length);
    auto const own = counts[static_cast<std::size_t>(rank())];
    auto const in = Storage::put(numbers_.entries(rank(), numbers_.sum_of(counts)));
    auto out = Storage::put(numbers_.blank(own));

    {
      Counted const counted(*this, Operation::reduce_scatter, numbers_.sum_of(counts));
      perform([&] { runtime::reduce_scatterv(stream_, comm_, in, out, counts, reduction); },
              [&] { return runtime::start_reduce_scatterv(stream_, comm_, in, out, counts, reduction); });
    }

    auto expected = numbers_.blank(own);
    auto const begin = std::accumulate(counts.begin(), counts.begin() + rank(), Length{0});
    for (Length i = 0; i < own; ++i)
      expected[static_cast<std::size_t>(i)] = numbers_.reduced(begin + i, reduction);
    EXPECT_EQ(Storage::template get<T>(out), expected) << "reduce_scatterv";
  }

  void all_gather(Length length) const {
    auto const in = Storage::put(numbers_.entries(rank(), length));
    auto out = Storage::put(numbers_.blank(length * size()));

    {
      Counted const counted(*this, Operation::all_gather, length * size());
      perform([&] { runtime::all_gather(stream_, comm_, in, out); },
              [&] { return runtime::start_all_gather(stream_, comm_, in, out); });
    }

    EXPECT_EQ(Storage::template get<T>(out),
              numbers_.gathered(std::vector<Length>(static_cast<std::size_t>(size()), length)))
        << "all_gather";
  }

  void all_gatherv(Length length) const {
    auto const counts = numbers_.uneven(length);
    auto const in = Storage::put(numbers_.entries(rank(), counts[static_cast<std::size_t>(rank())]));
    auto out = Storage::put(numbers_.blank(numbers_.sum_of(counts)));

    {
      Counted const counted(*this, Operation::all_gather, numbers_.sum_of(counts));
      perform([&] { runtime::all_gatherv(stream_, comm_, in, out, counts); },
              [&] { return runtime::start_all_gatherv(stream_, comm_, in, out, counts); });
    }

    EXPECT_EQ(Storage::template get<T>(out), numbers_.gathered(counts)) << "all_gatherv";
  }

  /// Each rank's part already stands in its place; with equal and with uneven parts.
  void all_gather_in_place(Length length) const {
    if constexpr (std::is_same_v<Storage, InVector>) {
      auto const equal = std::vector<Length>(static_cast<std::size_t>(size()), length);
      for (auto const& counts : {equal, numbers_.uneven(length)}) {
        auto out = numbers_.blank(numbers_.sum_of(counts));
        auto const begin = std::accumulate(counts.begin(), counts.begin() + rank(), Length{0});
        auto const own =
            std::span(out).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(counts[static_cast<std::size_t>(rank())]));
        std::ranges::copy(numbers_.entries(rank(), static_cast<Length>(own.size())), own.begin());

        {
          Counted const counted(*this, Operation::all_gather, numbers_.sum_of(counts));
          perform([&] { runtime::all_gatherv(stream_, comm_, own, out, counts); },
                  [&] { return runtime::start_all_gatherv(stream_, comm_, own, std::span<T>(out), counts); });
        }

        EXPECT_EQ(out, numbers_.gathered(counts)) << "all_gather in place";
      }
    }
  }

  void broadcast(Length length, int root) const {
    auto data = Storage::put(rank() == root ? numbers_.entries(root, length) : numbers_.blank(length));

    {
      Counted const counted(*this, Operation::broadcast, length);
      perform([&] { runtime::broadcast(stream_, comm_, data, root); },
              [&] { return runtime::start_broadcast(stream_, comm_, data, root); });
    }

    EXPECT_EQ(Storage::template get<T>(data), numbers_.entries(root, length)) << "broadcast";
  }

  void all_to_all(Length length) const {
    auto const equal = [&](int, int) { return length; };
    auto const in = Storage::put(numbers_.sent_by(rank(), equal));
    auto out = Storage::put(numbers_.blank(length * size()));

    {
      Counted const counted(*this, Operation::all_to_all, length * (size() - 1));
      perform([&] { runtime::all_to_all(stream_, comm_, in, out); },
              [&] { return runtime::start_all_to_all(stream_, comm_, in, out); });
    }

    EXPECT_EQ(Storage::template get<T>(out), numbers_.received_by(rank(), equal)) << "all_to_all";
  }

  /// Rank 0 sends long messages and the others short ones or none, so the ranks' totals lie on both sides of
  /// a chunk limit between.
  void all_to_allv(Length length) const {
    auto const length_of = [&](int source, int destination) {
      return source == 0 ? length + destination : (source + destination) % 3;
    };
    std::vector<Length> send_counts;
    std::vector<Length> receive_counts;
    for (int r = 0; r < size(); ++r) {
      send_counts.push_back(length_of(rank(), r));
      receive_counts.push_back(length_of(r, rank()));
    }
    auto const in = Storage::put(numbers_.sent_by(rank(), length_of));
    auto out = Storage::put(numbers_.blank(numbers_.sum_of(receive_counts)));

    {
      Counted const counted(*this, Operation::all_to_all,
                            numbers_.sum_of(send_counts) - send_counts[static_cast<std::size_t>(rank())]);
      perform(
          [&] { runtime::all_to_allv(stream_, comm_, in, send_counts, out, receive_counts); },
          [&] { return runtime::start_all_to_allv(stream_, comm_, in, send_counts, out, receive_counts); });
    }

    EXPECT_EQ(Storage::template get<T>(out), numbers_.received_by(rank(), length_of)) << "all_to_allv";
  }

  /// Everyone sends to the next rank of a ring.
  void shift(Length length) const {
    if (size() == 1) return;
    auto const next = (rank() + 1) % size();
    auto const previous = (rank() + size() - 1) % size();
    auto const in = Storage::put(numbers_.entries(rank(), length));
    auto out = Storage::put(numbers_.blank(length));
    auto const sends = comm_.ledger()[Operation::send];
    auto const receives = comm_.ledger()[Operation::receive];

    if (mode_ == Mode::asynchronous) {
      auto receive = runtime::start_receive(stream_, comm_, out, previous, 3);
      auto send = runtime::start_send(stream_, comm_, in, next, 3);
      receive.wait();
      send.wait();
    } else if (rank() % 2 == 0) {
      runtime::send(stream_, comm_, in, next);
      runtime::receive(stream_, comm_, out, previous);
    } else {
      runtime::receive(stream_, comm_, out, previous);
      runtime::send(stream_, comm_, in, next);
    }

    EXPECT_EQ(Storage::template get<T>(out), numbers_.entries(previous, length)) << "send and receive";
    EXPECT_EQ(comm_.ledger()[Operation::send].calls, sends.calls + 1);
    EXPECT_EQ(comm_.ledger()[Operation::send].bytes, sends.bytes + length * static_cast<Length>(sizeof(T)));
    EXPECT_EQ(comm_.ledger()[Operation::receive].calls, receives.calls + 1);
    EXPECT_EQ(comm_.ledger()[Operation::receive].bytes, 0);
  }

  void barrier() const {
    Counted const counted(*this, Operation::barrier, 0);
    runtime::barrier(stream_, comm_);
  }

  runtime::Communicator const& comm_;
  ExerciseNumbers<T> numbers_;
  Mode mode_;
  std::vector<Length> lengths_;
  runtime::Stream stream_;
};

template<class Storage>
void exercise_all_types(runtime::Communicator const& comm, int group, Mode mode,
                        std::vector<std::int64_t> const& lengths) {
  Exercises<float, Storage>(comm, group, mode, lengths).all();
  Exercises<double, Storage>(comm, group, mode, lengths).all();
  Exercises<std::int32_t, Storage>(comm, group, mode, lengths).all();
  Exercises<std::int64_t, Storage>(comm, group, mode, lengths).all();
}

} // namespace orthant::testing

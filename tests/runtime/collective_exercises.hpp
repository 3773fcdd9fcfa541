#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Every collective once, on one group, against a serial computation, its calls and bytes against the closed
// forms of docs/design.md 2.4. The numbers are small integers, so sums are exact in every type and order;
// each group works with numbers of its own, so that a message that strays is seen.

#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace orthant::testing {

enum class Mode { blocking, asynchronous };

/// Where buffers live.
struct InVector {
  template<class T>
  static std::vector<T> put(std::vector<T> values) {
    return values;
  }
  template<class T>
  static std::vector<T> get(std::vector<T> const& buffer) {
    return buffer;
  }
  static runtime::Stream stream() { return runtime::host; }
};
struct InView {
  template<class T>
  using Unmanaged = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  template<class T>
  static runtime::Vector<T> put(std::vector<T> values) {
    runtime::Vector<T> view("orthant::testing::buffer", values.size());
    Kokkos::deep_copy(view, Unmanaged<T>(values.data(), values.size()));
    return view;
  }
  template<class T>
  static std::vector<T> get(runtime::Vector<T> const& view) {
    std::vector<T> values(view.extent(0));
    Kokkos::deep_copy(Unmanaged<T>(values.data(), values.size()), view);
    return values;
  }
  static runtime::Stream stream() { return runtime::DefaultExec{}; }
};

template<class T, class Storage>
class Exercises {
 public:
  using Reduction = runtime::Reduction;
  using Operation = runtime::Operation;
  using Length = std::int64_t;

  Exercises(runtime::Communicator const& comm, int group, Mode mode, std::vector<Length> lengths)
      : comm_(comm),
        group_(group),
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

  [[nodiscard]] T entry(int owner, Length i) const {
    return static_cast<T>((group_ * 31 + owner * 17 + i * 7) % 101 - 50);
  }
  [[nodiscard]] std::vector<T> entries(int owner, Length length) const {
    std::vector<T> values(static_cast<std::size_t>(length));
    for (Length i = 0; i < length; ++i)
      values[static_cast<std::size_t>(i)] = entry(owner, i);
    return values;
  }
  [[nodiscard]] std::vector<T> blank(Length length) const {
    return std::vector<T>(static_cast<std::size_t>(length), T{99});
  }
  [[nodiscard]] T reduced(Length i, Reduction reduction) const {
    auto result = entry(0, i);
    for (int r = 1; r < size(); ++r) {
      auto const next = entry(r, i);
      result = reduction == Reduction::sum   ? result + next
               : reduction == Reduction::max ? std::max(result, next)
                                             : std::min(result, next);
    }
    return result;
  }
  /// Uneven parts, every third one empty.
  [[nodiscard]] std::vector<Length> uneven(Length length) const {
    std::vector<Length> counts;
    for (int r = 0; r < size(); ++r)
      counts.push_back((r + group_) % 3 == 1 ? 0 : length + 2 * r);
    return counts;
  }
  static Length sum_of(std::vector<Length> const& counts) {
    return std::accumulate(counts.begin(), counts.end(), Length{0});
  }

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
    auto data = Storage::put(entries(rank(), length));

    {
      Counted const counted(*this, Operation::all_reduce, length);
      perform([&] { runtime::all_reduce(stream_, comm_, data, reduction); },
              [&] { return runtime::start_all_reduce(stream_, comm_, data, reduction); });
    }

    auto expected = blank(length);
    for (Length i = 0; i < length; ++i)
      expected[static_cast<std::size_t>(i)] = reduced(i, reduction);
    EXPECT_EQ(Storage::template get<T>(data), expected) << "all_reduce";
  }

  void exclusive_scan(Length length) const {
    auto data = entries(rank(), length);

    {
      Counted const counted(*this, Operation::exclusive_scan, length);
      runtime::exclusive_scan(comm_, data);
    }

    std::vector<T> expected(static_cast<std::size_t>(length));
    for (int earlier = 0; earlier < rank(); ++earlier)
      for (Length i = 0; i < length; ++i)
        expected[static_cast<std::size_t>(i)] += entry(earlier, i);
    EXPECT_EQ(data, expected) << "exclusive_scan";
  }

  void reduce_scatter(Length length, Reduction reduction) const {
    auto const in = Storage::put(entries(rank(), length * size()));
    auto out = Storage::put(blank(length));

    {
      Counted const counted(*this, Operation::reduce_scatter, length * size());
      perform([&] { runtime::reduce_scatter(stream_, comm_, in, out, reduction); },
              [&] { return runtime::start_reduce_scatter(stream_, comm_, in, out, reduction); });
    }

    auto expected = blank(length);
    for (Length i = 0; i < length; ++i)
      expected[static_cast<std::size_t>(i)] = reduced(rank() * length + i, reduction);
    EXPECT_EQ(Storage::template get<T>(out), expected) << "reduce_scatter";
    EXPECT_EQ(Storage::template get<T>(in), entries(rank(), length * size())) << "the input is kept";
  }

  void reduce_scatterv(Length length, Reduction reduction) const {
    auto const counts = uneven(length);
    auto const own = counts[static_cast<std::size_t>(rank())];
    auto const in = Storage::put(entries(rank(), sum_of(counts)));
    auto out = Storage::put(blank(own));

    {
      Counted const counted(*this, Operation::reduce_scatter, sum_of(counts));
      perform([&] { runtime::reduce_scatterv(stream_, comm_, in, out, counts, reduction); },
              [&] { return runtime::start_reduce_scatterv(stream_, comm_, in, out, counts, reduction); });
    }

    auto expected = blank(own);
    auto const begin = std::accumulate(counts.begin(), counts.begin() + rank(), Length{0});
    for (Length i = 0; i < own; ++i)
      expected[static_cast<std::size_t>(i)] = reduced(begin + i, reduction);
    EXPECT_EQ(Storage::template get<T>(out), expected) << "reduce_scatterv";
  }

  [[nodiscard]] std::vector<T> gathered(std::vector<Length> const& counts) const {
    std::vector<T> all;
    for (int r = 0; r < size(); ++r) {
      auto const part = entries(r, counts[static_cast<std::size_t>(r)]);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  void all_gather(Length length) const {
    auto const in = Storage::put(entries(rank(), length));
    auto out = Storage::put(blank(length * size()));

    {
      Counted const counted(*this, Operation::all_gather, length * size());
      perform([&] { runtime::all_gather(stream_, comm_, in, out); },
              [&] { return runtime::start_all_gather(stream_, comm_, in, out); });
    }

    EXPECT_EQ(Storage::template get<T>(out),
              gathered(std::vector<Length>(static_cast<std::size_t>(size()), length)))
        << "all_gather";
  }

  void all_gatherv(Length length) const {
    auto const counts = uneven(length);
    auto const in = Storage::put(entries(rank(), counts[static_cast<std::size_t>(rank())]));
    auto out = Storage::put(blank(sum_of(counts)));

    {
      Counted const counted(*this, Operation::all_gather, sum_of(counts));
      perform([&] { runtime::all_gatherv(stream_, comm_, in, out, counts); },
              [&] { return runtime::start_all_gatherv(stream_, comm_, in, out, counts); });
    }

    EXPECT_EQ(Storage::template get<T>(out), gathered(counts)) << "all_gatherv";
  }

  /// Each rank's part already stands in its place; with equal and with uneven parts.
  void all_gather_in_place(Length length) const {
    if constexpr (std::is_same_v<Storage, InVector>) {
      auto const equal = std::vector<Length>(static_cast<std::size_t>(size()), length);
      for (auto const& counts : {equal, uneven(length)}) {
        auto out = blank(sum_of(counts));
        auto const begin = std::accumulate(counts.begin(), counts.begin() + rank(), Length{0});
        auto const own =
            std::span(out).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(counts[static_cast<std::size_t>(rank())]));
        std::ranges::copy(entries(rank(), static_cast<Length>(own.size())), own.begin());

        {
          Counted const counted(*this, Operation::all_gather, sum_of(counts));
          perform([&] { runtime::all_gatherv(stream_, comm_, own, out, counts); },
                  [&] { return runtime::start_all_gatherv(stream_, comm_, own, std::span<T>(out), counts); });
        }

        EXPECT_EQ(out, gathered(counts)) << "all_gather in place";
      }
    }
  }

  void broadcast(Length length, int root) const {
    auto data = Storage::put(rank() == root ? entries(root, length) : blank(length));

    {
      Counted const counted(*this, Operation::broadcast, length);
      perform([&] { runtime::broadcast(stream_, comm_, data, root); },
              [&] { return runtime::start_broadcast(stream_, comm_, data, root); });
    }

    EXPECT_EQ(Storage::template get<T>(data), entries(root, length)) << "broadcast";
  }

  /// What `source` sends to `destination`.
  [[nodiscard]] std::vector<T> message(int source, int destination, Length length) const {
    return entries(source * size() + destination, length);
  }
  template<class LengthOf>
  [[nodiscard]] std::vector<T> sent_by(int source, LengthOf const& length_of) const {
    std::vector<T> all;
    for (int r = 0; r < size(); ++r) {
      auto const part = message(source, r, length_of(source, r));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  template<class LengthOf>
  [[nodiscard]] std::vector<T> received_by(int destination, LengthOf const& length_of) const {
    std::vector<T> all;
    for (int r = 0; r < size(); ++r) {
      auto const part = message(r, destination, length_of(r, destination));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  void all_to_all(Length length) const {
    auto const equal = [&](int, int) { return length; };
    auto const in = Storage::put(sent_by(rank(), equal));
    auto out = Storage::put(blank(length * size()));

    {
      Counted const counted(*this, Operation::all_to_all, length * (size() - 1));
      perform([&] { runtime::all_to_all(stream_, comm_, in, out); },
              [&] { return runtime::start_all_to_all(stream_, comm_, in, out); });
    }

    EXPECT_EQ(Storage::template get<T>(out), received_by(rank(), equal)) << "all_to_all";
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
    auto const in = Storage::put(sent_by(rank(), length_of));
    auto out = Storage::put(blank(sum_of(receive_counts)));

    {
      Counted const counted(*this, Operation::all_to_all,
                            sum_of(send_counts) - send_counts[static_cast<std::size_t>(rank())]);
      perform(
          [&] { runtime::all_to_allv(stream_, comm_, in, send_counts, out, receive_counts); },
          [&] { return runtime::start_all_to_allv(stream_, comm_, in, send_counts, out, receive_counts); });
    }

    EXPECT_EQ(Storage::template get<T>(out), received_by(rank(), length_of)) << "all_to_allv";
  }

  /// Everyone sends to the next rank of a ring.
  void shift(Length length) const {
    if (size() == 1) return;
    auto const next = (rank() + 1) % size();
    auto const previous = (rank() + size() - 1) % size();
    auto const in = Storage::put(entries(rank(), length));
    auto out = Storage::put(blank(length));
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

    EXPECT_EQ(Storage::template get<T>(out), entries(previous, length)) << "send and receive";
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
  int group_;
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

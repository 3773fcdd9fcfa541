// SPDX-License-Identifier: Apache-2.0
//
// Results of collectives that are kept: handed out to the bit, in any length, without a call; and what a tape refuses.
#include "runtime/comm/call_tape.hpp"

#include "runtime/arrays/allocation.hpp"
#include "runtime/comm/collectives.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;
using State = CallTape::State;

class CallTapes : public ::testing::Test {
 protected:
  Communicator world_{MPI_COMM_WORLD, "world"};
  Communicator other_{world_.split(0, world_.rank(), "other")};
  CallTape tape_{make_bytes};

  /// Collectives of all kinds on numbers that depend on `salt`, and what they leave.
  std::vector<double> collect(double salt) const {
    auto const size = static_cast<std::size_t>(world_.size());
    auto const me = static_cast<double>(world_.rank());
    std::vector<double> all;
    auto const add = [&](auto const& numbers) { all.insert(all.end(), numbers.begin(), numbers.end()); };
    std::vector<double> sum{salt + me, 2 * me};
    all_reduce(host, world_, sum);
    add(sum);
    std::vector<double> part{salt - me}, gathered(size);
    auto gather = start_all_gather(host, world_, part, gathered); // under way during the next one
    std::vector<std::int64_t> scan{static_cast<std::int64_t>(salt) + world_.rank()};
    exclusive_scan(other_, scan);
    add(scan);
    gather.wait();
    add(gathered);
    std::vector<double> addends(size, salt * me), scattered(1);
    reduce_scatter(host, world_, addends, scattered);
    add(scattered);
    std::vector<float> message(3, world_.is_root() ? static_cast<float>(salt) : -1.0F);
    broadcast(host, other_, message, 0);
    add(message);
    std::vector<double> outgoing(size, 10 * salt + me), incoming(size);
    all_to_all(host, world_, outgoing, incoming);
    add(incoming);
    return all;
  }
  [[nodiscard]] std::int64_t num_calls() const {
    std::int64_t sum = 0;
    for (auto const* const comm : {&world_, &other_})
      sum += comm->ledger().total().calls;
    return sum;
  }
};

TEST_F(CallTapes, HandOutWhatWasKeptWithoutACall) {
  for (auto const salt : {1.0, 5.0}) { // recorded again, in the memory of the first time
    tape_.begin(State::recording);
    auto const expected = [&] {
      TapeScope const scope(world_.instruments(), &tape_);
      return collect(salt);
    }();
    auto const calls = num_calls();
    for (int pass = 0; pass < 2; ++pass) { // as often as one likes
      tape_.begin(State::replaying);
      TapeScope const scope(world_.instruments(), &tape_);
      // With other numbers, which nobody looks at.
      EXPECT_EQ(collect(salt + 100) == expected, world_.size() > 1);
      EXPECT_EQ(num_calls(), calls);
    }
    EXPECT_NE(collect(salt + 100), expected); // outside of the scope
    EXPECT_EQ(num_calls() > calls, world_.size() > 1);
  }
}

TEST_F(CallTapes, ThatAreOffLeaveCallsAlone) {
  tape_.begin(State::off);
  TapeScope const scope(world_.instruments(), &tape_);
  EXPECT_NE(collect(1), collect(2));
}

TEST_F(CallTapes, CountTheirCopiesAsPasses) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no calls";
  std::vector<LocalPass> passes;
  world_.instruments().passes.list = &passes;
  std::vector<double> numbers(5, 1.0);
  for (auto const state : {State::recording, State::replaying}) {
    tape_.begin(state);
    TapeScope const scope(world_.instruments(), &tape_);
    all_reduce(host, world_, numbers);
  }
  world_.instruments().passes.list = nullptr;
  EXPECT_EQ(passes, (std::vector{pass_of_kept(40), pass_of_replayed(40)}));
}

// Recordings whose results are longer, shorter and empty: memory grows, stays, and holds what the last one left.
TEST_F(CallTapes, TakeResultsOfEveryLength) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no calls";
  auto const size = static_cast<std::size_t>(world_.size());
  auto const collect = [&](std::int64_t length, double salt) {
    std::vector<std::int64_t> const counts(size, length);
    auto const whole = size * static_cast<std::size_t>(length);
    std::vector<double> part(static_cast<std::size_t>(length), salt + world_.rank()), gathered(whole);
    all_gatherv(host, world_, part, gathered, counts);
    std::vector<double> outgoing(whole, salt - world_.rank()), incoming(whole);
    all_to_allv(host, world_, outgoing, counts, incoming, counts);
    gathered.insert(gathered.end(), incoming.begin(), incoming.end());
    return gathered;
  };
  auto const expected = [&](std::int64_t length, double salt) {
    std::vector<double> numbers;
    for (auto const sign : {1, -1})
      for (int rank = 0; rank < world_.size(); ++rank)
        numbers.insert(numbers.end(), static_cast<std::size_t>(length), salt + sign * rank);
    return numbers;
  };
  auto salt = 1.0;
  for (auto const length :
       {std::int64_t{3}, std::int64_t{50}, std::int64_t{2}, std::int64_t{0}, std::int64_t{51}}) {
    salt += 10;
    TapeScope const scope(world_.instruments(), &tape_);
    tape_.begin(State::recording);
    EXPECT_EQ(collect(length, salt), expected(length, salt));
    tape_.begin(State::replaying);
    EXPECT_EQ(collect(length, salt + 100), expected(length, salt));
    tape_.begin(State::replaying);
    EXPECT_THROW(collect(length + 1, salt), Error);
  }
}

TEST_F(CallTapes, RefuseTheEndOfAnOlderLongerRecording) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no calls";
  TapeScope const scope(world_.instruments(), &tape_);
  std::vector<double> numbers(2, 1.0);
  tape_.begin(State::recording);
  all_reduce(host, world_, numbers);
  all_reduce(host, world_, numbers);
  tape_.begin(State::recording);
  all_reduce(host, world_, numbers);
  tape_.begin(State::replaying);
  all_reduce(host, world_, numbers);
  EXPECT_THROW(all_reduce(host, world_, numbers), Error);
}

TEST_F(CallTapes, RefuseOtherCallsThanThoseThatWereRecorded) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank has no calls";
  tape_.begin(State::recording);
  TapeScope const scope(world_.instruments(), &tape_);
  std::vector<double> two(2, 1.0), three(3, 1.0);
  all_reduce(host, world_, two);

  tape_.begin(State::replaying);
  EXPECT_THROW(all_reduce(host, world_, three), Error);
  tape_.begin(State::replaying);
  EXPECT_THROW(broadcast(host, world_, two, 0), Error);
  tape_.begin(State::replaying);
  all_reduce(host, world_, two);
  EXPECT_THROW(all_reduce(host, world_, two), Error);
  tape_.begin(State::replaying);
  EXPECT_THROW(all_reduce(host, other_, two), Error);
}

} // namespace
} // namespace orthant::testing

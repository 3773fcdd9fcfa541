// SPDX-License-Identifier: Apache-2.0
//
// A mistake of one rank ends on all ranks, as the same error; and errors and handles by themselves.
#include "runtime/comm/together.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/unique_handle.hpp"

#include <gmock/gmock.h>
#include <limits>
#include <memory>
#include <new>
#include <vector>

namespace orthant::testing {
namespace {

TEST(RequireSame, FindsOneRankThatDiffersOnEveryRank) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  runtime::require_same(world, 7, "a number");
  runtime::require_same(world, std::numeric_limits<std::int64_t>::min(), "the smallest number");
  if (world.size() == 1) return;
  auto const mine = world.rank() == world.size() - 1 ? 8 : 7;

  try {
    runtime::require_same(world, mine, "a number");
    FAIL() << "nothing was thrown";
  } catch (runtime::Error const& error) {
    EXPECT_NE(std::string(error.what()).find("disagree about a number: it is between 7 and 8"),
              std::string::npos)
        << error.what();
  }
}

using namespace orthant::runtime;
using ::testing::HasSubstr;

struct Caught {
  std::string message;
  int status = exit_done;
  bool is_users = false;
};

template<class Work>
Caught caught_from(Communicator const& comm, Work&& work) {
  try {
    static_cast<void>(together(comm, work));
  } catch (UserError const& error) {
    return {error.what(), error.exit_status(), true};
  } catch (Error const& error) {
    return {error.what(), error.exit_status(), false};
  }
  return {};
}

TEST(Together, ReturnsEachRanksOwnResult) {
  Communicator const world(MPI_COMM_WORLD, "world");

  EXPECT_EQ(together(world, [&] { return 10 + world.rank(); }), 10 + world.rank());
  auto const owned = together(world, [&] { return std::make_unique<int>(world.rank()); }); // only movable
  EXPECT_EQ(*owned, world.rank());
  bool was_run = false;
  together(world, [&] { was_run = true; });
  EXPECT_TRUE(was_run);
}

TEST(Together, CostsOneSmallAllReduce) {
  Communicator const world(MPI_COMM_WORLD, "world");

  together(world, [] {});

  auto const counted = world.size() == 1 ? LedgerEntry{} : LedgerEntry{1, 8, 0, 0};
  EXPECT_EQ(world.ledger().total().calls, counted.calls);
  EXPECT_EQ(world.ledger().total().bytes, counted.bytes);
}

TEST(Together, ThrowsTheLowestFailingRanksErrorEverywhere) {
  Communicator const world(MPI_COMM_WORLD, "world");
  for (int lowest = 0; lowest < world.size(); ++lowest) {
    auto const caught = caught_from(world, [&] {
      if (world.rank() >= lowest) throw Error("rank " + std::to_string(world.rank()) + " cannot");
      return 1;
    });

    EXPECT_EQ(caught.message, "rank " + std::to_string(lowest) + " cannot");
    EXPECT_EQ(caught.status, exit_internal);
    EXPECT_FALSE(caught.is_users);
  }
}

TEST(Together, KeepsAUsersMistakeOne) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const last = world.size() - 1;

  auto const caught = caught_from(world, [&] {
    if (world.rank() == last) throw_user("{} has no labels; give --random-labels C", "gräph.h5");
  });

  EXPECT_EQ(caught.message, "gräph.h5 has no labels; give --random-labels C");
  EXPECT_EQ(caught.status, exit_user);
  EXPECT_TRUE(caught.is_users);
}

TEST(Together, TheLowestRankDecidesWhoseMistakeItWas) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";

  auto const caught = caught_from(world, [&] {
    if (world.rank() == 0) throw Error("ours");
    throw_user("theirs");
  });

  EXPECT_EQ(caught.message, "ours");
  EXPECT_FALSE(caught.is_users);
}

TEST(Together, TurnsOtherExceptionsIntoErrors) {
  Communicator const world(MPI_COMM_WORLD, "world");

  auto const caught = caught_from(world, [&]() -> std::vector<int> {
    if (world.is_root()) throw std::bad_alloc();
    return {1, 2};
  });

  EXPECT_EQ(caught.status, exit_internal);
  EXPECT_EQ(caught.message, std::bad_alloc().what());
}

TEST(Together, CarriesEmptyAndLongMessages) {
  Communicator const world(MPI_COMM_WORLD, "world");
  world.set_chunk_limit(1000);
  for (auto const& text : {std::string(), std::string(20'000, 'x') + "end"}) {
    auto const caught = caught_from(world, [&] {
      if (world.rank() == world.size() - 1) throw Error(text);
    });

    EXPECT_EQ(caught.message, text);
    EXPECT_EQ(caught.status, exit_internal);
  }
}

TEST(Together, ConcernsItsGroupOnly) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const half = world.split(world.rank() % 2, world.rank(), "half");
  auto const fails = world.rank() % 2 == 1;

  auto const caught = caught_from(half, [&] {
    if (fails && half.is_root()) throw_user("odd ranks only");
  });

  EXPECT_EQ(caught.message, fails ? "odd ranks only" : "");
  EXPECT_EQ(all_reduced(world, 1), world.size());
}

TEST(Error, OfTheUserHasStatusTwoAndItsTextAlone) {
  try {
    throw_user("grid {}x{} needs {} ranks", 2, 3, 6);
    FAIL();
  } catch (Error const& error) {
    EXPECT_STREQ(error.what(), "grid 2x3 needs 6 ranks");
    EXPECT_EQ(error.exit_status(), exit_user);
  }
}

TEST(Error, OfARequirementNamesRankPlaceConditionAndValues) {
  auto const num_rows = 3;
  try {
    ORTHANT_REQUIRE(num_rows % 2 == 0, "rows: ", num_rows);
    FAIL();
  } catch (Error const& error) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank)));
    EXPECT_THAT(error.what(), HasSubstr("together_test.cpp:"));
    EXPECT_THAT(error.what(), HasSubstr("num_rows % 2 == 0; rows: 3"));
    EXPECT_EQ(error.exit_status(), exit_internal);
  }
  EXPECT_NO_THROW(ORTHANT_REQUIRE(num_rows == 3));
}

TEST(Error, OfMpiNamesTheCall) {
  Communicator const world(MPI_COMM_WORLD, "world");
  try {
    ORTHANT_MPI(MPI_Barrier(world.mpi())); // does not throw
    int value = 0;
    ORTHANT_MPI(MPI_Bcast(&value, 1, MPI_INT, world.size(), world.mpi()));
    FAIL();
  } catch (Error const& error) {
    EXPECT_THAT(error.what(), HasSubstr("MPI_Bcast(&value"));
    EXPECT_THAT(error.what(), HasSubstr("MPI_ERR_ROOT"));
  }
}

std::vector<int> released; // handles that were freed, in order

struct Release {
  void operator()(int handle) const noexcept { released.push_back(handle); }
};
using Handle = UniqueHandle<int, -1, Release>;

TEST(UniqueHandle, FreesExactlyOnce) {
  released.clear();
  {
    Handle first(7);
    Handle second(std::move(first));
    EXPECT_FALSE(first.owns()); // NOLINT: what a moved-from handle is
    EXPECT_EQ(first.get(), -1);
    EXPECT_EQ(second.get(), 7);
    EXPECT_TRUE(released.empty());
  }
  EXPECT_EQ(released, std::vector<int>{7});
}

TEST(UniqueHandle, AssignmentFreesWhatItHeld) {
  released.clear();
  Handle handle(1);
  Handle other(2);

  handle = std::move(other);
  EXPECT_EQ(released, std::vector<int>{1});
  EXPECT_EQ(handle.get(), 2);

  auto& itself = handle;
  handle = std::move(itself);
  EXPECT_EQ(handle.get(), 2);

  handle = Handle();
  EXPECT_EQ(released, (std::vector<int>{1, 2}));
}

TEST(UniqueHandle, EmptyAndReleasedFreeNothing) {
  released.clear();
  {
    Handle const empty;
    EXPECT_FALSE(empty.owns());
    Handle handle(3);
    EXPECT_EQ(handle.release(), 3);
    handle.reset();
    Handle reset(4);
    reset.reset();
    reset.reset();
  }
  EXPECT_EQ(released, std::vector<int>{4});
  static_assert(!std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>);
  static_assert(std::is_nothrow_move_constructible_v<Handle> && std::is_nothrow_move_assignable_v<Handle>);
}

TEST(Communicator, SplitOrdersByKeyAndMoves) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const size = world.size();

  auto reversed = world.split(0, size - world.rank(), "reversed");
  EXPECT_EQ(reversed.rank(), size - 1 - world.rank());
  EXPECT_EQ(reversed.size(), size);
  EXPECT_EQ(reversed.axis(), "reversed");

  auto moved = std::move(reversed);
  reversed = world.split(world.rank(), 0, "alone"); // a moved-from communicator takes another
  EXPECT_EQ(reversed.size(), 1);
  EXPECT_EQ(all_reduced(moved, 1), size);
  moved = std::move(reversed); // frees the first
  EXPECT_EQ(moved.size(), 1);
  EXPECT_EQ(moved.axis(), "alone");
  EXPECT_EQ(world.split_by_node().size(), size) << "tests run on one node";
}

TEST(Communicator, KeepsItsMessagesFromTheCallers) {
  Communicator const world(MPI_COMM_WORLD, "world");
  if (world.size() == 1) GTEST_SKIP() << "needs two ranks";
  // A message of the caller with tag 0 is under way while ours with tag 0 is received.
  int theirs = 5;
  std::vector<std::int32_t> ours{6};
  MPI_Request request = MPI_REQUEST_NULL;
  if (world.rank() == 0) {
    MPI_Isend(&theirs, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
    send(host, world, ours, 1, 0);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (world.rank() == 1) {
    ours[0] = theirs = 0;
    receive(host, world, ours, 0, 0);
    MPI_Recv(&theirs, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  EXPECT_EQ(ours[0], 6);
  EXPECT_EQ(theirs, 5);
}

TEST(Communicator, LendsScratchAndTakesItBack) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto small = world.lend_scratch(100);
  auto large = world.lend_scratch(10'000);
  EXPECT_GE(small.size(), 100U);
  EXPECT_GE(large.size(), 10'000U);
  auto const* const small_address = small.data();
  auto const* const large_address = large.data();
  world.give_back(std::move(small));
  world.give_back(std::move(large));

  EXPECT_EQ(world.lend_scratch(100).data(), small_address) << "the smallest that is large enough";
  EXPECT_EQ(world.lend_scratch(5'000).data(), large_address);
}

} // namespace
} // namespace orthant::testing

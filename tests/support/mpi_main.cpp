// SPDX-License-Identifier: Apache-2.0
//
// main() of every test program: GoogleTest on all ranks of MPI_COMM_WORLD at once.
//
// Rank 0 prints. After each test the ranks agree on one verdict: a test that fails on one rank fails on all,
// and the failing ranks' messages appear once, headed by their rank. A rank that fails while others wait for
// it inside the test (it left by an ASSERT or by an exception) prints its messages after `grace` and ends the
// job. The exit status is the same everywhere. Runs alone, too, without mpirun.

#include "runtime/device/kokkos_compat.hpp"
#include "support/rank_listener.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

namespace {

/// The verdict over all tests, for a status that every rank leaves with.
int largest(int status) {
  MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return status;
}

bool every_test_was_skipped() {
  auto const& suite = *::testing::UnitTest::GetInstance();
  return suite.test_to_run_count() > 0 && suite.skipped_test_count() == suite.test_to_run_count();
}

int run_tests(int rank) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    delete listeners.Release(listeners.default_xml_generator());
  }
  // Appended, so that at a test's end it speaks before the printer and the printer shows what it adds.
  listeners.Append(new orthant::testing::RankListener(MPI_COMM_WORLD));

  if (GTEST_FLAG_GET(shuffle)) { // one order on all ranks, though the seed comes from the clock
    int seed = GTEST_FLAG_GET(random_seed);
    if (seed == 0) seed = static_cast<int>(static_cast<long>(MPI_Wtime()) % 99999) + 1;
    MPI_Bcast(&seed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    GTEST_FLAG_SET(random_seed, seed);
  }
  bool const has_something_to_do = rank == 0 || !GTEST_FLAG_GET(list_tests);

  int const status = largest(has_something_to_do ? RUN_ALL_TESTS() : 0);
  if (status == 0 && rank == 0 && every_test_was_skipped()) std::puts("orthant: every test was skipped");
  return status;
}

} // namespace

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ::testing::InitGoogleMock(&argc, argv);
  orthant::runtime::compat::initialize({argv + std::min(argc, 1), argv + argc}, -1);

  int const status = run_tests(rank);

  Kokkos::finalize();
  MPI_Finalize();
  return status;
}

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One verdict a test over all ranks of a communicator. It is reached at the test's end by a non-blocking
// reduction, so that a rank that failed can notice that the others are not coming.

#include <gtest/gtest.h>
#include <mpi.h>
#include <string>

namespace orthant::testing {

class RankListener : public ::testing::EmptyTestEventListener {
 public:
  /// Duplicates `comm`; collective over it.
  explicit RankListener(MPI_Comm comm);

  /// Collective. Fails or skips the current test on every rank if any rank failed or skipped it; rank 0 shows
  /// the failing ranks' messages. Ends the job when this rank failed and the others do not come.
  void OnTestEnd(::testing::TestInfo const& test) override;

 private:
  enum Verdict : int { passed = 0, skipped = 1, failed = 2 };

  [[nodiscard]] Verdict agree(Verdict mine, std::string const& messages, char const* test) const;
  [[nodiscard]] std::string gather_at_root(std::string const& messages) const;

  MPI_Comm comm_ = MPI_COMM_NULL; // freed by MPI_Finalize: GoogleTest destroys listeners after it
  int rank_ = 0;
  int size_ = 1;
};

} // namespace orthant::testing

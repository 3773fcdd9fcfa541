// SPDX-License-Identifier: Apache-2.0

#include "support/rank_listener.hpp"

#include <chrono>
#include <cstdio>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

namespace orthant::testing {

namespace {

// How long a rank that failed waits for the others before it takes them to be waiting for it.
constexpr auto grace = std::chrono::seconds(5);

// What one rank shows of one test; a loop that fails a million times must not drown the others.
constexpr std::size_t message_limit_bytes = 8192;

/// What failed on this rank, a "file:line: text" each, every line headed by the rank.
std::string describe(::testing::TestResult const& result, int rank) {
  std::ostringstream text;
  for (int i = 0; i < result.total_part_count(); ++i) {
    auto const& part = result.GetTestPartResult(i);
    if (!part.failed()) continue;
    std::ostringstream whole;
    whole << (part.file_name() ? part.file_name() : "unknown file") << ":" << part.line_number() << ": "
          << part.message();
    std::istringstream lines(whole.str());
    for (std::string line; std::getline(lines, line);)
      text << "[rank " << rank << "] " << line << "\n";
  }
  auto all = text.str();
  if (all.size() > message_limit_bytes) {
    all.resize(message_limit_bytes);
    all += "\n[rank " + std::to_string(rank) + "] .. and more\n";
  }
  return all;
}

} // namespace

RankListener::RankListener(MPI_Comm comm) {
  MPI_Comm_dup(comm, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

RankListener::Verdict RankListener::agree(Verdict mine, std::string const& messages, char const* test) const {
  int const local = mine;
  int global = passed;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&local, &global, 1, MPI_INT, MPI_MAX, comm_, &request);
  auto const start = std::chrono::steady_clock::now();
  for (int is_done = 0;;) {
    MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    if (is_done) return static_cast<Verdict>(global);
    auto const waited = std::chrono::steady_clock::now() - start;
    if (mine == failed && waited > grace) {
      std::fprintf(stderr,
                   "%s[rank %d] failed in %s while other ranks still wait inside it: ending the job\n",
                   messages.c_str(), rank_, test);
      std::fflush(stderr);
      MPI_Abort(comm_, 1);
    }
    if (waited > std::chrono::milliseconds(2)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

std::string RankListener::gather_at_root(std::string const& messages) const {
  auto const length = static_cast<int>(messages.size());
  std::vector<int> lengths(static_cast<std::size_t>(size_));
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm_);
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string all;
  if (rank_ == 0) all.resize(static_cast<std::size_t>(offsets.back() + lengths.back()));
  MPI_Gatherv(messages.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, 0,
              comm_);
  return all;
}

void RankListener::OnTestEnd(::testing::TestInfo const& test) {
  auto const& result = *test.result();
  auto const mine = result.Failed() ? failed : result.Skipped() ? skipped : passed;
  auto const name = std::string(test.test_suite_name()) + "." + test.name();
  // Rank 0's own messages were printed when they arose.
  auto const messages = mine == failed && rank_ != 0 ? describe(result, rank_) : std::string{};
  auto const verdict = agree(mine, messages, name.c_str());
  if (verdict == passed) return;
  if (verdict == skipped) {
    if (mine == passed) GTEST_SKIP() << "skipped on another rank";
    return;
  }
  auto const all = gather_at_root(messages);
  if (rank_ == 0 && !all.empty()) {
    std::fputs(all.c_str(), stdout);
    std::fflush(stdout);
  }
  if (mine != failed) ADD_FAILURE() << "failed on another rank";
}

} // namespace orthant::testing

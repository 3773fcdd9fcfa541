// SPDX-License-Identifier: Apache-2.0
//
// Checks of the doctor on what this machine does not have.

#include "cli/doctor/checks.hpp"

#include <gtest/gtest.h>
#include <map>

namespace orthant::cli {
namespace {

char const* no_variable(char const*) {
  return nullptr;
}

RankFacts rank_on(int rank, std::string const& host, std::vector<int> cores, std::vector<int> nodes,
                  int num_threads) {
  return {rank, host, std::move(cores), std::move(nodes), num_threads, 8};
}

TEST(Doctor, FindsRanksAcrossNumaNodes) {
  std::vector<RankFacts> const good{rank_on(0, "a", {0, 1}, {0}, 2), rank_on(1, "a", {4, 5}, {1}, 2)};
  std::vector<RankFacts> const bad{rank_on(0, "a", {0, 1}, {0}, 2), rank_on(1, "a", {2, 4}, {0, 1}, 2)};
  std::vector<RankFacts> const alone{rank_on(0, "a", {0, 4}, {0, 1}, 2), rank_on(1, "b", {0, 4}, {0, 1}, 2)};

  EXPECT_TRUE(check_numa(good).findings.empty());
  ASSERT_EQ(check_numa(bad).findings.size(), 1);
  EXPECT_NE(check_numa(bad).findings[0].what.find("rank 1 are of NUMA nodes 0, 1"), std::string::npos);
  EXPECT_TRUE(check_numa(alone).findings.empty()); // it has the host for itself
}

TEST(Doctor, FindsThreadsWithoutCores) {
  std::vector<RankFacts> const shared{rank_on(0, "a", {0, 1, 2, 3}, {0}, 4),
                                      rank_on(1, "a", {0, 1, 2, 3}, {0}, 4)};
  std::vector<RankFacts> const narrow{rank_on(0, "a", {0}, {0}, 4),
                                      rank_on(1, "a", {1, 2, 3, 4, 5, 6, 7}, {0}, 4)};
  std::vector<RankFacts> const good{rank_on(0, "a", {0, 1, 2, 3}, {0}, 4),
                                    rank_on(1, "a", {4, 5, 6, 7}, {0}, 4)};

  ASSERT_EQ(check_cores(shared).findings.size(), 1);
  EXPECT_NE(check_cores(shared).findings[0].fix.find("--bind-to core"), std::string::npos);
  ASSERT_EQ(check_cores(narrow).findings.size(), 1);
  EXPECT_NE(check_cores(narrow).findings[0].what.find("rank 0 has 4 threads on 1 core"), std::string::npos);
  EXPECT_TRUE(check_cores(good).findings.empty());
}

TEST(Doctor, FindsClocksThatAreApart) {
  EXPECT_TRUE(check_clocks({}).findings.empty());
  EXPECT_TRUE(check_clocks({{4, 0.001, 1e-4}, {8, -0.002, 1e-4}}).findings.empty());
  EXPECT_TRUE(check_clocks({{4, 3.0, 3.5}}).findings.empty()); // the network was too slow to tell
  auto const check = check_clocks({{4, -2.0, 0.01}});
  ASSERT_EQ(check.findings.size(), 1);
  EXPECT_NE(check.findings[0].what.find("rank 4's host is 2.000 s behind"), std::string::npos);
}

TEST(Doctor, FindsPluginsOfNcclThatAreMissing) {
  auto const none = [](std::string const&) { return false; };
  auto const all = [](std::string const&) { return true; };
  std::string loaded;
  auto const record = [&](std::string const& file) {
    loaded = file;
    return false;
  };
  auto const ofi = [](char const* name) -> char const* {
    return std::string_view(name) == "NCCL_NET_PLUGIN" ? "ofi" : nullptr;
  };

  EXPECT_TRUE(check_nccl(false, 2, true, ofi, none).findings.empty());
  EXPECT_TRUE(check_nccl(true, 1, true, no_variable, none).findings.empty());
  EXPECT_TRUE(check_nccl(true, 2, false, no_variable, none).findings.empty());
  EXPECT_TRUE(check_nccl(true, 2, true, no_variable, all).findings.empty());
  EXPECT_EQ(check_nccl(true, 2, true, no_variable, none).findings.size(), 1);
  EXPECT_EQ(check_nccl(true, 1, false, ofi, record).findings.size(), 1);
  EXPECT_EQ(loaded, "libnccl-net-ofi.so");
}

TEST(Doctor, FindsDevicesWithoutTheirMpiAndSmallPages) {
  EXPECT_TRUE(check_device_mpi(false, false).findings.empty());
  EXPECT_TRUE(check_device_mpi(true, true).findings.empty());
  EXPECT_EQ(check_device_mpi(true, false).findings.size(), 1);
  EXPECT_TRUE(check_huge_pages("always [madvise] never").findings.empty());
  EXPECT_TRUE(check_huge_pages("").findings.empty());
  EXPECT_EQ(check_huge_pages("always madvise [never]").findings.size(), 1);
}

TEST(Doctor, ComparesRanksWithTheLauncher) {
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  auto const variable = [&](char const* name) {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };

  EXPECT_TRUE(check_launcher(4, 1, variable)
                  .findings.empty()); // mpirun in a step of Slurm that has one task per host
  EXPECT_EQ(check_launcher(1, 1, variable).findings.size(), 1);
  EXPECT_EQ(check_launcher(2, 1, variable).findings.size(), 1);
  EXPECT_TRUE(check_launcher(1, 1, no_variable).findings.empty());
}

} // namespace
} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// What limits memory, read from files that the tests write; and what is refused.
#include "runtime/machine/process_memory.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "support/scratch_folder.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr auto unlimited = std::numeric_limits<std::int64_t>::max();

class AvailableMemory : public ::testing::Test {
 protected:
  AvailableMemory() {
    sources_.meminfo = own_ / "meminfo";
    sources_.group_of_process = own_ / "cgroup";
    sources_.groups = own_ / "groups";
    sources_.status = own_ / "status";
    sources_.address_space = unlimited;
  }

  static void write_to(std::filesystem::path const& path, std::string const& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void write(std::string const& name, std::string const& text) { write_to(own_ / name, text); }
  std::string error_of(std::int64_t needed) {
    try {
      require_memory(world_, "train", needed, sources_);
    } catch (UserError const& error) {
      return error.what();
    }
    return "";
  }

  Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder folder_{MPI_COMM_WORLD};
  std::filesystem::path own_{folder_.file(std::to_string(world_.rank()))};
  MemorySources sources_;
};

TEST_F(AvailableMemory, IsUnlimitedWhereNothingIsSaid) {
  EXPECT_EQ(memory_of_node(sources_).bytes, unlimited);
  EXPECT_EQ(memory_of_group(sources_).bytes, unlimited);
  EXPECT_EQ(memory_of_process(sources_).bytes, unlimited);
  EXPECT_EQ(error_of(unlimited), "");
}

TEST_F(AvailableMemory, OfTheNodeIsWhatTheKernelCallsAvailable) {
  write("meminfo", "MemTotal:       24684084 kB\nMemFree:        100 kB\nMemAvailable:   2048 kB\n");

  EXPECT_EQ(memory_of_node(sources_).bytes, 2048 * 1024);
}

TEST_F(AvailableMemory, OfAGroupOfVersion2IsTheLeastOfAllAboveIt) {
  write("cgroup", "0::/job/step\n");
  write("groups/job/step/memory.max", "max\n");
  write("groups/job/step/memory.current", "1000\n");
  write("groups/job/memory.max", "10000\n");
  write("groups/job/memory.current", "6000\n");
  write("groups/job/memory.stat", "anon 2000\nactive_file 1500\ninactive_file 500\nfile 4000\n");

  EXPECT_EQ(memory_of_group(sources_).bytes, 10000 - (6000 - 2000));
  EXPECT_EQ(memory_of_group(sources_).source, (sources_.groups / "job" / "memory.max").string());

  write("groups/job/step/memory.max", "1500\n");
  EXPECT_EQ(memory_of_group(sources_).bytes, 500);
  write("groups/job/step/memory.current", "1600\n");
  EXPECT_EQ(memory_of_group(sources_).bytes, 0) << "more is held than allowed";
}

TEST_F(AvailableMemory, OfAGroupOfVersion1IsReadBesideVersion2) {
  write("cgroup", "9:cpu,cpuacct:/other\n4:memory:/job\n0::/\n");
  write("groups/memory/job/memory.limit_in_bytes", "8000\n");
  write("groups/memory/job/memory.usage_in_bytes", "5000\n");
  write("groups/memory/job/memory.stat", "total_active_file 700\ntotal_inactive_file 300\n");
  write("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("groups/memory/memory.usage_in_bytes", "100\n");

  EXPECT_EQ(memory_of_group(sources_).bytes, 4000);
}

TEST_F(AvailableMemory, OfAContainersGroupThatIsOutOfSightIsThatOfTheMount) {
  write("cgroup", "0::/kubepods/pod1\n");
  write("groups/memory.max", "5000\n");
  write("groups/memory.current", "2000\n");

  EXPECT_EQ(memory_of_group(sources_).bytes, 3000);
}

TEST_F(AvailableMemory, OfAProcessIsItsAddressSpace) {
  write("status", "Name:\torthant\nVmSize:\t    3000 kB\n");
  sources_.address_space = 5000 * 1024;

  EXPECT_EQ(memory_of_process(sources_).bytes, 2000 * 1024);
}

TEST_F(AvailableMemory, WhatDoesNotFitIsRefusedWithTheFigures) {
  auto const ranks = static_cast<std::int64_t>(world_.size());
  constexpr auto mib = std::int64_t{1} << 20;
  write("meminfo", fmt::format("MemAvailable: {} kB\n", 100 * 1024 * ranks));

  EXPECT_EQ(error_of(100 * mib), "") << "it just fits";
  EXPECT_EQ(memory_of_rank(world_, sources_), 100 * mib);
  auto const error = error_of(101 * mib);

  EXPECT_NE(error.find(fmt::format("train needs about {:.1f} MiB of memory on {} rank", 101.0 * world_.size(),
                                   ranks)),
            std::string::npos)
      << error;
  EXPECT_NE(error.find(fmt::format("{:.1f} MiB is available (MemAvailable of", 100.0 * world_.size())),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("--force-memory"), std::string::npos) << error;
}

TEST_F(AvailableMemory, RanksWithGroupsOfTheirOwnAreHeldToTheirOwnLimits) {
  auto const name = fmt::format("task_{}", world_.rank());
  write("cgroup", fmt::format("0::/{}\n", name));
  write("groups/" + name + "/memory.max", "1000\n");
  write("groups/" + name + "/memory.current", "0\n");

  EXPECT_EQ(error_of(900), "") << "no sum over groups";
  EXPECT_EQ(memory_of_rank(world_, sources_), 1000);
  EXPECT_NE(error_of(1100), "");
}

TEST_F(AvailableMemory, TheSumOverAGroupsRanksIsHeldToItsLimit) {
  sources_.groups = folder_.file("groups");
  write("cgroup", "0::/job\n");
  if (world_.is_root()) {
    write_to(sources_.groups / "job" / "memory.max", fmt::format("{}\n", 1000 * world_.size()));
    write_to(sources_.groups / "job" / "memory.current", "0\n");
  }
  barrier(host, world_);

  EXPECT_EQ(error_of(1000), "");
  EXPECT_EQ(memory_of_rank(world_, sources_), 1000);
  EXPECT_NE(error_of(world_.is_root() ? 1001 : 1000), "") << "one byte too much on one rank";
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0

#include "runtime/job/environment.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/machine/binding.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sched.h>

namespace orthant::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Environment, LeavesMpiAndKokkosOfTheCallerAlone) {
  std::array const argv{"program", "train", "--kokkos-threads=2", "--lr", "0.1"};
  {
    Environment environment(static_cast<int>(argv.size()), argv.data());

    EXPECT_THAT(environment.arguments(), ElementsAre("train", "--lr", "0.1"));
    EXPECT_EQ(environment.world().axis(), "world");
    EXPECT_EQ(&environment.world().instruments(), environment.instruments().get());
    EXPECT_EQ(all_reduced(environment.world(), 1), environment.world().size());
  }

  int is_finalised = 1;
  MPI_Finalized(&is_finalised);
  EXPECT_EQ(is_finalised, 0);
  EXPECT_TRUE(Kokkos::is_initialized());
}

TEST(Environment, CanBeMadeTwice) {
  std::array const argv{"program"};
  for (int i = 0; i < 2; ++i) {
    Environment environment(1, argv.data());
    environment.start_kokkos();
    EXPECT_EQ(all_reduced(environment.world(), environment.world().rank(), Reduction::max),
              environment.world().size() - 1);
  }
}

TEST(Environment, ErrorsOfTheWorldReturn) {
  std::array const argv{"program"};
  Environment environment(1, argv.data());

  EXPECT_NE(MPI_Send(nullptr, 1, MPI_INT, environment.world().size(), 0, environment.world().mpi()),
            MPI_SUCCESS);
  EXPECT_NE(MPI_Send(nullptr, 1, MPI_INT, environment.world().size(), 0, MPI_COMM_WORLD), MPI_SUCCESS);
}

TEST(Binding, GathersEveryRankInOrder) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const own = find_binding(world.rank(), world.rank(), -1);

  auto const all = gather_bindings(world, own);

  ASSERT_EQ(all.size(), world.is_root() ? static_cast<std::size_t>(world.size()) : 0);
  for (std::size_t r = 0; r < all.size(); ++r) {
    EXPECT_EQ(all[r].rank, static_cast<int>(r));
    EXPECT_STREQ(all[r].host.data(), own.host.data());
  }
  EXPECT_FALSE(parse_cpu_list(own.cores.data()).empty());
  auto const table = format_bindings(all);
  EXPECT_EQ(std::ranges::count(table, '\n'), world.is_root() ? world.size() + 1 : 1);
}

std::string complaint(std::string const& option, int num_devices = 0) {
  try {
    detail::check_kokkos_options(std::array{option}, num_devices);
    return {};
  } catch (UserError const& error) {
    return error.what();
  }
}

TEST(KokkosOptions, ThoseOfKokkosPass) {
  for (auto const* const option : {"--kokkos-num-threads=2", "--kokkos-threads=1", "--kokkos-num-devices=4,2",
                                   "--kokkos-disable-warnings", "--kokkos-print-configuration=no",
                                   "--kokkos-map-device-id-by=mpi_rank", "--kokkos-tools-libs=a.so"})
    EXPECT_EQ(complaint(option), "");
  EXPECT_EQ(complaint("--kokkos-device-id=7", 8), "");
}

TEST(KokkosOptions, OthersAndWrongValuesAreRefused) {
  EXPECT_THAT(complaint("--kokkos-num-thread=2"), HasSubstr("did you mean '--kokkos-num-threads'"));
  EXPECT_THAT(complaint("--kokkos-"), HasSubstr("is not an option of Kokkos"));
  EXPECT_THAT(complaint("--kokkos-num-threads"), HasSubstr("needs a value: --kokkos-num-threads=.."));
  EXPECT_THAT(complaint("--kokkos-tools-libs="), HasSubstr("needs a value"));
  for (auto const* const text : {"abc", "0", "-3", "2x", "1.5", "99999999999999999999", " 2"})
    EXPECT_THAT(complaint(std::string("--kokkos-num-threads=") + text),
                HasSubstr("must be a whole number of at least 1"));
  EXPECT_THAT(complaint("--kokkos-device-id=-1", 8), HasSubstr("must be a whole number of at least 0"));
  EXPECT_THAT(complaint("--kokkos-device-id=8", 8), HasSubstr("there are 8 devices here, 0 to 7"));
  EXPECT_THAT(complaint("--kokkos-device-id=0"), HasSubstr("there is no device here"));
}

TEST(Describe, PutsTheTextOfLibrariesOnOneLine) {
  EXPECT_EQ(describe(std::runtime_error("Error: no\n\t memory \nTraceback functionality not available\n\n")),
            "Error: no memory");
  EXPECT_EQ(describe(std::runtime_error("")), "");
  EXPECT_EQ(describe(UserError("two\nlines of ours")), "two\nlines of ours");
}

/// While one exists, the process may use one of its cores alone: the `place`-th, or the last.
class OneCore {
 public:
  explicit OneCore(int place) {
    sched_getaffinity(0, sizeof before_, &before_);
    auto const last = CPU_COUNT(&before_) - 1;
    auto core = -1;
    for (int left = std::min(place, last); left >= 0; --left)
      do
        ++core;
      while (!CPU_ISSET(core, &before_));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  OneCore(OneCore const&) = delete;
  OneCore& operator=(OneCore const&) = delete;
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

TEST(Binding, CoresAreSpareBesideOneForEachRankOfTheNode) {
  std::array const argv{"program"};
  Environment environment(1, argv.data());
  environment.start_kokkos();
  auto const& world = environment.world();
  cpu_set_t own;
  CPU_ZERO(&own);
  EXPECT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  auto const num_threads = Kokkos::DefaultHostExecutionSpace().concurrency();

  // All ranks have the same cores here.
  EXPECT_EQ(has_spare_cores(world), CPU_COUNT(&own) >= world.size() * (num_threads + 1));
  EXPECT_EQ(is_oversubscribed(world), CPU_COUNT(&own) < world.size());
  {
    OneCore const shared(0);
    EXPECT_FALSE(has_spare_cores(world));
    EXPECT_EQ(num_cores_of(world), 1);
    EXPECT_EQ(is_oversubscribed(world), world.size() > 1);
  }
  {
    OneCore const of_rank(world.rank());
    EXPECT_FALSE(has_spare_cores(world));
  }
}

Binding make_binding(int rank, char const* host, int device, char const* address) {
  Binding binding;
  binding.rank = rank;
  binding.device = device;
  std::strcpy(binding.host.data(), host);
  std::strcpy(binding.device_id.data(), address);
  return binding;
}

TEST(Binding, SharedDevicesAreToldByHostAndAddress) {
  std::array const bindings{make_binding(0, "n1", 0, "0000:3b:00.0"),
                            make_binding(1, "n1", 0, "0000:af:00.0"), // own number 0 each
                            make_binding(2, "n2", 0, "0000:3b:00.0"),
                            make_binding(3, "n2", 1, "0000:3b:00.0"), // the same one
                            make_binding(4, "n3", -1, ""),
                            make_binding(5, "n3", -1, "")}; // none

  EXPECT_THAT(find_shared_devices(bindings),
              ElementsAre("ranks 2-3 share device 0000:3b:00.0 of n2: start one rank a device"));
  EXPECT_THAT(find_shared_devices(std::span(bindings).first(3)), IsEmpty());
}

TEST(Binding, CpuListsAreReadAsTheKernelWritesThem) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("5\n"), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("none"), IsEmpty());
}

std::optional<std::string> slurm_mistake(int size, std::map<std::string, char const*> const& variables) {
  return find_slurm_mistake(size, [&](char const* name) {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  });
}

TEST(SlurmCheck, SingletonsOfOneStepAreAMistake) {
  auto const mistake = slurm_mistake(1, {{"SLURM_STEP_NUM_TASKS", "4"}});

  ASSERT_TRUE(mistake.has_value());
  EXPECT_THAT(*mistake, HasSubstr("4 tasks"));
  EXPECT_THAT(*mistake, HasSubstr("srun --mpi=pmix"));
}

TEST(SlurmCheck, SoundStartsPass) {
  EXPECT_EQ(slurm_mistake(4, {{"SLURM_STEP_NUM_TASKS", "4"}}), std::nullopt);
  EXPECT_EQ(slurm_mistake(1, {{"SLURM_STEP_NUM_TASKS", "1"}}), std::nullopt);
  EXPECT_EQ(slurm_mistake(1, {{"SLURM_STEP_NUM_TASKS", "4"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), std::nullopt);
  EXPECT_EQ(slurm_mistake(1, {{"SLURM_NTASKS", "4"}}), std::nullopt); // a batch script says so too
  EXPECT_EQ(slurm_mistake(1, {{"SLURM_STEP_NUM_TASKS", "many"}}), std::nullopt);
  EXPECT_EQ(slurm_mistake(1, {}), std::nullopt);
}

} // namespace
} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
//
// One message of more than 2^31 elements: 8.6 GB on each of two ranks.
#include "runtime/comm/collectives.hpp"

#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace orthant::testing {
namespace {

using namespace orthant::runtime;

constexpr std::int64_t count = (std::int64_t{1} << 31) + 3;

#ifdef __SANITIZE_THREAD__
constexpr std::int64_t bytes_per_byte = 5; // the thread sanitizer keeps four of its own
#else
constexpr std::int64_t bytes_per_byte = 1;
#endif

/// MemAvailable of this node in bytes, or -1 where it is unknown.
std::int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    file.ignore(100, '\n');
  }
  return -1;
}

/// Exact in float, and different in entries that a power of two lies between.
float entry(std::int64_t i) {
  return static_cast<float>(i % 16'777'213);
}

TEST(LargeBroadcast, CarriesMoreThanTwoToThe31Floats) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const node = world.split_by_node();
  auto const needed = count * 4 * bytes_per_byte * node.size() + (std::int64_t{1} << 30);
  if (all_reduced(world, available_bytes() >= needed ? 1 : 0, Reduction::min) == 0)
    GTEST_SKIP() << "needs " << needed / 1'000'000'000 << " GB of free memory a node";
  std::unique_ptr<float[]> const memory(new float[count]); // not initialised: pages are touched once
  std::span const data(memory.get(), static_cast<std::size_t>(count));
  if (world.is_root())
    for (std::int64_t i = 0; i < count; ++i)
      data[static_cast<std::size_t>(i)] = entry(i);

  broadcast(host, world, data, 0);

  std::int64_t num_wrong = 0;
  std::int64_t first_wrong = -1;
  for (std::int64_t i = 0; i < count; ++i)
    if (data[static_cast<std::size_t>(i)] != entry(i) && num_wrong++ == 0) first_wrong = i;
  EXPECT_EQ(num_wrong, 0) << "the first at " << first_wrong;
  EXPECT_EQ(world.ledger()[Operation::broadcast].bytes, world.size() == 1 ? 0 : 4 * count);
}

} // namespace
} // namespace orthant::testing

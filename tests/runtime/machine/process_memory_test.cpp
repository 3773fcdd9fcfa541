// SPDX-License-Identifier: Apache-2.0
//
// Whether memory of freed arrays goes back to the system.
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace orthant::testing {
namespace {

constexpr std::size_t array_bytes = std::size_t{4} << 20;

std::unique_ptr<char[]> written_array() {
  auto array = std::make_unique<char[]>(array_bytes);
  std::fill_n(array.get(), array_bytes, char{1});
  return array;
}

TEST(MappedArrays, GiveTheirMemoryBackFromBetweenOthers) {
#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "another allocator";
#endif
  if (runtime::resident_bytes() == 0) GTEST_SKIP() << "the system does not say what is resident";
  written_array(); // after which glibc would take arrays of this size from the heap
  runtime::MappedArrays const mapped;
  std::vector<std::unique_ptr<char[]>> arrays;
  for (int i = 0; i < 8; ++i)
    arrays.push_back(written_array());
  auto const before = runtime::resident_bytes();

  for (std::size_t i = 0; i < arrays.size(); i += 2) // the last one stays
    arrays[i].reset();

  auto const freed = static_cast<std::int64_t>(4 * array_bytes);
  EXPECT_LE(runtime::resident_bytes(), before - freed + (freed >> 4));
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/byte_source.hpp"

#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

/// A system call that fails with each of these codes in turn and then returns 7.
auto call_that_fails(std::vector<int> const& codes, std::size_t& num_calls) {
  return [&] {
    if (num_calls == codes.size()) return 7;
    errno = codes[num_calls++];
    return -1;
  };
}

TEST(RepeatedCall, GoesOnAfterInterruptionsAndRefusalsThatPass) {
  std::vector const codes{EINTR, EAGAIN, EINTR};
  auto num_calls = std::size_t{0};

  EXPECT_EQ(runtime::repeated(call_that_fails(codes, num_calls)), 7);

  EXPECT_EQ(num_calls, 3U);
}

TEST(RepeatedCall, ReturnsAnyOtherFailureAtOnceWithItsCode) {
  std::vector const codes{EINTR, EIO, EINTR};
  auto num_calls = std::size_t{0};

  EXPECT_EQ(runtime::repeated(call_that_fails(codes, num_calls)), -1);

  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(num_calls, 2U);
}

} // namespace
} // namespace orthant::testing

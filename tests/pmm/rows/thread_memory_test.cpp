// SPDX-License-Identifier: Apache-2.0
//
// Copies of kernels in memory that is lent to a thread.
#include "pmm/kernels/host_parts.hpp"

#include <array>
#include <cstdint>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using pmm::LentMemory;
using pmm::thread_memory;

std::uintptr_t address_of(void const* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

class ThreadMemory : public ::testing::Test {
 protected:
  [[nodiscard]] bool is_lent(float const* memory, std::size_t count) const {
    return memory >= lent_.data() && memory + count <= lent_.data() + lent_.size();
  }

  std::array<float, 256> lent_{};
};

TEST_F(ThreadMemory, IsWhatIsLentIfItFitsFromACacheLineOn) {
  auto* const own = thread_memory<float>(100);
  EXPECT_FALSE(is_lent(own, 100));
  {
    LentMemory const room(lent_.data() + 1, sizeof(lent_) - sizeof(float));
    auto* const memory = thread_memory<float>(100);
    EXPECT_TRUE(is_lent(memory, 100));
    EXPECT_EQ(address_of(memory) % 64, 0U);
    EXPECT_EQ(thread_memory<double>(60), static_cast<void*>(memory));
    EXPECT_FALSE(is_lent(thread_memory<float>(256), 1)) << "longer than what is left from a cache line on";
  }
  EXPECT_FALSE(is_lent(thread_memory<float>(100), 100)) << "no longer lent";
}

TEST_F(ThreadMemory, IsTheInnermostThatIsLongEnough) {
  std::array<float, 64> small{};
  LentMemory const outer(lent_.data(), sizeof(lent_));
  LentMemory const inner(small.data(), sizeof(small));
  LentMemory const none(nullptr, 0);
  auto const* const few = thread_memory<float>(16);
  EXPECT_TRUE(few >= small.data() && few < small.data() + small.size());
  EXPECT_TRUE(is_lent(thread_memory<float>(200), 200));
}

} // namespace
} // namespace orthant::testing

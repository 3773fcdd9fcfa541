// SPDX-License-Identifier: Apache-2.0
//
// Texts of any bytes between ranks.
#include "runtime/comm/together.hpp"

#include "runtime/comm/communicator.hpp"
#include "runtime/observe/ledger.hpp"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace orthant::runtime {
namespace {

TEST(TextExchange, CarriesAnyBytesAndLengths) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const last = world.size() - 1;
  for (std::size_t const length : {0, 1, 7, 8, 9, 1000}) {
    std::string text(length, '\0');
    for (std::size_t i = 0; i < length; ++i)
      text[i] = static_cast<char>(i * 37 + length);
    auto here = world.rank() == last ? text : std::string("to be replaced");

    broadcast_text(world, here, last);
    EXPECT_EQ(here, text);
  }
}

// Texts of 0 to 40 bytes in windows of one, two and many words: in the order of the ranks, byte for byte.
TEST(TextExchange, GathersTextsInWindows) {
  Communicator const world(MPI_COMM_WORLD, "world");
  auto const text_of = [](int rank, int round) {
    std::string text;
    for (int i = 0; i < (13 * rank + 7 * round) % 41; ++i)
      text.push_back(static_cast<char>(rank * 50 + i));
    return text;
  };
  for (std::int64_t const window : {8, 16, 1 << 24})
    for (int round = 0; round < 8; ++round) {
      std::string expected;
      std::int64_t num_words = 0;
      for (int rank = 0; rank < world.size(); ++rank) {
        expected += text_of(rank, round);
        num_words += static_cast<std::int64_t>(text_of(rank, round).size() + 7) / 8;
      }
      world.ledger().clear();
      std::string gathered;

      gather_text(
          world, text_of(world.rank(), round),
          [&](std::string_view piece) {
            EXPECT_LE(static_cast<std::int64_t>(piece.size()), window);
            gathered += piece;
          },
          window);

      EXPECT_EQ(gathered, world.is_root() ? expected : "");
      // One exchange a window, however many ranks there are, and no rank waits for its turn to send.
      if (world.size() == 1) continue;
      EXPECT_EQ(world.ledger()[Operation::all_to_all].calls, (8 * num_words + window - 1) / window);
      EXPECT_EQ(world.ledger().total().calls, 1 + world.ledger()[Operation::all_to_all].calls);
    }
}

} // namespace
} // namespace orthant::runtime

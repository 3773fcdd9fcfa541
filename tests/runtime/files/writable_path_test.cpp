// SPDX-License-Identifier: Apache-2.0
//
// Whether a file can be written is found out without touching it.
#include "runtime/comm/communicator.hpp"
#include "runtime/files/staged_file.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::runtime {
namespace {

using test::message_of;
using test::ScratchFolder;
using test::text_of_file;
using testing::HasSubstr;

TEST(RequireWritable, LooksWithoutTouching) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const old = folder.file("old");
  if (world.is_root()) test::write_file(old, "kept");

  require_writable(world, old, "metrics");
  require_writable(world, folder.file("new"), "metrics");
  auto const message = message_of([&] { require_writable(world, "/nowhere/run.jsonl", "metrics"); });

  EXPECT_EQ(message, "cannot open the metrics file '/nowhere/run.jsonl': there is no folder '/nowhere'");
  EXPECT_THAT(message_of([&] { require_writable(world, "/", "metrics"); }), HasSubstr("Is a directory"));
  if (world.is_root()) {
    EXPECT_EQ(text_of_file(old), "kept");
    EXPECT_FALSE(std::filesystem::exists(folder.file("new")));
  }
}

} // namespace
} // namespace orthant::runtime

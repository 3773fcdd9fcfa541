// SPDX-License-Identifier: Apache-2.0
//
// Metrics: what a line holds, and what is added to which file.
#include "runtime/report/metrics.hpp"

#include "runtime/comm/collectives.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace orthant::runtime {
namespace {

using nlohmann::ordered_json;
using test::lines_of;
using test::message_of;
using test::ScratchFolder;
using test::text_of_file;
using testing::HasSubstr;

TEST(Metrics, EpochKeysComeInOrderAndAbsentOnesStayAway) {
  EpochRecord record;
  record.epoch = 3;
  record.loss = 0.1;
  record.grad_norms = {1, 2.5};
  record.learning_rate = 0.005;
  record.seconds = 0.25;
  record.comm_bytes = 9'007'199'254'740'993; // beyond a double's integers
  record.sent_bytes = 17;
  record.phases.add("forward", 0.125);
  EXPECT_EQ(
      to_json(record).dump(),
      R"({"epoch":3,"loss":0.1,"grad_norms":[1.0,2.5],"lr":0.005,"seconds":0.25,"comm_bytes":9007199254740993,)"
      R"("sent_bytes":17,"phases":{"forward":0.125}})");

  record.scores = {{"val_acc", 0.5}, {"accuracy", 2.0}};
  EXPECT_TRUE(
      to_json(record).dump().ends_with(R"("phases":{"forward":0.125},"val_acc":0.5,"accuracy":2.0})"));
  EXPECT_EQ(record.score("val_acc"), 0.5);
  EXPECT_FALSE(record.score("test_acc").has_value());
}

TEST(Metrics, EveryLineIsThereAtOnceAndRoundTrips) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("run.jsonl");
  auto const older = std::string(R"({"event":"run"})");
  if (world.is_root()) test::write_file(path, older + "\n" + R"({"event":"ep)"); // killed within a line
  MetricsWriter writer(world, path);
  EXPECT_EQ(writer.is_on(), world.is_root());

  std::vector<double> const awkward{0.1, 1.0 / 3, std::nextafter(1.0, 2.0), 5e-324, 1.7976931348623157e308,
                                    -0.0};
  writer.write("run", {{"seed", 7}, {"path", "caf\xe9"}});
  for (auto const value : awkward) {
    EpochRecord record;
    record.loss = value;
    writer.write(record);
  }
  EpochRecord failed;
  failed.loss = std::numeric_limits<double>::quiet_NaN();
  writer.write(failed);
  writer.write("done", ordered_json::object());

  if (world.is_root()) {
    auto lines = lines_of(text_of_file(path)); // before close
    ASSERT_EQ(lines.size(), awkward.size() + 5);
    EXPECT_EQ(lines[0], older);
    EXPECT_EQ(lines[1], R"({"event":"ep)");
    lines.erase(lines.begin(), lines.begin() + 2);
    EXPECT_EQ(lines.front().substr(0, 23), R"({"event":"run","seed":7)");
    for (std::size_t i = 0; i < awkward.size() && i + 1 < lines.size(); ++i) {
      auto const loss = ordered_json::parse(lines[i + 1])["loss"].get<double>();
      EXPECT_EQ(loss, awkward[i]);
      EXPECT_EQ(std::signbit(loss), std::signbit(awkward[i]));
    }
    EXPECT_TRUE(ordered_json::parse(lines[awkward.size() + 1])["loss"].is_null());
    EXPECT_EQ(lines.back(), R"({"event":"done"})");
  }
  writer.close(world);
  EXPECT_FALSE(writer.is_on());
}

TEST(Metrics, NoPathWritesNothing) {
  Communicator const world(MPI_COMM_WORLD, "world");
  MetricsWriter writer(world, "");
  EXPECT_FALSE(writer.is_on());
  writer.write("run", ordered_json::object());
  writer.close(world);
}

TEST(Metrics, AreAddedOnlyToMetricsAndMadeWithTheFirstLine) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  std::string const store("\x89HDF\r\n\x1a\n and more", 17);
  if (world.is_root()) {
    test::write_file(folder.file("g.h5"), store);
    test::write_file(folder.file("list.json"), "[1, 2]\n");
  }
  barrier(host, world);

  EXPECT_THAT(message_of([&] { MetricsWriter(world, folder.file("g.h5")); }),
              HasSubstr("g.h5' exists and holds no metrics"));
  EXPECT_THAT(message_of([&] { MetricsWriter(world, folder.file("list.json")); }), HasSubstr("no metrics"));
  MetricsWriter writer(world, folder.file("new.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("new.jsonl")));
  barrier(host, world);
  writer.write("run", ordered_json::object());
  writer.close(world);

  EXPECT_EQ(text_of_file(folder.file("g.h5")), store);
  EXPECT_EQ(text_of_file(folder.file("new.jsonl")), "{\"event\":\"run\"}\n");
}

TEST(Metrics, UnwritablePathIsEveryonesUserError) {
  Communicator const world(MPI_COMM_WORLD, "world");
  EXPECT_EQ(message_of([&] { MetricsWriter(world, "/nowhere/run.jsonl"); }),
            "cannot open the metrics file '/nowhere/run.jsonl': there is no folder '/nowhere'");
}

TEST(Metrics, FullDiskEndsTheMetricsButNotTheRun) {
  auto const instruments = std::make_shared<Instruments>();
  instruments->log.set_level(LogLevel::off);
  Communicator const world(MPI_COMM_WORLD, "world", instruments);
  MetricsWriter writer(world, "/dev/full");
  for (int i = 0; i < 3; ++i)
    EXPECT_NO_THROW(writer.write("epoch", {{"epoch", i}}));
  EXPECT_EQ(message_of([&] { writer.close(world); }),
            "cannot write the metrics file '/dev/full': No space left on device");
}

} // namespace
} // namespace orthant::runtime

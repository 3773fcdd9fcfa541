// SPDX-License-Identifier: Apache-2.0
//
// What a trace records, and the file of all ranks' traces.
#include "runtime/observe/trace.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/report/metrics.hpp"
#include "runtime/report/timer.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace orthant::runtime {
namespace {

using nlohmann::ordered_json;
using test::message_of;
using test::ScratchFolder;
using test::text_of_file;
using testing::HasSubstr;

TEST(Trace, RecordsNothingWhileOff) {
  Trace trace;
  trace.add("work", "regions", Trace::Clock::now(), Trace::Clock::now());
  EXPECT_EQ(trace.num_records(), 0);
  EXPECT_EQ(trace.num_dropped(), 0);
}

TEST(Trace, HoldsRegionsAndCollectivesOfAllRanks) {
  auto const instruments = std::make_shared<Instruments>();
  Communicator const world(MPI_COMM_WORLD, "world", instruments);
  ScratchFolder const folder(MPI_COMM_WORLD);
  instruments->trace.start();
  PhaseTimes phases;
  {
    ScopedTimer const outer(*instruments, phases, "outer");
    ScopedTimer const inner(*instruments, phases, "in\"ner");
    Communicator const group(MPI_COMM_WORLD, std::string("an axis that is gone when the trace is written"),
                             instruments);
    std::vector<float> data(10, 1.0f);
    all_reduce(host, group, data);
  }

  write_trace(world, instruments->trace, folder.file("trace.json"));

  if (!world.is_root()) return;
  auto const file = ordered_json::parse(text_of_file(folder.file("trace.json")));
  std::map<std::pair<int, int>, std::string> lanes;
  std::multiset<std::string> slices;
  std::set<int> processes;
  for (auto const& event : file["traceEvents"]) {
    auto const process = event["pid"].get<int>();
    processes.insert(process);
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") lanes[{process, event["tid"]}] = event["args"]["name"];
      if (event["name"] == "process_name") {
        EXPECT_EQ(event["args"]["name"], fmt::format("rank {}", process));
      }
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    auto const lane = lanes.at({process, event["tid"]});
    if (event["name"] == "all_reduce") {
      EXPECT_EQ(lane, "an axis that is gone when the trace is written");
      EXPECT_EQ(event["args"]["bytes"], 40);
    } else {
      EXPECT_EQ(lane, "regions");
      EXPECT_FALSE(event.contains("args"));
    }
    slices.insert(event["name"].get<std::string>());
  }
  auto const ranks = static_cast<std::size_t>(world.size());
  EXPECT_EQ(processes.size(), ranks);
  EXPECT_EQ(slices.count("outer"), ranks);
  EXPECT_EQ(slices.count("in\"ner"), ranks);
  EXPECT_EQ(slices.count("all_reduce"), ranks > 1 ? ranks : 0);
}

TEST(Trace, OverlappingSlicesGetLanesOfTheirOwn) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  Trace trace;
  trace.start();
  auto const zero = Trace::Clock::now();
  auto const at = [&](int ms) { return zero + std::chrono::milliseconds(ms); };
  trace.add("c", "x", at(6), at(9)); // within b's lane, after a: beside b
  trace.add("a", "x", at(0), at(5));
  trace.add("nested", "x", at(1), at(2));
  trace.add("b", "x", at(4), at(8)); // overlaps a
  trace.add("other", "y", at(0), at(9));
  trace.add("touching", "x", at(9), at(10));

  write_trace(world, trace, folder.file("trace.json"));

  if (!world.is_root()) return;
  auto const file = ordered_json::parse(text_of_file(folder.file("trace.json")));
  std::map<int, std::string> lanes;
  std::map<std::string, std::string> lane_of;
  for (auto const& event : file["traceEvents"]) {
    if (event["pid"] != 0) continue;
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X") lane_of[event["name"]] = lanes.at(event["tid"]);
  }
  EXPECT_EQ(lane_of,
            (std::map<std::string, std::string>{
                {"a", "x"}, {"nested", "x"}, {"b", "x (2)"}, {"c", "x"}, {"touching", "x"}, {"other", "y"}}));
}

TEST(Trace, FullTraceDropsAndSaysSo) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  Trace trace;
  trace.start(10);
  auto const now = Trace::Clock::now();
  for (int i = 0; i < 15; ++i)
    trace.add("x", "y", now, now);

  write_trace(world, trace, folder.file("trace.json"));

  EXPECT_EQ(trace.num_records(), 10);
  EXPECT_EQ(trace.num_dropped(), 5);
  if (world.is_root()) {
    EXPECT_THAT(text_of_file(folder.file("trace.json")), HasSubstr("5 later records dropped"));
  }
}

TEST(Trace, ThreadsRecordTogether) {
  Trace trace;
  trace.start();
  auto const record = [&] {
    for (int i = 0; i < 1000; ++i)
      trace.add(i % 2 == 0 ? "even" : "odd", "threads", Trace::Clock::now(), Trace::Clock::now());
  };
  std::thread other(record);
  record();
  other.join();
  EXPECT_EQ(trace.num_records(), 2000);
}

TEST(Trace, OffOnAllRanksIsStillJson) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  write_trace(world, Trace(), folder.file("trace.json"));
  if (world.is_root()) {
    EXPECT_TRUE(ordered_json::accept(text_of_file(folder.file("trace.json"))));
  }
}

TEST(Trace, UnwritablePathIsEveryonesUserError) {
  Communicator const world(MPI_COMM_WORLD, "world");
  Trace trace;
  trace.start();
  EXPECT_EQ(message_of([&] { write_trace(world, trace, "/nowhere/at/all.json"); }),
            "cannot open the trace file '/nowhere/at/all.json': there is no folder '/nowhere/at'");
  EXPECT_EQ(message_of([&] { write_trace(world, trace, "/dev/full"); }),
            "cannot write the trace file '/dev/full': it is a device or a pipe; a regular file is wanted");
}

} // namespace
} // namespace orthant::runtime

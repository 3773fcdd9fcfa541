// SPDX-License-Identifier: Apache-2.0
//
// Trace, timers and metrics.
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/text_exchange.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/report/metrics.hpp"
#include "runtime/report/timer.hpp"
#include "runtime/report/trace_file.hpp"
#include "support/scratch_folder.hpp"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace orthant::runtime {
namespace {

using nlohmann::ordered_json;
using test::ScratchFolder;
using test::text_of_file;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(auto&& action) {
  try {
    action();
  } catch (UserError const& error) {
    return error.what();
  }
  return "no UserError";
}

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

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

// Trace ---------------------------------------------------------------------------------------------------

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

// Timers --------------------------------------------------------------------------------------------------

TEST(PhaseTimes, AddUpInOrderOfAppearance) {
  PhaseTimes phases;
  phases.add("spmm", 0.5);
  phases.add("gemm", 0.25);
  phases.add("spmm", 0.125);

  EXPECT_EQ(phases.to_json().dump(), R"({"spmm":0.625,"gemm":0.25})");
  EXPECT_EQ(phases.seconds("spmm"), 0.625);
  EXPECT_EQ(phases.seconds("unheard of"), 0);
  phases.clear();
  EXPECT_EQ(phases.to_json().dump(), "{}");
  phases.add("gemm", 1);
  EXPECT_EQ(phases.to_json().dump(), R"({"gemm":1.0})");
}

TEST(PhaseTimes, LargestOverRanks) {
  Communicator const world(MPI_COMM_WORLD, "world");
  PhaseTimes phases;
  if (world.rank() == world.size() - 1)
    phases.add("only on the last rank", 7); // rank 0 knows it in a world of one
  phases.add("everywhere", world.rank() + 1);
  if (world.is_root()) phases.add("only on rank 0", 3);

  auto const largest = phases.max_over_ranks(world);

  EXPECT_EQ(largest.seconds("everywhere"), world.size());
  EXPECT_EQ(largest.seconds("only on rank 0"), 3);
  EXPECT_EQ(largest.phases().size(), world.size() == 1 ? 3u : 2u);
  EXPECT_TRUE(PhaseTimes().max_over_ranks(world).phases().empty());
}

TEST(ScopedTimer, MeasuresItsLifeOnce) {
  Instruments instruments;
  PhaseTimes phases;
  double stopped = 0;
  {
    ScopedTimer timer(instruments, phases, "work");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stopped = timer.stop();
    EXPECT_EQ(timer.stop(), stopped);
  }
  EXPECT_GE(stopped, 0.005);
  EXPECT_EQ(phases.seconds("work"), stopped);
  EXPECT_EQ(phases.phases().front().calls, 1);
}

std::vector<std::string>* seen_regions = nullptr; // Kokkos's callbacks carry no state

TEST(ScopedTimer, IsARegionOfKokkosTools) {
  std::vector<std::string> regions;
  seen_regions = &regions;
  Kokkos::Tools::Experimental::set_push_region_callback(
      [](char const* name) { seen_regions->emplace_back(name); });
  Kokkos::Tools::Experimental::set_pop_region_callback([] { seen_regions->emplace_back("end"); });
  Instruments instruments;
  PhaseTimes phases;
  {
    ScopedTimer const outer(instruments, phases, "forward");
    ScopedTimer inner(instruments, phases, "aggregate");
    inner.stop();
  }
  Kokkos::Tools::Experimental::set_push_region_callback(nullptr);
  Kokkos::Tools::Experimental::set_pop_region_callback(nullptr);
  EXPECT_THAT(regions, ElementsAre("forward", "aggregate", "end", "end"));
}

// Output files and metrics --------------------------------------------------------------------------------

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

TEST(Metrics, EpochKeysComeInOrderAndAbsentOnesStayAway) {
  EpochRecord record;
  record.epoch = 3;
  record.loss = 0.1;
  record.grad_norms = {1, 2.5};
  record.seconds = 0.25;
  record.comm_bytes = 9'007'199'254'740'993; // beyond a double's integers
  record.sent_bytes = 17;
  record.phases.add("forward", 0.125);
  EXPECT_EQ(to_json(record).dump(),
            R"({"epoch":3,"loss":0.1,"grad_norms":[1.0,2.5],"seconds":0.25,"comm_bytes":9007199254740993,)"
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

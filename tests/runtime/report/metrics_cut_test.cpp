// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/metrics.hpp"

#include "support/scratch_folder.hpp"

#include <filesystem>
#include <gtest/gtest.h>

namespace orthant::runtime {
namespace {

constexpr auto other_run = R"({"event":"run","command":"train"}
{"event":"epoch","epoch":1}
{"event":"epoch","epoch":9}
{"event":"done","loss":1}
)";
constexpr auto first_run = R"({"event":"run","training":"t"}
{"event":"epoch","epoch":1}
{"event":"epoch","epoch":2}
)";
constexpr auto second_run = R"({"event":"run","training":"t","resumed":{}}
{"event":"epoch","epoch":3}
)";
constexpr auto second_end = R"({"event":"epoch","epoch":4}
{"event":"done","loss":2}
)";

class MetricsCut : public ::testing::Test {
 protected:
  Communicator self_{MPI_COMM_SELF, "self"};
  test::ScratchFolder scratch_{MPI_COMM_SELF};
  std::string path_ = scratch_.file("m.jsonl");

  std::string cut(std::string const& text, std::int64_t epoch) {
    test::write_file(path_, text);
    cut_metrics(self_, path_, "t", epoch);
    return test::text_of_file(path_);
  }
};

TEST_F(MetricsCut, RemovesTheEpochsThatComeAgainAndTheEndBehindThem) {
  auto const all = std::string(first_run) + second_run + second_end;
  EXPECT_EQ(cut(all, 4), std::string(first_run) + second_run);
  EXPECT_EQ(cut(all, 3), std::string(first_run) + "{\"event\":\"run\",\"training\":\"t\",\"resumed\":{}}\n");
  EXPECT_EQ(cut(all, 5), all);
}

TEST_F(MetricsCut, LeavesOtherRunsAsTheyAre) {
  auto const around = std::string(other_run) + first_run + second_run + second_end + other_run;
  EXPECT_EQ(cut(around, 4), std::string(other_run) + first_run + second_run + other_run);
  EXPECT_EQ(cut(std::string(first_run) + other_run + "{\"event\":\"epo", 3),
            std::string(first_run) + other_run + "{\"event\":\"epo");
}

TEST_F(MetricsCut, RemovesALineThatIsNotComplete) {
  EXPECT_EQ(cut(std::string(first_run) + "{\"event\":\"epo", 3), first_run);
  EXPECT_EQ(cut(std::string(first_run) + "{\"event\":\"epoch\",\"epoch\":2}", 3), first_run);
}

TEST_F(MetricsCut, LeavesNothingWhereNothingIs) {
  cut_metrics(self_, path_, "t", 1);
  cut_metrics(self_, "", "t", 1);
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::create_symlink("m.jsonl", scratch_.file("link"));
  test::write_file(path_, std::string(first_run));
  cut_metrics(self_, scratch_.file("link"), "t", 1);
  EXPECT_TRUE(std::filesystem::is_symlink(scratch_.file("link")));
  EXPECT_EQ(test::text_of_file(path_), "{\"event\":\"run\",\"training\":\"t\"}\n");
}

TEST_F(MetricsCut, GivesMetricsOfAnotherTrainingAnotherName) {
  auto const set_aside = [&] { return set_aside_other_metrics(self_, path_, "t").string(); };
  EXPECT_EQ(set_aside(), "");
  test::write_file(path_, "");
  EXPECT_EQ(set_aside(), "");
  test::write_file(path_, std::string(other_run) + first_run);
  EXPECT_EQ(set_aside(), "");

  test::write_file(path_, R"({"event":"run","training":"u"})"
                          "\n"
                          R"({"event":"epoch","training":"t"})");
  EXPECT_EQ(set_aside(), path_ + ".1");
  EXPECT_FALSE(std::filesystem::exists(path_));
  test::write_file(path_, R"({"eve)"); // killed within its first line
  EXPECT_EQ(set_aside(), path_ + ".2");
  EXPECT_EQ(test::text_of_file(path_ + ".2"), R"({"eve)");

  std::filesystem::create_symlink("m.jsonl", scratch_.file("link"));
  test::write_file(path_, other_run);
  EXPECT_EQ(set_aside_other_metrics(self_, scratch_.file("link"), "t").filename(), "m.jsonl.3");
  EXPECT_TRUE(std::filesystem::is_symlink(scratch_.file("link")));
}

} // namespace
} // namespace orthant::runtime

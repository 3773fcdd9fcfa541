// SPDX-License-Identifier: Apache-2.0

#include "runtime/job/time_limit.hpp"

#include "runtime/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

namespace orthant::runtime {
namespace {

using ::testing::HasSubstr;

TEST(Duration, IsReadWithUnitsAndAsAClock) {
  std::map<std::string, double> const seconds{
      {"90", 90},     {"90s", 90},   {"15min", 900},    {"15m", 900},   {"2h", 7200},
      {"0.5h", 1800}, {"1d", 86400}, {"1:30:00", 5400}, {"10:05", 605}, {"2-12:00:00", 216000}};
  for (auto const& [text, expected] : seconds)
    EXPECT_EQ(parse_duration("--max-walltime", text), expected) << text;
}

TEST(Duration, OfAnotherFormIsTheUsersMistake) {
  for (auto const* const text : {"", "soon", "-5", "0", "0:00", "5x", "1:2:3:4", "1:-2", "1::2", "nan", "inf",
                                 "1e999", "h", "2-", "1-12", "12 h"})
    try {
      (void)parse_duration("--max-walltime", text);
      ADD_FAILURE() << "'" << text << "' was read";
    } catch (UserError const& error) {
      EXPECT_THAT(error.what(), HasSubstr("--max-walltime " + std::string(text))) << text;
      EXPECT_THAT(error.what(), HasSubstr("15min")) << text;
    }
}

TEST(SlurmTime, IsReadInItsForms) {
  EXPECT_EQ(parse_slurm_time("1-02:03:04"), 93784);
  EXPECT_EQ(parse_slurm_time("02:03:04"), 7384);
  EXPECT_EQ(parse_slurm_time("3:04"), 184);
  EXPECT_EQ(parse_slurm_time("0:00"), 0);
  for (auto const* const text : {"UNLIMITED", "NOT_SET", "INVALID", "", "7"})
    EXPECT_EQ(parse_slurm_time(text), std::nullopt) << text;
}

/// Surroundings at the time 1000 with those variables, where squeue answers that.
TimeSources sources_with(std::map<std::string, std::string> const& variables, std::string const& squeue) {
  TimeSources sources;
  sources.now = 1000;
  sources.getenv = [&variables](char const* name) {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  sources.squeue_time_left = [squeue](std::string const& job) {
    return job == "17" || job == "17_3" ? squeue : "";
  };
  return sources;
}

TEST(SlurmEndTime, IsTheVariablesElseSqueues) {
  std::map<std::string, std::string> const with_end{{"SLURM_JOB_END_TIME", "4600"}, {"SLURM_JOB_ID", "17"}};
  std::map<std::string, std::string> const broken{{"SLURM_JOB_END_TIME", "late"}, {"SLURM_JOB_ID", "17"}};
  std::map<std::string, std::string> const with_id{{"SLURM_JOB_ID", "17"}};
  std::map<std::string, std::string> const of_array{
      {"SLURM_JOB_ID", "16"}, {"SLURM_ARRAY_JOB_ID", "17"}, {"SLURM_ARRAY_TASK_ID", "3"}};
  std::map<std::string, std::string> const none;

  EXPECT_EQ(slurm_end_time(sources_with(with_end, "10:00")), 4600);
  EXPECT_EQ(slurm_end_time(sources_with(broken, "10:00")), 1600);
  EXPECT_EQ(slurm_end_time(sources_with(with_id, "10:00")), 1600);
  EXPECT_EQ(slurm_end_time(sources_with(of_array, "10:00")), 1600);
  EXPECT_EQ(slurm_end_time(sources_with(with_id, "UNLIMITED")), std::nullopt);
  EXPECT_EQ(slurm_end_time(sources_with(with_id, "")), std::nullopt);
  EXPECT_EQ(slurm_end_time(sources_with(none, "10:00")), std::nullopt);
}

} // namespace
} // namespace orthant::runtime

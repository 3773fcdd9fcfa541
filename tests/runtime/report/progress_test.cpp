// SPDX-License-Identifier: Apache-2.0
//
// Progress and log: what a user sees while a job runs.
#include "runtime/report/progress.hpp"

#include "runtime/error.hpp"
#include "runtime/observe/log.hpp"
#include "support/user_messages.hpp"

#include <algorithm>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace orthant::runtime {
namespace {

using test::lines_of;
using test::message_of;
using testing::HasSubstr;

/// A stdio file in memory's place, to see what is printed.
class Printed {
 public:
  Printed() : file_(std::tmpfile()) {}
  ~Printed() { std::fclose(file_); }
  Printed(Printed const&) = delete;
  Printed& operator=(Printed const&) = delete;
  [[nodiscard]] std::FILE* file() const { return file_; }
  [[nodiscard]] std::string text() const {
    std::rewind(file_);
    std::string text;
    for (int character = std::fgetc(file_); character != EOF; character = std::fgetc(file_))
      text += static_cast<char>(character);
    return text;
  }

 private:
  std::FILE* file_;
};

// Progress ------------------------------------------------------------------------------------------------

TEST(Progress, OneAlignedLineAnEpochOffTheTerminal) {
  Printed const out;
  ASSERT_EQ(progress_style(true, out.file()), ProgressStyle::lines);
  Progress progress(10, "epoch", ProgressStyle::lines, out.file());
  for (int epoch = 1; epoch <= 10; ++epoch)
    progress.update(epoch, {{"loss", 12.5 / epoch}, {"val_acc", 0.5}});
  progress.finish();
  progress.update(10);

  auto const lines = lines_of(out.text());
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines.front().substr(0, 51), "epoch  1/10  loss   12.500000  val_acc    0.500000 ");
  EXPECT_EQ(lines.back().substr(0, 51), "epoch 10/10  loss    1.250000  val_acc    0.500000 ");
  EXPECT_THAT(lines.front(), HasSubstr("ETA"));
  EXPECT_THAT(lines.back(), testing::Not(HasSubstr("ETA")));
}

TEST(Progress, BarIsDrawnSeldomAndEndsClean) {
  Printed const out;
  {
    Progress progress(100'000, "step", ProgressStyle::bar, out.file());
    for (int step = 1; step <= 100'000; ++step)
      progress.update(step, {{"loss", 1.0}});
  }
  auto const text = out.text();
  auto const num_drawn = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(num_drawn, 2);
  EXPECT_LE(num_drawn, 20); // ten a second; the loop takes milliseconds, or a second under a sanitizer
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("step 100000/100000 [####################]"));
  for (auto const& draw : lines_of([&] {
         auto split = text;
         std::replace(split.begin(), split.end(), '\r', '\n');
         return split;
       }()))
    EXPECT_LE(draw.size(), 79u + 3); // one terminal line, and the sequence that clears its rest
}

TEST(Progress, OtherRanksPrintNothing) {
  Printed const out;
  EXPECT_EQ(progress_style(false, out.file()), ProgressStyle::none);
  {
    Progress progress(3, "epoch", ProgressStyle::none, out.file());
    progress.update(1);
  }
  EXPECT_EQ(out.text(), "");
}

TEST(Progress, UnknownTotalHasNoBarAndOddNumbersFit) {
  Printed const out;
  Progress progress(0, "step", ProgressStyle::lines, out.file());
  progress.update(12,
                  {{"loss", 1e-9}, {"norm", 123456.0}, {"bad", std::numeric_limits<double>::quiet_NaN()}});
  auto const text = out.text();
  EXPECT_THAT(text, HasSubstr("step       12  loss  1.0000e-09  norm  1.2346e+05  bad         nan "));
}

TEST(ClockText, ReadsLikeAClock) {
  EXPECT_EQ(clock_text(0.2), "0:00");
  EXPECT_EQ(clock_text(59.7), "1:00");
  EXPECT_EQ(clock_text(754), "12:34");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(3 * 86400 + 4 * 3600 + 300), "3d 04:05");
  EXPECT_EQ(clock_text(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(clock_text(-1), "?");
}

// Log -----------------------------------------------------------------------------------------------------

TEST(Log, Rank0SpeaksTheOthersOnlyWarn) {
  Printed const first;
  Printed const other;
  Log log_of_first(0, first.file());
  Log log_of_other(3, other.file());
  for (auto* const log : {&log_of_first, &log_of_other}) {
    log->debug("not shown at level {}", "info");
    log->info("{} ranks", 4);
    log->warn("device {} is shared", 1);
  }
  EXPECT_EQ(first.text(), "orthant: 4 ranks\northant: warning: device 1 is shared\n");
  EXPECT_EQ(other.text(), "orthant: rank 3: warning: device 1 is shared\n");
}

TEST(Log, LevelDecides) {
  Printed const out;
  Log log(0, out.file());
  log.set_level(parse_log_level("debug"));
  log.debug("{{braces}} {}", "{}");
  log.set_level(LogLevel::error);
  log.warn("quiet");
  log.warn_once("quiet");
  log.set_level(LogLevel::off);
  EXPECT_FALSE(log.prints(LogLevel::error));
  EXPECT_EQ(out.text(), "orthant: debug: {braces} {}\n");
}

TEST(Log, FallbacksAreToldOnce) {
  Printed const first;
  Printed const other;
  Log log_of_first(0, first.file());
  Log log_of_other(1, other.file());
  for (int step = 0; step < 3; ++step) {
    log_of_first.warn_once("no {} here: host staging instead", "NCCL");
    log_of_other.warn_once("no {} here: host staging instead", "NCCL");
  }
  EXPECT_EQ(first.text(), "orthant: warning: no NCCL here: host staging instead\n");
  EXPECT_EQ(other.text(), "");
}

TEST(Log, UnknownLevelIsAUserError) {
  EXPECT_EQ(message_of([] { static_cast<void>(parse_log_level("wraning")); }),
            "'wraning' is no log level (trace, debug, info, warning, error, off); did you mean 'warning'?");
  EXPECT_EQ(parse_log_level("warn"), LogLevel::warning);
}

} // namespace
} // namespace orthant::runtime

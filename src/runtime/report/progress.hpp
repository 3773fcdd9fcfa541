#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Progress of a loop on rank 0: a bar on a terminal, otherwise one aligned line per reported unit.
//
//   epoch  40/200 [####----------------] loss 1.2346  score 0.7130  ETA 0:13  12.3 epoch/s
//   epoch  40/200  loss    1.234567  score    0.713000  12.3 epoch/s  ETA 0:13
//
// On a narrow terminal the last fields are dropped first, then the bar: `epoch  40/200 loss 1.2346  score 0.7130`.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orthant::runtime {

enum class ProgressStyle : std::uint8_t { none, lines, bar };

/// `bar` if `out` is a terminal that can redraw a line, otherwise `lines`; `none` on other ranks.
[[nodiscard]] ProgressStyle progress_style(bool is_root, std::FILE* out = stderr);

class Progress {
 public:
  struct Field {
    std::string_view name;
    double value;
    int num_decimals = -1; // -1: chosen by magnitude
  };

  /// `total` is the number of units named `unit` ("epoch"), or 0 if unknown.
  Progress(std::int64_t total, std::string unit, ProgressStyle style, std::FILE* out = stderr);
  Progress(Progress const&) = delete;
  Progress& operator=(Progress const&) = delete;
  /// Leaves the cursor at the beginning of a new line.
  ~Progress() { finish(); }

  /// Reports that `done` units are finished. The most important field comes first. A bar is redrawn at most ten times per second (and for
  /// the last unit and `notable` units); other calls cost one clock read, so that update() may be called in a fast loop.
  enum class Unit : std::uint8_t { usual, notable };
  void update(std::int64_t done, std::span<Field const> fields, Unit unit = Unit::usual);
  void update(std::int64_t done, std::initializer_list<Field> fields = {}, Unit unit = Unit::usual) {
    update(done, std::span(fields.begin(), fields.size()), unit);
  }
  [[nodiscard]] ProgressStyle style() const { return style_; }

  /// Ends the line of the bar; later updates draw nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::int64_t done, std::span<Field const> fields, Clock::time_point now);
  [[nodiscard]] std::string head_text(std::int64_t done) const;
  [[nodiscard]] std::string bar_text(std::int64_t done, std::span<Field const> fields, double rate,
                                     std::size_t width) const;

  std::int64_t total_;
  std::string unit_;
  ProgressStyle style_;
  std::FILE* out_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_draw_ = begin_;
  std::int64_t first_done_ = -1; // of the first update; not 0 for a resumed run
  bool has_drawn_ = false;
};

/// A bar for each step of a job whose steps report their completed fraction. Draws only on a terminal, because lines would repeat the
/// summary.
class StepBars {
 public:
  explicit StepBars(bool is_root) : style_(progress_style(is_root)) {}

  void report(std::string const& step, double fraction);
  /// Ends the line of the last bar.
  void finish() { bar_.reset(); }

 private:
  ProgressStyle style_;
  std::string step_;
  std::optional<Progress> bar_;
};

/// "0:07", "12:34", "1:02:03", "3d 04:05".
[[nodiscard]] std::string clock_text(double seconds);

} // namespace orthant::runtime

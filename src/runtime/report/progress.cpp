// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <numeric>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace orthant::runtime {
namespace {

constexpr auto draw_interval = std::chrono::milliseconds(100);
constexpr std::size_t bar_width = 20;

/// Width of the terminal. A longer line would wrap, and a wrapped line cannot be redrawn.
std::size_t terminal_width(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 80;
  return size.ws_col;
}

} // namespace

ProgressStyle progress_style(bool is_root, std::FILE* out) {
  if (!is_root) return ProgressStyle::none;
  auto const* const terminal = std::getenv("TERM");
  auto const can_redraw = terminal != nullptr && std::string_view(terminal) != "dumb";
  return isatty(fileno(out)) != 0 && can_redraw ? ProgressStyle::bar : ProgressStyle::lines;
}

std::string clock_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e10)) return "?";
  auto const whole = static_cast<std::int64_t>(std::llround(seconds));
  auto const hours = whole / 3600;
  auto const minutes = whole / 60 % 60;
  if (hours >= 24) return fmt::format("{}d {:02}:{:02}", hours / 24, hours % 24, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

Progress::Progress(std::int64_t total, std::string unit, ProgressStyle style, std::FILE* out)
    : total_(total),
      unit_(std::move(unit)),
      style_(style),
      out_(out) {}

void Progress::update(std::int64_t done, std::span<Field const> fields, Unit unit) {
  if (style_ == ProgressStyle::none) return;
  auto const now = Clock::now();
  // The first unit began with the loop; units before it were done by an earlier run.
  if (first_done_ < 0) first_done_ = std::max<std::int64_t>(done - 1, 0);
  auto const is_due = now >= next_draw_ || unit == Unit::notable || done == total_;
  if (style_ == ProgressStyle::bar && !is_due) return;
  draw(done, fields, now);
  next_draw_ = now + draw_interval;
}

std::string Progress::head_text(std::int64_t done) const {
  if (total_ == 0) return fmt::format("{} {:>8}", unit_, done);
  return fmt::format("{} {:>{}}/{}", unit_, done, fmt::formatted_size("{}", total_), total_);
}

std::string Progress::bar_text(std::int64_t done, std::span<Field const> fields, double rate,
                               std::size_t width) const {
  std::vector<std::string> parts{head_text(done)}; // each begins with its separator
  for (auto const& field : fields) {
    auto const magnitude = std::fabs(field.value);
    auto const is_plain = magnitude < 1e4 && (magnitude >= 1e-3 || magnitude == 0);
    auto const number = field.num_decimals >= 0 ? fmt::format("{:.{}f}", field.value, field.num_decimals)
                        : is_plain              ? fmt::format("{:.4f}", field.value)
                                                : fmt::format("{:.2e}", field.value);
    parts.push_back(fmt::format("{}{} {}", parts.size() == 1 ? " " : "  ", field.name, number));
  }
  constexpr std::size_t num_important = 3; // fields
  auto const rest = parts.begin() + static_cast<std::ptrdiff_t>(1 + std::min(num_important, fields.size()));
  if (total_ > 0 && rate > 0 && done < total_)
    parts.insert(rest, fmt::format("  ETA {}", clock_text(static_cast<double>(total_ - done) / rate)));
  parts.push_back(fmt::format("  {:.3g} {}/s", rate, unit_));
  std::string bar;
  if (total_ > 0) {
    auto const share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    auto const filled = static_cast<std::size_t>(share * static_cast<double>(bar_width));
    bar = fmt::format(" [{:#<{}}{:-<{}}]", "", filled, "", bar_width - filled);
  }
  auto const length_of = [&](std::size_t count) {
    return std::accumulate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count), bar.size(),
                           [](std::size_t sum, std::string const& part) { return sum + part.size(); });
  };
  if (length_of(1 + std::min(num_important, fields.size())) >= width) bar.clear();
  while (parts.size() > 1 && length_of(parts.size()) >= width)
    parts.pop_back();
  parts.front() += bar;
  return fmt::format("{}", fmt::join(parts, "")).substr(0, width - 1);
}

void Progress::draw(std::int64_t done, std::span<Field const> fields, Clock::time_point now) {
  auto const elapsed = std::chrono::duration<double>(now - begin_).count();
  auto const rate = elapsed > 0 ? static_cast<double>(done - first_done_) / elapsed : 0;
  std::string line;
  if (style_ == ProgressStyle::bar) {
    line = fmt::format("\r{}\033[K", bar_text(done, fields, rate, terminal_width(out_)));
  } else {
    auto const out = std::back_inserter(line);
    line = head_text(done) + ' ';
    for (auto const& field : fields) {
      auto const magnitude = std::fabs(field.value);
      // Fixed point if six decimals show enough digits, so that columns stay aligned.
      if (field.num_decimals >= 0)
        fmt::format_to(out, " {} {:>8.{}f} ", field.name, field.value, field.num_decimals);
      else if (magnitude < 1e3 && (magnitude >= 1e-3 || magnitude == 0))
        fmt::format_to(out, " {} {:>11.6f} ", field.name, field.value);
      else
        fmt::format_to(out, " {} {:>11.4e} ", field.name, field.value);
    }
    fmt::format_to(out, " {:.3g} {}/s", rate, unit_);
    if (total_ > 0 && rate > 0 && done < total_)
      fmt::format_to(out, "  ETA {}", clock_text(static_cast<double>(total_ - done) / rate));
    line += '\n';
  }
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fflush(out_);
  has_drawn_ = true;
}

void Progress::finish() {
  if (style_ == ProgressStyle::bar && has_drawn_) {
    std::fputc('\n', out_);
    std::fflush(out_);
  }
  style_ = ProgressStyle::none;
}

void StepBars::report(std::string const& step, double fraction) {
  if (style_ != ProgressStyle::bar) return;
  constexpr std::int64_t per_mille = 1000;
  if (step != step_ || !bar_) {
    bar_.reset();
    step_ = step;
    bar_.emplace(per_mille, step, style_);
  }
  bar_->update(static_cast<std::int64_t>(fraction * static_cast<double>(per_mille)));
}

} // namespace orthant::runtime

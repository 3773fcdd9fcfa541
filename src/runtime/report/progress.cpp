// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <iterator>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {
namespace {

constexpr auto draw_interval = std::chrono::milliseconds(100);
constexpr std::size_t bar_width = 20;

/// A longer line would wrap, and a wrapped line cannot be redrawn.
std::size_t terminal_width(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
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

void Progress::update(std::int64_t done, std::span<Field const> fields) {
  if (style_ == ProgressStyle::none) return;
  auto const now = Clock::now();
  // The first unit began with the loop; whatever was done before it was done by an earlier run.
  if (first_done_ < 0) first_done_ = std::max<std::int64_t>(done - 1, 0);
  if (style_ == ProgressStyle::bar && now < next_draw_ && done != total_) return;
  draw(done, fields, now);
  next_draw_ = now + draw_interval;
}

void Progress::draw(std::int64_t done, std::span<Field const> fields, Clock::time_point now) {
  auto const elapsed = std::chrono::duration<double>(now - begin_).count();
  auto const rate = elapsed > 0 ? static_cast<double>(done - first_done_) / elapsed : 0;
  std::string line;
  auto const out = std::back_inserter(line);
  if (total_ > 0) {
    auto const digits = fmt::formatted_size("{}", total_);
    fmt::format_to(out, "{} {:>{}}/{} ", unit_, done, digits, total_);
    if (style_ == ProgressStyle::bar) {
      auto const share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
      auto const filled = static_cast<std::size_t>(share * static_cast<double>(bar_width));
      line += '[' + std::string(filled, '#') + std::string(bar_width - filled, '-') + ']';
    }
  } else {
    fmt::format_to(out, "{} {:>8} ", unit_, done);
  }
  for (auto const& field : fields) {
    auto const magnitude = std::fabs(field.value);
    // Fixed point while six decimals say something: columns stay aligned.
    if (magnitude < 1e3 && (magnitude >= 1e-3 || magnitude == 0))
      fmt::format_to(out, " {} {:>11.6f} ", field.name, field.value);
    else
      fmt::format_to(out, " {} {:>11.4e} ", field.name, field.value);
  }
  fmt::format_to(out, " {:.3g} {}/s", rate, unit_);
  if (total_ > 0 && rate > 0 && done < total_)
    fmt::format_to(out, "  ETA {}", clock_text(static_cast<double>(total_ - done) / rate));

  if (style_ == ProgressStyle::bar) {
    if (auto const width = terminal_width(out_); line.size() >= width) line.resize(width - 1);
    line = "\r" + line + "\033[K";
  } else {
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

} // namespace orthant::runtime

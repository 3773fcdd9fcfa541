// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/position.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <pthread.h>
#include <utility>
#include <vector>

namespace orthant::runtime {
namespace {

template<std::size_t Size>
void assign(std::array<char, Size>& field, std::string_view text) {
  auto const length = std::min(text.size(), Size - 1);
  std::copy_n(text.data(), length, field.data());
  field[length] = '\0';
}

std::string_view file_name(std::source_location where) {
  auto const path = std::string_view(where.file_name());
  auto const slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

double seconds_of(clockid_t clock) {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

} // namespace

void Position::enter(std::string_view what, std::string_view axis, std::int64_t sequence, std::int64_t bytes,
                     std::source_location where) {
  std::lock_guard const lock(mutex_);
  now_.is_waiting = true;
  now_.sequence = sequence;
  now_.bytes = bytes;
  now_.line = where.line();
  assign(now_.what, what);
  assign(now_.axis, axis);
  assign(now_.file, file_name(where));
  note_change();
}

void Position::leave() {
  std::lock_guard const lock(mutex_);
  now_.is_waiting = false;
  note_change();
}

Position::Work Position::begin_work(std::source_location where) {
  Work work;
  work.is_open = pthread_getcpuclockid(pthread_self(), &work.clock) == 0;
  assign(work.file, file_name(where));
  work.line = where.line();
  std::lock_guard const lock(mutex_);
  note_change();
  return std::exchange(work_, work);
}

void Position::end_work(Work const& outer) {
  std::lock_guard const lock(mutex_);
  work_ = outer;
  note_change();
}

void Position::note_change() {
  ++now_.num_changes;
  since_ = Clock::now();
}

Whereabouts Position::read() const {
  std::lock_guard const lock(mutex_);
  auto copy = now_;
  copy.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  copy.is_working = work_.is_open;
  if (copy.is_working && !copy.is_waiting) copy.processor_seconds = seconds_of(work_.clock);
  copy.work_file = work_.file;
  copy.work_line = work_.line;
  return copy;
}

namespace {

// A report of ten thousand ranks at different positions would be useless.
constexpr std::size_t max_groups = 32;

template<std::size_t Size>
std::string_view text_of(std::array<char, Size> const& field) {
  return {field.data()};
}

/// Ranks at the same position.
struct Group {
  RankState state;
  std::vector<int> ranks;
  double seconds = 0;       // longest time since the last change
  int first = 0;            // rank that arrived first
  int last = 0;             // and last,
  double least_seconds = 0; // which waits for this time
};

bool stand_together(RankState const& a, RankState const& b) {
  if (a.has_answered != b.has_answered) return false;
  if (!a.has_answered) return true;
  auto const& p = a.position;
  auto const& q = b.position;
  auto const work_alike = p.is_waiting || (p.is_working == q.is_working && p.work_line == q.work_line &&
                                           p.work_file == q.work_file);
  return p.is_waiting == q.is_waiting && p.sequence == q.sequence && p.bytes == q.bytes && p.line == q.line &&
         p.what == q.what && p.axis == q.axis && p.file == q.file && work_alike;
}

std::vector<Group> group(std::span<RankState const> states) {
  std::vector<Group> groups;
  for (std::size_t r = 0; r < states.size(); ++r) {
    auto const& state = states[r];
    auto found = std::ranges::find_if(groups, [&](Group const& g) { return stand_together(g.state, state); });
    if (found == groups.end()) {
      auto const rank = static_cast<int>(r);
      groups.push_back({state, {}, state.position.seconds, rank, rank, state.position.seconds});
      found = groups.end() - 1;
    }
    found->ranks.push_back(static_cast<int>(r));
    if (state.position.seconds > found->seconds) {
      found->seconds = state.position.seconds;
      found->first = static_cast<int>(r);
    }
    if (state.position.seconds < found->least_seconds) {
      found->least_seconds = state.position.seconds;
      found->last = static_cast<int>(r);
    }
  }
  return groups;
}

/// "all_reduce on axis world (number 17, 4096 bytes) at train.cpp:33".
std::string describe_place(Whereabouts const& p) {
  return fmt::format("{} on axis {} (number {}, {} bytes) at {}:{}", text_of(p.what), text_of(p.axis),
                     p.sequence, p.bytes, text_of(p.file), p.line);
}

std::string describe_ranks(std::vector<int> const& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", format_ranges(ranks));
}

/// Who came late to the collective, if the watchdogs' clocks can tell.
std::string describe_arrivals(Group const& g) {
  constexpr double least_difference = 0.5;
  if (g.seconds - g.least_seconds < least_difference) return {};
  return fmt::format("; rank {} arrived first, rank {} last, {:.1f} s later", g.first, g.last,
                     g.seconds - g.least_seconds);
}

std::string describe_group(Group const& g) {
  auto const ranks = describe_ranks(g.ranks);
  auto const& p = g.state.position;
  if (!g.state.has_answered)
    return fmt::format("  {}: not arrived; does not answer (stopped, or its node is unreachable)\n", ranks);
  if (p.is_waiting)
    return fmt::format("  {}: waiting {:.1f} s in {}{}\n", ranks, g.seconds, describe_place(p),
                       describe_arrivals(g));
  if (p.is_working)
    return fmt::format(
        "  {}: not arrived; works by itself at {}:{}, but has used no processor for {:.1f} s\n", ranks,
        text_of(p.work_file), p.work_line, g.seconds);
  if (text_of(p.what).empty())
    return fmt::format("  {}: not arrived; has been in no collective yet, for {:.1f} s\n", ranks, g.seconds);
  return fmt::format("  {}: not arrived; left {}, {:.1f} s ago\n", ranks, describe_place(p), g.seconds);
}

/// True if every rank waits, so that calls that do not match are the likely cause.
bool all_wait(std::vector<Group> const& groups) {
  return std::ranges::all_of(
      groups, [](Group const& g) { return g.state.has_answered && g.state.position.is_waiting; });
}

} // namespace

std::string format_ranges(std::span<int const> numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    auto last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    if (!text.empty()) text += ',';
    text += last == first ? fmt::format("{}", numbers[first])
                          : fmt::format("{}-{}", numbers[first], numbers[last]);
    first = last + 1;
  }
  return text;
}

bool is_hang(std::span<RankState const> states, double timeout_seconds) {
  auto const waits = [](RankState const& state) { return state.has_answered && state.position.is_waiting; };
  auto const is_silent = [&](RankState const& state) {
    return !state.has_answered || state.position.seconds > timeout_seconds;
  };
  return std::ranges::any_of(states, waits) && std::ranges::all_of(states, is_silent);
}

bool stood_still(std::span<RankState const> before, std::span<RankState const> after) {
  return std::ranges::equal(before, after, [](RankState const& a, RankState const& b) {
    return a.has_answered == b.has_answered && a.position.num_changes == b.position.num_changes;
  });
}

std::string describe_hang(std::span<RankState const> states, double timeout_seconds, int reporter) {
  auto text =
      fmt::format("orthant: error: no progress in a collective for {:g} s; ending the job (rank {} of {} "
                  "reports)\n",
                  timeout_seconds, reporter, states.size());
  auto groups = group(states);
  // First the ranks that wait, then the ranks for which they wait.
  std::ranges::stable_partition(
      groups, [](Group const& g) { return g.state.has_answered && g.state.position.is_waiting; });
  auto const num_shown = std::min(groups.size(), max_groups);
  for (std::size_t i = 0; i < num_shown; ++i)
    text += describe_group(groups[i]);
  if (groups.size() > num_shown) text += fmt::format("  .. and {} more groups\n", groups.size() - num_shown);
  if (groups.size() > 1 && all_wait(groups))
    text += "  every rank waits: the ranks do not call the same operations in the same order\n";
  return text;
}

std::string describe_own_hang(Whereabouts const& position, double timeout_seconds, int rank) {
  return fmt::format(
      "orthant: error: no progress in a collective for {:g} s; ending the job\n  rank {}: waiting "
      "{:.1f} s in {}\n",
      timeout_seconds, rank, position.seconds, describe_place(position));
}

} // namespace orthant::runtime

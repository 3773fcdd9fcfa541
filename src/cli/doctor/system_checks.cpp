// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/checks.hpp"
#include "cli/machine/units.hpp"
#include "cli/study/scheduler.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <span>
#include <sys/vfs.h>

namespace orthant::cli {

std::string text_of(std::span<Diagnosis const> checks) {
  std::string text;
  for (auto const& [name, fact, findings] : checks) {
    text += fmt::format("{:<6} {:<13} {}\n", findings.empty() ? "ok" : "wrong", name, fact);
    for (auto const& [what, fix] : findings)
      text += fmt::format("{:<21}{}\n{:<21}fix: {}\n", "", what, "", fix);
  }
  return text;
}

int num_findings(std::span<Diagnosis const> checks) {
  std::size_t count = 0;
  for (auto const& check : checks)
    count += check.findings.size();
  return static_cast<int>(count);
}

namespace {

constexpr double most_skew_seconds = 0.1; // with more, log lines of two hosts get out of order
constexpr double least_bytes_per_second = 5e6;
constexpr long lustre = 0x0bd00bd3;
constexpr long nfs = 0x6969;
constexpr long memory = 0x01021994;

double time_of_day() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string kind_of(std::filesystem::path const& folder) {
  struct statfs facts {};
  if (statfs(folder.c_str(), &facts) != 0) return "file system";
  auto const type = static_cast<long>(facts.f_type);
  return type == lustre   ? "Lustre"
         : type == nfs    ? "NFS"
         : type == memory ? "memory"
                          : "local or other file system";
}

/// Seconds to write and sync `num_bytes` bytes.
double time_write(std::filesystem::path const& folder, std::size_t num_bytes) {
  auto const begin = std::chrono::steady_clock::now();
  std::string const block(num_bytes, 'x');
  runtime::StagedFile file(folder / "orthant-doctor", "test file"); // not published, so it is deleted
  file.file().append(block);
  file.file().sync();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Number of targets over which Lustre stripes new files; -1: all; 0: unknown, or another file system.
int num_stripes(std::filesystem::path const& folder) {
  auto const done = run_child({"lfs", "getstripe", "-d", "-c", folder.string()});
  return done.status == 0 ? std::atoi(done.output.c_str()) : 0;
}

} // namespace

Diagnosis check_huge_pages(std::string_view setting) {
  auto const begin = setting.find('['), end = setting.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos)
    return {"huge pages", "not told by the system"};
  auto const chosen = setting.substr(begin + 1, end - begin - 1);
  Diagnosis check{"huge pages", fmt::format("transparent ones: {}", chosen)};
  if (chosen == "never")
    check.findings.push_back(
        {"large arrays lie on small pages, which makes sparse products slower (measured: 1.1 to 1.7 times)",
         "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  return check;
}

std::vector<ClockOffset> measure_clocks(runtime::Communicator const& world, bool is_first) {
  constexpr auto num_trips = 10;
  std::vector<std::int32_t> first_ranks(static_cast<std::size_t>(world.size()));
  std::int32_t const own = is_first ? 1 : 0;
  runtime::all_gather(runtime::host, world, std::span(&own, 1), std::span(first_ranks));
  std::vector<ClockOffset> offsets;
  for (int rank = 1; rank < world.size(); ++rank) {
    if (first_ranks[static_cast<std::size_t>(rank)] == 0) continue;
    ClockOffset offset{rank, 0, 1e9};
    for (auto trip = 0; trip < num_trips; ++trip) {
      double time = time_of_day();
      if (world.rank() == 0) {
        auto const begin = time;
        runtime::send(runtime::host, world, std::span(&time, 1), rank);
        runtime::receive(runtime::host, world, std::span(&time, 1), rank);
        auto const half = (time_of_day() - begin) / 2;
        if (half < offset.error_seconds) offset = {rank, time - (begin + half), half};
      } else if (world.rank() == rank) {
        runtime::receive(runtime::host, world, std::span(&time, 1), 0);
        time = time_of_day();
        runtime::send(runtime::host, world, std::span(&time, 1), 0);
      }
    }
    if (world.rank() == 0) offsets.push_back(offset);
  }
  return offsets;
}

Diagnosis check_clocks(std::vector<ClockOffset> const& offsets) {
  Diagnosis check{"clocks", offsets.empty() ? "of one host" : ""};
  double largest = 0;
  for (auto const& [rank, seconds, error] : offsets) {
    largest = std::max(largest, std::abs(seconds));
    if (std::abs(seconds) - error > most_skew_seconds)
      check.findings.push_back(
          {fmt::format("the clock of rank {}'s host is {:.3f} s {} that of rank 0's", rank, std::abs(seconds),
                       seconds > 0 ? "ahead of" : "behind"),
           "let both hosts synchronise their clocks (chronyc tracking shows the state)"});
  }
  if (!offsets.empty())
    check.fact = fmt::format("of {} hosts, at most {:.3f} ms apart", offsets.size() + 1, largest / milli);
  return check;
}

Diagnosis check_storage(std::filesystem::path const& wanted) {
  auto folder = wanted.empty() ? std::filesystem::current_path() : std::filesystem::absolute(wanted);
  while (!std::filesystem::exists(folder) && folder.has_parent_path() && folder != folder.parent_path())
    folder = folder.parent_path();
  Diagnosis check{"storage", fmt::format("{}: {}", folder.string(), kind_of(folder))};
  try {
    constexpr std::size_t num_bytes = std::size_t{16} << 20;
    auto const rate = static_cast<double>(num_bytes) / time_write(folder, num_bytes);
    check.fact += fmt::format(", {:.0f} MB/s by one rank", rate / mega);
    if (rate < least_bytes_per_second)
      check.findings.push_back({fmt::format("writing is slow: {:.1f} MB/s", rate / mega),
                                "put checkpoints on a parallel file system or a local disk"});
  } catch (runtime::UserError const& error) {
    check.fact += ", cannot be written";
    if (!wanted.empty())
      check.findings.push_back(
          {fmt::format("checkpoints cannot be written to '{}': {}", wanted.string(), error.what()),
           "give --checkpoint a folder that every rank may write (on clusters often below $SCRATCH), or "
           "mount it for "
           "writing"});
  }
  auto const stripes = num_stripes(folder);
  if (stripes != 0)
    check.fact +=
        fmt::format(", new files lie on {}", stripes < 0    ? "all storage targets"
                                             : stripes == 1 ? "1 storage target"
                                                            : fmt::format("{} storage targets", stripes));
  if (stripes == 1)
    check.findings.push_back(
        {"new files lie on one storage target", fmt::format("lfs setstripe -c 8 {}", folder.string())});
  return check;
}

} // namespace orthant::cli

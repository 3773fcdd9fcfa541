// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/process_memory.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <sys/resource.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace orthant::runtime {
namespace {

/// Value in bytes of a line "Name:   123 kB" of /proc/self/status.
std::int64_t status_bytes(std::string const& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == name + ":") {
      std::int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

#ifdef __GLIBC__
/// True if the user has set how memory is allocated.
bool has_own_settings() {
  for (auto const* const name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"})
    if (std::getenv(name) != nullptr) return true;
  auto const* const tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string(tunables).find("malloc") != std::string::npos;
}
#endif

/// Sets the size from which arrays are mapped, and the freed memory that the heap retains at its end.
void set_thresholds([[maybe_unused]] int mapped_bytes, [[maybe_unused]] int kept_bytes) {
#ifdef __GLIBC__
  if (has_own_settings()) return;
  mallopt(M_MMAP_THRESHOLD, mapped_bytes);
  mallopt(M_TRIM_THRESHOLD, kept_bytes);
#endif
}

constexpr int mib = 1 << 20;

std::atomic<int> num_mapped_arrays = 0;

} // namespace

std::int64_t resident_bytes() {
  return status_bytes("VmRSS");
}
std::int64_t peak_resident_bytes() {
  return status_bytes("VmHWM");
}

// glibc's initial values. With 1 MiB, the holes between arrays of experts on 2 and 4 ranks took 4 MiB more.
MappedArrays::MappedArrays() {
  if (num_mapped_arrays++ == 0) set_thresholds(mib / 8, mib / 8);
}
// The largest values that glibc itself chooses after large arrays were freed.
MappedArrays::~MappedArrays() {
  if (--num_mapped_arrays == 0) set_thresholds(32 * mib, 64 * mib);
}

namespace {

constexpr auto unlimited = std::numeric_limits<std::int64_t>::max();

/// Returns the number after `name` in a file with lines "name number ..".
std::optional<std::int64_t> number_behind(std::filesystem::path const& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t number = 0;
    if (words >> word && word == name && words >> number) return number;
  }
  return std::nullopt;
}

/// The number that is the whole content of a file; empty for "max".
std::optional<std::int64_t> number_in(std::filesystem::path const& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// The files of one version of control groups.
struct GroupFiles {
  char const* folder; // below `groups`
  char const* limit;
  char const* usage;
  std::array<char const*, 3> droppable; // keys in memory.stat
};
constexpr GroupFiles version_1{"memory",
                               "memory.limit_in_bytes",
                               "memory.usage_in_bytes",
                               {"total_active_file", "total_inactive_file", "total_slab_reclaimable"}};
constexpr GroupFiles version_2{
    "", "memory.max", "memory.current", {"active_file", "inactive_file", "slab_reclaimable"}};

void lower(MemoryLimit& limit, std::int64_t bytes, std::string source) {
  if (bytes < limit.bytes) limit = {bytes, std::move(source)};
}

/// Lowers `limit` to the memory that one group still allows.
void lower_by_group(MemoryLimit& limit, std::filesystem::path const& folder, GroupFiles const& files) {
  auto const most = number_in(folder / files.limit);
  auto const used = number_in(folder / files.usage);
  if (!most || !used) return;
  auto droppable = std::int64_t{0};
  for (auto const* name : files.droppable)
    droppable += number_behind(folder / "memory.stat", name).value_or(0);
  auto const held = std::max<std::int64_t>(*used - droppable, 0);
  lower(limit, std::max<std::int64_t>(*most - held, 0), (folder / files.limit).string());
}

std::string size_text(std::int64_t bytes) {
  constexpr auto gib = std::int64_t{1} << 30;
  return bytes < 10 * gib ? fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20)
                          : fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30);
}

} // namespace

MemoryLimit memory_of_node(MemorySources const& sources) {
  MemoryLimit limit{unlimited, ""};
  if (auto const kilobytes = number_behind(sources.meminfo, "MemAvailable:"))
    lower(limit, *kilobytes * 1024, "MemAvailable of " + sources.meminfo.string());
  return limit;
}

MemoryLimit memory_of_group(MemorySources const& sources) {
  MemoryLimit limit{unlimited, ""};
  std::ifstream file(sources.group_of_process);
  // "4:memory:/job/step" of version 1, "0::/job/step" of version 2
  for (std::string line; std::getline(file, line);) {
    auto const first = line.find(':');
    auto const second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    auto const controllers =
        fmt::format(",{},", std::string_view(line).substr(first + 1, second - first - 1));
    auto const is_second = line.starts_with("0:") && controllers == ",,";
    if (!is_second && controllers.find(",memory,") == std::string::npos) continue;
    auto const& files = is_second ? version_2 : version_1;
    auto const top = sources.groups / files.folder;
    // A container may not see its own group's folder; folders of groups above it may exist.
    std::filesystem::path group = line.substr(second + 1);
    for (group = group.relative_path(); !group.empty(); group = group.parent_path())
      lower_by_group(limit, top / group, files);
    lower_by_group(limit, top, files);
  }
  return limit;
}

MemoryLimit memory_of_process(MemorySources const& sources) {
  auto most = sources.address_space.value_or(unlimited);
  struct rlimit found {};
  if (!sources.address_space && ::getrlimit(RLIMIT_AS, &found) == 0 && found.rlim_cur != RLIM_INFINITY)
    most = static_cast<std::int64_t>(std::min<rlim_t>(found.rlim_cur, unlimited));
  if (most == unlimited) return {unlimited, ""};
  auto const used = number_behind(sources.status, "VmSize:").value_or(0) * 1024;
  return {std::max<std::int64_t>(most - used, 0), "ulimit -v"};
}

namespace {

/// Total memory that the ranks with a common limit need.
struct Claim {
  std::int64_t bytes;
  int num_ranks;
  MemoryLimit limit;
};

/// The claims for this rank's `needed` bytes. Collective.
std::array<Claim, 3> claims_of(Communicator const& comm, std::int64_t needed, MemorySources const& sources) {
  auto const node = comm.split_by_node();
  needed = std::min(needed, std::int64_t{1} << 53); // so that no sum overflows
  auto const on_node = all_reduced(node, needed);
  // If the ranks of a node have different groups, each has its own limit.
  auto const group = memory_of_group(sources);
  auto const mark = static_cast<std::int64_t>(std::hash<std::string>{}(group.source) >> 1);
  auto const is_shared = all_reduced(node, mark, Reduction::min) == all_reduced(node, mark, Reduction::max);
  return {
      Claim{on_node, node.size(), memory_of_node(sources)},
      Claim{is_shared ? on_node : needed, is_shared ? node.size() : 1, group},
      Claim{needed, 1, memory_of_process(sources)},
  };
}

} // namespace

void require_memory(Communicator const& comm, std::string_view what, std::int64_t needed,
                    MemorySources const& sources) {
  auto const claims = claims_of(comm, needed, sources);
  together(comm, [&] {
    for (auto const& [bytes, num_ranks, limit] : claims)
      if (bytes > limit.bytes)
        throw_user("{} needs about {} of memory on {} rank{} of a node, but {} is available ({}); use more "
                   "nodes, make it smaller, or give --force-memory to start anyway",
                   what, size_text(bytes), num_ranks, num_ranks == 1 ? "" : "s", size_text(limit.bytes),
                   limit.source);
  });
}

std::int64_t memory_of_rank(Communicator const& comm, MemorySources const& sources) {
  auto least = std::numeric_limits<std::int64_t>::max();
  for (auto const& [bytes, num_ranks, limit] : claims_of(comm, 0, sources))
    least = std::min(least, limit.bytes / num_ranks);
  return all_reduced(comm, least, Reduction::min);
}

void advise_huge_pages([[maybe_unused]] void* address, [[maybe_unused]] std::size_t num_bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20;
  constexpr std::size_t worth_it = 4 * page;
  if (num_bytes < worth_it) return;
  auto const begin = reinterpret_cast<std::uintptr_t>(address);
  auto const first = (begin + page - 1) / page * page;
  auto const end = (begin + num_bytes) / page * page;
  // Fails if the kernel has no transparent huge pages. The memory is then used without them.
  madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/estimate.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/checked.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <string_view>
#include <sys/statvfs.h>

namespace orthant::graph {

using runtime::checked_product;
using runtime::checked_sum;

Estimate estimate_partition(runtime::Communicator const& comm, GraphSource const& source,
                            PermutationKind permutation) {
  auto const& facts = source.facts();
  Estimate estimate;
  estimate.num_edges = facts.num_edges;
  if (estimate.num_edges < 0) {
    auto const mine = source.num_local_edges();
    auto const is_known = runtime::all_reduced(comm, mine, runtime::Reduction::min) >= 0;
    if (is_known) estimate.num_edges = runtime::all_reduced(comm, mine);
  }
  auto const num_edges = std::max<std::int64_t>(0, estimate.num_edges);
  bool const has_two_orders =
      permutation == PermutationKind::twofold || permutation == PermutationKind::cluster;
  auto const num_entries = facts.is_directed ? num_edges * (has_two_orders ? 2 : 1) : 2 * num_edges;
  std::int64_t const entry_bytes = facts.is_weighted ? 8 : 4;
  std::int64_t const vertex_bytes = has_two_orders ? 24 : 8;
  std::int64_t const label_bytes = facts.label_kind == LabelKind::none     ? 0
                                   : facts.label_kind == LabelKind::single ? 8
                                                                           : 2 * facts.num_classes;
  constexpr std::string_view features = "the bytes of the features";
  auto const feature_bytes = // half of a product that fits: so do sums
      facts.feature_kind == FeatureKind::dense
          ? checked_product(checked_product(facts.num_vertices, facts.num_features, features), 8, features) /
                2
          : 0;
  auto const rows =
      checked_product(facts.num_vertices, vertex_bytes + label_bytes, "the bytes of the labels");
  estimate.disk_bytes =
      checked_sum(num_entries * entry_bytes, checked_sum(rows, feature_bytes, "the bytes of the store"),
                  "the bytes of the store");

  // Edges take 8 bytes (12 with a weight) until they turn into entries in the same memory; a vertex's degree
  // and positions 48; a rank's program, libraries and buffers some 64 MiB.
  auto const edge_memory = std::max(num_edges * (facts.is_weighted ? 12 : 8), num_entries * entry_bytes);
  auto const base = std::int64_t{comm.size()} * (std::int64_t{64} << 20);
  estimate.memory_bytes = std::max(edge_memory, feature_bytes) + facts.num_vertices * 48 + base;

  constexpr double edges_per_second = 5e6; // a core, from files to store
  constexpr double bytes_per_second = 2e8;
  estimate.seconds = (static_cast<double>(num_edges) / edges_per_second +
                      static_cast<double>(feature_bytes) / bytes_per_second) /
                     comm.size();
  return estimate;
}

void require_disk_space(runtime::Communicator const& comm, std::filesystem::path const& output,
                        std::int64_t needed) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
    struct statvfs found {};
    if (::statvfs(folder.c_str(), &found) != 0)
      runtime::throw_user("cannot write to {}: {}", folder.string(), std::strerror(errno));
    auto const free_bytes =
        static_cast<std::int64_t>(found.f_bavail) * static_cast<std::int64_t>(found.f_frsize);
    if (free_bytes < needed)
      runtime::throw_user(
          "{} needs about {} and its disk has {} left; free some space or choose another disk",
          output.string(), bytes_text(needed), bytes_text(free_bytes));
  });
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<char const*, 6> units{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes)
                   : fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, units[unit]);
}

} // namespace orthant::graph

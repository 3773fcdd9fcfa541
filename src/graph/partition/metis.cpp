// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/metis.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/numbers/counts.hpp"

#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <metis.h>
#include <numeric>

namespace orthant::graph {

using runtime::index;

static_assert(sizeof(idx_t) == sizeof(std::int32_t), "METIS with 32-bit indices");

namespace {

char const* name_of_status(int status) {
  switch (status) {
  case METIS_ERROR_INPUT:
    return "bad input";
  case METIS_ERROR_MEMORY:
    return "out of memory";
  default:
    return "unknown error";
  }
}

void measure(Adjacency const& graph, MetisResult& result) {
  std::vector<std::int64_t> sizes(index(result.num_parts));
  std::vector<std::int64_t> seen_by(index(result.num_parts), -1); // last vertex that has seen this part
  for (std::int64_t v = 0; v < graph.num_vertices(); ++v) {
    auto const mine = result.parts[index(v)];
    ++sizes[index(mine)];
    for (auto k = graph.offsets[index(v)]; k < graph.offsets[index(v) + 1]; ++k) {
      auto const u = graph.neighbours[index(k)];
      auto const part = result.parts[index(u)];
      if (part == mine) continue;
      if (u > v) ++result.cut;
      if (seen_by[index(part)] == v) continue;
      seen_by[index(part)] = v;
      ++result.volume;
    }
  }
  result.balance = static_cast<double>(*std::max_element(sizes.begin(), sizes.end())) *
                   static_cast<double>(result.num_parts) / static_cast<double>(graph.num_vertices());
}

} // namespace

Adjacency make_adjacency(std::int64_t num_vertices, std::vector<std::array<std::int32_t, 2>>& edges) {
  std::vector<std::int64_t> starts(index(num_vertices) + 1);
  for (auto const& [a, b] : edges) {
    ++starts[index(a) + 1];
    ++starts[index(b) + 1];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  Adjacency graph;
  graph.neighbours.resize(2 * edges.size());
  auto next = starts;
  for (auto const& [a, b] : edges) {
    graph.neighbours[index(next[index(a)]++)] = b;
    graph.neighbours[index(next[index(b)]++)] = a;
  }
  edges = {};

  graph.offsets.resize(starts.size());
  auto to = graph.neighbours.begin();
  for (std::int64_t v = 0; v < num_vertices; ++v) {
    auto const begin = graph.neighbours.begin() + starts[index(v)];
    auto const end = graph.neighbours.begin() + starts[index(v) + 1];
    std::sort(begin, end);
    to = std::copy(begin, std::unique(begin, end), to);
    graph.offsets[index(v) + 1] = static_cast<std::int32_t>(to - graph.neighbours.begin());
  }
  graph.neighbours.erase(to, graph.neighbours.end());
  return graph;
}

namespace {
constexpr std::int64_t most_metis_vertices = std::numeric_limits<idx_t>::max();
constexpr std::int64_t most_metis_edges = most_metis_vertices / 2; // each counts at both ends
} // namespace

bool fits_metis(std::int64_t num_edges, std::int64_t num_vertices) {
  return num_edges <= most_metis_edges && num_vertices <= most_metis_vertices;
}

void require_metis_size(std::int64_t num_edges, std::int64_t num_vertices, std::string const& what) {
  if (!fits_metis(num_edges, num_vertices))
    runtime::throw_user(
        "{}: METIS counts in 32 bits, so it takes at most {} edges and {} vertices; this graph "
        "has {} and {}",
        what, most_metis_edges, most_metis_vertices, num_edges, num_vertices);
}

MetisResult partition_with_metis(Adjacency const& graph, std::int64_t num_parts, std::uint64_t seed,
                                 MetisMethod method) {
  auto const n = graph.num_vertices();
  MetisResult result;
  result.num_parts = std::clamp<std::int64_t>(num_parts, 1, n);
  result.parts.resize(index(n));
  if (graph.neighbours.empty()) {
    // METIS divides by the number of edges, which may be 0.
    for (std::int64_t v = 0; v < n; ++v)
      result.parts[index(v)] = static_cast<std::int32_t>(v * result.num_parts / n);
  } else if (result.num_parts > 1) {
    idx_t options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_NUMBERING] = 0;
    options[METIS_OPTION_SEED] = static_cast<idx_t>(seed & 0x7fffffffU);
    auto vertices = static_cast<idx_t>(n);
    idx_t constraints = 1;
    auto parts = static_cast<idx_t>(result.num_parts);
    idx_t cut = 0;
    // METIS takes pointers to mutable data and only reads these.
    auto* const offsets = const_cast<idx_t*>(graph.offsets.data());
    auto* const neighbours = const_cast<idx_t*>(graph.neighbours.data());
    auto const find = method == MetisMethod::kway ? METIS_PartGraphKway : METIS_PartGraphRecursive;
    auto const status = find(&vertices, &constraints, offsets, neighbours, nullptr, nullptr, nullptr, &parts,
                             nullptr, nullptr, options, &cut, result.parts.data());
    ORTHANT_REQUIRE(status == METIS_OK, "METIS: ", name_of_status(status));
  }
  measure(graph, result);
  return result;
}

std::vector<std::int32_t> scatter_parts(runtime::Communicator const& comm, std::int64_t num_vertices,
                                        std::span<std::int32_t const> parts) {
  std::vector<std::int64_t> send_counts(index(comm.size()));
  std::vector<std::int64_t> receive_counts(index(comm.size()));
  if (comm.is_root())
    for (int rank = 0; rank < comm.size(); ++rank)
      send_counts[index(rank)] = runtime::balanced_range(num_vertices, comm.size(), rank).size();
  receive_counts[0] = runtime::balanced_range(num_vertices, comm.size(), comm.rank()).size();
  std::vector<std::int32_t> mine(index(receive_counts[0]));
  runtime::all_to_allv(runtime::host, comm, parts, send_counts, mine, receive_counts);
  return mine;
}

std::filesystem::path metis_file_of(std::filesystem::path const& output, std::int64_t num_parts) {
  auto path = output;
  path.replace_extension(fmt::format("metis{}.txt", num_parts));
  return path;
}

void write_assignment(std::filesystem::path const& path, std::span<std::int32_t const> parts) {
  runtime::StagedFile staged(path, "METIS");
  std::string text;
  constexpr std::size_t flush_at = std::size_t{1} << 20;
  for (auto const part : parts) {
    fmt::format_to(std::back_inserter(text), "{}\n", part);
    if (text.size() < flush_at) continue;
    staged.file().append(text);
    text.clear();
  }
  staged.file().append(text);
  staged.publish();
}

} // namespace orthant::graph

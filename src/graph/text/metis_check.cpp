// SPDX-License-Identifier: Apache-2.0
//
// Checks a graph file of METIS as a whole, and finds which vertices the lines of each rank belong to (check_metis_graph).
#include "graph/exchange.hpp"
#include "graph/text/metis_graph.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

namespace orthant::graph {

namespace {

constexpr std::int64_t check_batch = std::int64_t{1} << 16;

/// One of the two places where the file lists an edge.
struct Listed {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float weight = 0;
  std::int32_t is_at_low = 0; // 1: listed in the line of vertex `low`

  [[nodiscard]] auto edge() const { return std::tuple(low, high, weight); }
};

Listed listed(EdgeBatch const& batch, std::size_t i) {
  auto const [source, target] = batch.edges[i];
  auto const weight = (batch.weights.empty() ? 1.0F : batch.weights[i]) + 0.0F; // -0 equals 0
  return {std::min(source, target), std::max(source, target), weight, source < target ? 1 : 0};
}

/// Throws a UserError that names the first edge whose two listings do not match. Collective.
[[noreturn]] void fail_edge(runtime::Communicator const& comm, std::filesystem::path const& path,
                            MetisHead const& head, MetisLines lines) {
  auto const stream =
      read_metis_edges(path, {comm.rank(), comm.size()}, head, lines, records_per_round(comm));
  std::vector<Listed> all;
  exchange<Listed>(
      comm,
      [&](Outbox<Listed>& outbox) {
        EdgeBatch batch;
        if (!stream->next(batch)) return false;
        for (std::size_t i = 0; i < batch.edges.size(); ++i) {
          auto const record = listed(batch, i);
          outbox.push(static_cast<int>(record.low % comm.size()), record);
        }
        return true;
      },
      [&](std::span<Listed const> arrived) { all.insert(all.end(), arrived.begin(), arrived.end()); });
  std::ranges::sort(all, {}, [](Listed const& record) { return record.edge(); });
  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 2> found{none, none};
  for (auto begin = all.begin(); begin != all.end() && found[0] == none;) {
    auto const end =
        std::find_if(begin, all.end(), [&](Listed const& other) { return other.edge() != begin->edge(); });
    if (2 * std::count_if(begin, end, [](Listed const& record) { return record.is_at_low == 1; }) !=
        end - begin)
      found = {begin->low, begin->high};
    begin = end;
  }
  auto const low = runtime::all_reduced(comm, found[0], runtime::Reduction::min);
  auto const high = runtime::all_reduced(comm, found[0] == low ? found[1] : none, runtime::Reduction::min);
  runtime::throw_user(
      "{}: the edge between vertices {} and {} is not listed in the lines of both, with equal weights: "
      "each edge of a METIS graph is listed twice",
      path.string(), low + 1, high + 1);
}

} // namespace

std::int64_t check_metis_graph(runtime::Communicator const& comm, std::filesystem::path const& path,
                               MetisHead const& head) {
  Share const share{comm.rank(), comm.size()};
  auto const mine = runtime::together(comm, [&] { return count_metis_lines(path, share, head); });
  std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(comm.size()));
  runtime::all_gather(runtime::host, comm, std::vector{mine}, of_ranks);
  auto const num_lines = std::reduce(of_ranks.begin(), of_ranks.end());
  if (num_lines < head.num_vertices)
    runtime::throw_user(
        "{} has {} lines of vertices, but its head says {} vertices: a vertex without neighbors has an "
        "empty line",
        path.string(), num_lines, head.num_vertices);
  auto const first = std::reduce(of_ranks.begin(), of_ranks.begin() + comm.rank());

  MetisLines const lines{first, true, head.has_weights};
  std::int64_t num_listed = 0;
  std::uint64_t difference = 0; // between hash sums of the listings at either end; 0 if all match
  runtime::together(comm, [&] {
    auto const stream = read_metis_edges(path, share, head, lines, check_batch);
    for (EdgeBatch batch; stream->next(batch); num_listed += std::ssize(batch.edges))
      for (std::size_t i = 0; i < batch.edges.size(); ++i) {
        auto const record = listed(batch, i);
        auto const word = runtime::philox2x64(
            {{static_cast<std::uint64_t>(record.low), static_cast<std::uint64_t>(record.high)}},
            std::bit_cast<std::uint32_t>(record.weight))[0];
        difference += record.is_at_low == 1 ? word : -word;
      }
  });
  std::vector<std::int64_t> words(of_ranks.size());
  runtime::all_gather(runtime::host, comm, std::vector{static_cast<std::int64_t>(difference)}, words);
  std::uint64_t total = 0;
  for (auto const word : words)
    total += static_cast<std::uint64_t>(word);
  if (total != 0) fail_edge(comm, path, head, lines);
  auto const num_edges = runtime::all_reduced(comm, num_listed);
  if (num_edges != 2 * head.num_edges)
    runtime::throw_user("{} lists {} edges, each twice, but its head says {}", path.string(), num_edges / 2,
                        head.num_edges);
  return first;
}

} // namespace orthant::graph

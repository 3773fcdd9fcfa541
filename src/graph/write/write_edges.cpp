// SPDX-License-Identifier: Apache-2.0
#include "graph/write/write_graph.hpp"

#include "graph/write/output_files.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

using runtime::Communicator;
using runtime::together;

namespace {

constexpr std::int64_t batch_size = std::int64_t{1} << 18;
constexpr std::int64_t round_size = std::int64_t{1} << 16; // edges that a rank sends per round

template<class Number>
void append(std::string& text, Number number, char end) {
  std::array<char, 24> digits;
  auto const last = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), last);
  text.push_back(end);
}

void report(EdgeProgress const& progress, EdgeStream const& stream) {
  auto const [done, total] = stream.progress();
  if (progress && total > 0) progress(static_cast<double>(done) / static_cast<double>(total));
}

std::int64_t count_local_edges(Communicator const& comm, GraphSource const& source) {
  if (auto const known = source.num_local_edges(); known >= 0) return known;
  return together(comm, [&] {
    std::int64_t count = 0;
    auto const stream = source.edges(batch_size);
    for (EdgeBatch batch; stream->next(batch);)
      count += static_cast<std::int64_t>(batch.edges.size());
    return count;
  });
}

/// The form in which edges are sent between ranks: numbers of one type.
struct SortedEdge {
  Edge edge;
  std::int64_t weight_bits = 0;
};

} // namespace

std::int64_t write_csv_edges(Communicator const& comm, GraphSource const& source,
                             std::filesystem::path const& folder, EdgeProgress const& progress) {
  ParallelText file(comm, folder / "edge.csv.gz");
  std::optional<ParallelText> weights;
  if (source.facts().is_weighted) weights.emplace(comm, folder / "edge-weight.csv.gz");
  std::int64_t count = 0;
  std::string text;
  for_each_edge_batch(comm, source, batch_size, [&](EdgeBatch const& batch, EdgeStream const& stream) {
    text.clear();
    for (auto const& [from, to] : batch.edges) {
      append(text, from, ',');
      append(text, to, '\n');
    }
    file.append(text);
    text.clear();
    for (auto const weight : batch.weights)
      append(text, weight, '\n');
    if (weights) weights->append(text);
    count += static_cast<std::int64_t>(batch.edges.size());
    report(progress, stream);
  });
  file.finish();
  if (weights) weights->finish();
  return runtime::all_reduced(comm, count);
}

std::int64_t write_npy_edges(Communicator const& comm, GraphSource const& source,
                             std::filesystem::path const& folder, EdgeProgress const& progress) {
  auto const num_local = count_local_edges(comm, source);
  auto const [begin, total] = place_after_earlier_ranks(comm, num_local);
  ParallelArray<std::int64_t> edge_index(comm, folder / "edge_index.npy", {2, total});
  std::optional<ParallelArray<float>> weights;
  if (source.facts().is_weighted) weights.emplace(comm, folder / "edge_weight.npy", std::vector{total});
  std::vector<std::int64_t> column;
  auto position = begin;
  auto const num_edges = total;
  for_each_edge_batch(comm, source, batch_size, [&](EdgeBatch const& batch, EdgeStream const& stream) {
    column.resize(batch.edges.size());
    std::ranges::transform(batch.edges, column.begin(), &Edge::source);
    edge_index.write(position, std::span(std::as_const(column)));
    std::ranges::transform(batch.edges, column.begin(), &Edge::target);
    edge_index.write(num_edges + position, std::span(std::as_const(column)));
    if (weights) weights->write(position, std::span(batch.weights));
    position += static_cast<std::int64_t>(batch.edges.size());
    report(progress, stream);
  });
  together(comm, [&, first = begin] {
    ORTHANT_REQUIRE(position == first + num_local, "edges counted ", num_local, ", read ", position - first);
  });
  edge_index.finish();
  if (weights) weights->finish();
  return total;
}

std::int64_t write_sorted_edges(Communicator const& comm, GraphSource const& source,
                                std::filesystem::path const& path, EdgeProgress const& progress) {
  auto const num_ranks = static_cast<std::size_t>(comm.size());
  auto const num_vertices = source.facts().num_vertices;
  bool const is_weighted = source.facts().is_weighted;
  auto const owner_of = [&](std::int64_t vertex) { // estimates the owner, then corrects it by at most one
    auto rank = static_cast<std::int64_t>(static_cast<double>(vertex) / static_cast<double>(num_vertices) *
                                          static_cast<double>(num_ranks));
    rank = std::clamp<std::int64_t>(rank, 0, comm.size() - 1);
    while (vertex < runtime::balanced_range(num_vertices, comm.size(), rank).begin)
      --rank;
    while (vertex >= runtime::balanced_range(num_vertices, comm.size(), rank).end)
      ++rank;
    return static_cast<std::size_t>(rank);
  };

  // In rounds: every rank sends at most round_size edges, until none has more.
  constexpr std::int64_t words = 3; // source, target, weight
  auto const stream = together(comm, [&] { return source.edges(round_size); });
  std::vector<SortedEdge> mine;
  std::vector<std::vector<std::int64_t>> outgoing(num_ranks);
  std::vector<std::int64_t> send_counts(num_ranks);
  std::vector<std::int64_t> receive_counts(num_ranks);
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> receive;
  EdgeBatch batch;
  for (bool has_more = true; has_more;) {
    has_more = together(comm, [&] { return stream->next(batch); });
    source.resolve(batch);
    send.clear();
    for (auto& list : outgoing)
      list.clear();
    for (std::size_t i = 0; i < batch.edges.size(); ++i) {
      auto const weight = is_weighted ? std::int64_t{std::bit_cast<std::int32_t>(batch.weights[i])} : 0;
      auto const& edge = batch.edges[i];
      auto& list = outgoing[owner_of(edge.source)];
      list.insert(list.end(), {edge.source, edge.target, weight});
    }
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
      send_counts[rank] = static_cast<std::int64_t>(outgoing[rank].size());
      send.insert(send.end(), outgoing[rank].begin(), outgoing[rank].end());
    }
    runtime::all_to_all(runtime::host, comm, send_counts, receive_counts);
    std::int64_t num_received = 0;
    for (auto const count : receive_counts)
      num_received += count;
    receive.resize(static_cast<std::size_t>(num_received));
    runtime::all_to_allv(runtime::host, comm, send, send_counts, receive, receive_counts);
    for (std::size_t i = 0; i < receive.size(); i += words)
      mine.push_back({{receive[i], receive[i + 1]}, receive[i + 2]});
    report(progress, *stream);
    has_more = runtime::all_reduced(comm, std::int64_t{has_more}, runtime::Reduction::max) != 0;
  }

  auto const weight_of = [](SortedEdge const& e) {
    return std::bit_cast<float>(static_cast<std::int32_t>(e.weight_bits));
  };
  std::ranges::sort(mine, [&](SortedEdge const& x, SortedEdge const& y) {
    if (x.edge != y.edge) return x.edge < y.edge;
    return weight_of(x) < weight_of(y);
  });
  ParallelText file(comm, path);
  together(comm, [&] {
    std::string text;
    for (auto const& entry : mine) {
      append(text, entry.edge.source, '\t');
      append(text, entry.edge.target, is_weighted ? '\t' : '\n');
      if (is_weighted) append(text, weight_of(entry), '\n');
      if (text.size() < (std::size_t{1} << 16)) continue;
      file.append(text);
      text.clear();
    }
    file.append(text);
  });
  file.finish();
  return runtime::all_reduced(comm, static_cast<std::int64_t>(mine.size()));
}

} // namespace orthant::graph

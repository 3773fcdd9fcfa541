// SPDX-License-Identifier: Apache-2.0
#include "graph/read/open_graph.hpp"

#include "graph/read/graph_files.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/checked.hpp"

#include <algorithm>
#include <array>

namespace orthant::graph {

using runtime::throw_user;

namespace {

/// Ids of an edge list that says nothing of the number of vertices: anything above is taken for a slip.
constexpr std::int64_t scan_batch = std::int64_t{1} << 16;

/// One above the largest id, by reading all edges once; counts them, too. Collective.
void scan_edges(runtime::Communicator const& comm, Opener& opener) {
  opener.parts.num_vertices = most_vertices;
  opener.vertices.source = "a list without gaps";
  std::array<std::int64_t, 2> found{-1, 0}; // largest id, number of edges
  runtime::together(comm, [&] {
    opener.build_edges();
    auto const stream = opener.parts.edges.open(scan_batch);
    for (EdgeBatch batch; stream->next(batch); found[1] += static_cast<std::int64_t>(batch.edges.size()))
      for (auto const& edge : batch.edges)
        found[0] = std::max({found[0], edge.source, edge.target});
  });
  auto const largest = runtime::all_reduced(comm, found[0], runtime::Reduction::max);
  auto const num_edges = runtime::all_reduced(comm, found[1]);
  opener.vertices = {largest + 1, "the largest id in " + opener.files.edges.string()};
  if (num_edges == 0) throw_user("{} has no edges", opener.files.edges.string());
  opener.parts.edges.num_local_edges = found[1];
  if (opener.parts.edges.num_edges < 0) {
    opener.parts.edges.num_edges = num_edges;
    opener.parts.edges.promised_by = opener.files.edges.string();
  }
}

/// One above the largest class, by reading all labels once. Collective.
std::int64_t scan_classes(runtime::Communicator const& comm, Opener& opener) {
  std::int64_t largest = -1;
  runtime::together(comm, [&] {
    // More classes than vertices: surely a slip.
    opener.build_labels(std::min(opener.parts.num_vertices, most_columns));
    if (opener.parts.labels.kind != LabelKind::single) return;
    auto const stream = opener.parts.labels.open(scan_batch);
    for (LabelBatch batch; stream->next(batch);)
      largest = std::max(largest, std::ranges::max(batch.classes));
  });
  return runtime::all_reduced(comm, largest, runtime::Reduction::max) + 1;
}

} // namespace

std::unique_ptr<GraphSource> open_graph(runtime::Communicator const& comm, Input const& input,
                                        InputFiles* files) {
  static_cast<void>(
      runtime::checked_range(input.random_labels, 0, most_generated_columns, "the number of random classes"));
  static_cast<void>(runtime::checked_range(input.random_features, 0, most_generated_columns,
                                           "the number of random features"));
  runtime::WorkingScope const working(
      comm.instruments().position); // one rank may have more to read than others
  Share const share{comm.rank(), comm.size()};
  auto opener = runtime::together(comm, [&] {
    Opener result{input, find_graph_files(input), share, {}, {}, {}, {}, {}, {}};
    result.read_heads();
    result.parts.name = result.files.meta.name;
    if (files != nullptr && comm.is_root()) *files = result.describe_files();
    return result;
  });
  check_stored_members(comm, opener.members);
  if (opener.vertices.count < 0) scan_edges(comm, opener);
  opener.parts.num_vertices = opener.vertices.count;
  runtime::together(comm, [&] {
    opener.build_edges();
    opener.build_features();
    opener.build_split();
  });
  auto const& declared = opener.files.meta.num_classes;
  bool const is_declared = declared.value_or(0) > 0 || input.random_labels > 0;
  auto const num_classes = is_declared ? declared.value_or(0) : scan_classes(comm, opener);
  runtime::together(comm, [&] { opener.build_labels(num_classes); });
  auto const& labels = opener.parts.labels;
  if (labels.kind == LabelKind::single && labels.num_classes < 1)
    throw_user("{}: no vertex has a label", input.path.string());
  if (declared && input.random_labels == 0 && labels.kind != LabelKind::none &&
      labels.num_classes != *declared)
    throw_user("{} says {} classes, but the labels have {}", opener.files.meta.path.string(), *declared,
               labels.num_classes);
  auto const& features = opener.parts.features;
  if (features.kind == FeatureKind::dense) // so that nobody's arithmetic on the matrix needs to be checked
    static_cast<void>(runtime::checked_product(
        8 * features.num_features, opener.parts.num_vertices,
        fmt::format("{}: bytes of {} features a vertex", input.path.string(), features.num_features)));
  return assemble_source(std::move(opener.parts));
}

} // namespace orthant::graph

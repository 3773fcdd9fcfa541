// SPDX-License-Identifier: Apache-2.0
//
// An edge list, plain or compressed, as its reader probes it and as two ranks read their shares. The first
// byte says whether comments, a column of weights or a base of 1 are expected; the text follows. The same text is also read as edges between names and
// as triples.

#include "fuzz/fuzz_target.hpp"
#include "graph/text/text_edges.hpp"
#include "graph/text/text_names.hpp"

#include <filesystem>

namespace {

/// Reads two shares of edges between names.
void check(std::filesystem::path const& path, orthant::graph::EdgeTextProbe const& probe) {
  using namespace orthant::graph;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    auto const found = read_named_edges(path, {rank, 2}, probe, EdgeTextFormat::Weights::read);
    auto const num_edges = found.edges.size();
    if (probe.weight && found.weights.size() != num_edges) __builtin_trap();
    if (probe.relation && found.edge_relations.size() != num_edges) __builtin_trap();
    for (auto const& ends : found.edges)
      for (auto const end : ends)
        if (end >= found.vertices.size()) __builtin_trap();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  using Weights = graph::EdgeTextFormat::Weights;
  if (size == 0) return 0;
  static fuzz::ScratchFolder const folder;
  auto const flags = data[0];
  auto const text = fuzz::text_of(data + 1, size - 1);
  auto const path = folder.write(text.starts_with("\x1f\x8b") ? "edge.csv.gz" : "edge.csv", text);

  for (bool const all_names : {false, true})
    fuzz::accept_or_refuse([&] {
      auto const probe = graph::probe_text_edges(path, all_names);
      if (probe.has_names) check(path, probe);
    });
  fuzz::accept_or_refuse([&] { check(path, graph::probe_triples(path)); });
  graph::EdgeTextFormat format;
  format.has_comments = (flags & 1) != 0;
  format.first_id = (flags & 2) != 0 ? 1 : 0;
  format.weights = (flags & 4) != 0   ? Weights::read
                   : (flags & 8) != 0 ? Weights::passed_over
                                      : Weights::absent;
  format.num_vertices = (flags & 16) != 0 ? std::int64_t{1} << 40 : 100;
  format.start.num_lines = (flags & 32) != 0 ? 1 : 0;
  format.id_limit = "the input has 100 vertices";
  for (std::int64_t rank = 0; rank < 2; ++rank)
    fuzz::accept_or_refuse([&] {
      auto const stream = graph::read_text_edges(path, {rank, 2}, format, 7);
      graph::EdgeBatch batch;
      while (stream->next(batch))
        for (auto const& edge : batch.edges)
          if (edge.source < 0 || edge.source >= format.num_vertices || edge.target < 0 ||
              edge.target >= format.num_vertices)
            __builtin_trap();
    });
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// A MatrixMarket file: its head, then its entries as the head describes them. The same text is also read as a graph file of METIS.

#include "fuzz/fuzz_target.hpp"
#include "graph/text/metis_graph.hpp"
#include "graph/text/text_edges.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  using Weights = graph::EdgeTextFormat::Weights;
  static fuzz::ScratchFolder const folder;
  auto const text = fuzz::text_of(data, size);
  auto const path = folder.write(text.starts_with("\x1f\x8b") ? "graph.mtx.gz" : "graph.mtx", text);
  fuzz::accept_or_refuse([&] {
    auto const head = graph::read_metis_head(path);
    std::int64_t first = 0;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      auto const stream = graph::read_metis_edges(path, {rank, 2}, head, {first, true, true}, 3);
      for (graph::EdgeBatch batch; stream->next(batch);) {
        if (batch.weights.size() != batch.edges.size()) __builtin_trap();
        for (auto const& edge : batch.edges)
          if (edge.source >= head.num_vertices || edge.target < 0 || edge.target >= head.num_vertices)
            __builtin_trap();
      }
      first += graph::count_metis_lines(path, {rank, 2}, head);
    }
  });
  return fuzz::accept_or_refuse([&] {
    static_cast<void>(graph::is_matrix_market(path));
    auto const head = graph::read_matrix_market_head(path);
    graph::EdgeTextFormat format;
    format.first_id = 1;
    format.num_vertices = head.num_vertices;
    format.has_comments = true;
    format.weights = head.has_values ? Weights::read : Weights::absent;
    format.has_whole_weights = head.has_integers;
    format.start = head.start;
    auto const stream = graph::read_text_edges(path, {0, 1}, format, 16);
    graph::EdgeBatch batch;
    while (stream->next(batch))
      for (auto const& edge : batch.edges)
        if (edge.source < 0 || edge.source >= head.num_vertices || edge.target < 0 ||
            edge.target >= head.num_vertices)
          __builtin_trap();
  });
}

// SPDX-License-Identifier: Apache-2.0
//
// A whole graph in a folder: which files make it up, meta.json, the facts they agree on, and every stream.
// The input is a sequence of files, each headed by a line "--- NAME".

#include "fuzz/fuzz_target.hpp"
#include "graph/read/open_graph.hpp"

#include <algorithm>
#include <array>

namespace {

using namespace orthant;

/// Names that a reader looks for; others would only fill the folder.
constexpr std::array<std::string_view, 29> known_names{"meta.json",
                                                       "raw/edge.csv",
                                                       "raw/edge-weight.csv",
                                                       "raw/num-node-list.csv",
                                                       "raw/num-edge-list.csv",
                                                       "raw/node-feat.csv",
                                                       "raw/node-label.csv",
                                                       "raw/data.npz",
                                                       "raw/node-label.npz",
                                                       "split/one/train.csv",
                                                       "split/one/valid.csv",
                                                       "split/one/test.csv",
                                                       "edge_index.npy",
                                                       "edge_weight.npy",
                                                       "x.npy",
                                                       "x_indptr.npy",
                                                       "x_indices.npy",
                                                       "x_data.npy",
                                                       "x_shape.npy",
                                                       "labels.npy",
                                                       "train_idx.npy",
                                                       "g_graph.npz",
                                                       "g_data.npz",
                                                       "graph.mtx",
                                                       "graph.graph",
                                                       "edges.csv",
                                                       "meta.yaml",
                                                       "nodes.csv",
                                                       "triples.tsv"};

void write_files(fuzz::ScratchFolder const& folder, std::string_view input) {
  constexpr std::string_view mark = "--- ";
  while (input.starts_with(mark)) {
    auto const line_end = input.find('\n');
    if (line_end == std::string_view::npos) return;
    auto const name = input.substr(mark.size(), line_end - mark.size());
    auto const next = input.find("\n--- ", line_end);
    auto const end = next == std::string_view::npos ? input.size() : next;
    auto const content = input.substr(line_end + 1, std::max(end, line_end + 1) - line_end - 1);
    if (std::ranges::find(known_names, name) != known_names.end()) folder.write(name, content);
    input.remove_prefix(std::min(input.size(), end + 1));
  }
}

template<class Batch, class Stream>
void drain(Stream const& stream) {
  Batch batch;
  while (stream->next(batch)) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static fuzz::ScratchFolder const folder;
  folder.clear();
  write_files(folder, fuzz::text_of(data, size));
  return fuzz::accept_or_refuse([&] {
    graph::Input input;
    input.path = folder.path();
    auto const source = graph::open_graph(fuzz::single_rank(), input);
    auto const& facts = source->facts();
    // Streams of rows cost what the facts claim; what claims more than the input could hold was refused, or
    // has no file.
    constexpr std::int64_t batch = 64;
    drain<graph::EdgeBatch>(source->edges(batch));
    if (facts.num_vertices > 100'000) return;
    if (facts.feature_kind != graph::FeatureKind::none) drain<graph::FeatureBatch>(source->features(batch));
    if (facts.label_kind != graph::LabelKind::none) drain<graph::LabelBatch>(source->labels(batch));
    for (std::int64_t number = 0; number < facts.num_splits; ++number)
      static_cast<void>(source->split(number));
  });
}

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Streams of rows and edges that come from a formula instead of a file.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace orthant::graph {

/// Rows of a table that are computed: `fill(batch)` is given the rows.
template<class Batch>
class ComputedRows final : public BatchStream<Batch> {
 public:
  ComputedRows(Range rows, std::int64_t batch_rows, std::function<void(Batch&)> fill)
      : rows_(rows),
        batch_rows_(batch_rows),
        position_(rows.begin),
        fill_(std::move(fill)) {}

  bool next(Batch& batch) override {
    batch.rows = {position_, std::min(position_ + batch_rows_, rows_.end)};
    position_ = batch.rows.end;
    fill_(batch);
    return batch.rows.size() > 0;
  }
  [[nodiscard]] Progress progress() const override { return {position_ - rows_.begin, rows_.size()}; }

 private:
  Range rows_;
  std::int64_t batch_rows_;
  std::int64_t position_;
  std::function<void(Batch&)> fill_;
};

/// Edges that are computed: `append(range, edges)` appends those with indices in `range`, `step` indices at a
/// time.
class ComputedEdges final : public EdgeStream {
 public:
  ComputedEdges(Range indices, std::int64_t step, std::function<void(Range, std::vector<Edge>&)> append)
      : indices_(indices),
        step_(step),
        position_(indices.begin),
        append_(std::move(append)) {}

  bool next(EdgeBatch& batch) override {
    batch.edges.clear();
    batch.weights.clear();
    while (batch.edges.empty() && position_ < indices_.end) {
      Range const part{position_, std::min(position_ + step_, indices_.end)};
      append_(part, batch.edges);
      position_ = part.end;
    }
    return !batch.edges.empty();
  }
  [[nodiscard]] Progress progress() const override { return {position_ - indices_.begin, indices_.size()}; }

 private:
  Range indices_;
  std::int64_t step_;
  std::int64_t position_;
  std::function<void(Range, std::vector<Edge>&)> append_;
};

// Features, labels and a split for graphs that have none. Every number is drawn by (seed, purpose, original
// vertex id), so it is the same for any number of ranks, any grid and any permutation.

/// [num_vertices x num_features], standard normal.
[[nodiscard]] FeaturePart random_features(std::int64_t num_vertices, std::int64_t num_features,
                                          std::uint64_t seed, Share share);

/// One class a vertex, uniform.
[[nodiscard]] LabelPart random_labels(std::int64_t num_vertices, std::int64_t num_classes, std::uint64_t seed,
                                      Share share);

/// The vertices in a random order: the first fraction trains, the next validates, the next tests, the rest is
/// in none. List lengths are the fractions of num_vertices, rounded. Throws UserError where a fraction is
/// negative, or all of them are above 1 together.
[[nodiscard]] SplitPart random_split(std::int64_t num_vertices, std::array<double, 3> fractions,
                                     std::uint64_t seed, Share share);

} // namespace orthant::graph

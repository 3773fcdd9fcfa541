#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Streams of rows and edges that are computed and not read from a file.

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace orthant::graph {

/// Computed rows of a table. `fill(batch)` computes the rows `batch.rows`.
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

/// Computed edges. `append(range, edges)` appends the edges with indices in `range`, for at most `step` indices per call.
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

// Features, labels and a split for graphs that have none. Every number depends only on (seed, purpose, original vertex id), so that it is
// equal for any number of ranks, any grid and any permutation.

/// Standard normal features, [num_vertices x num_features].
[[nodiscard]] FeaturePart random_features(std::int64_t num_vertices, std::int64_t num_features,
                                          std::uint64_t seed, Share share);

/// One uniform random class per vertex.
[[nodiscard]] LabelPart random_labels(std::int64_t num_vertices, std::int64_t num_classes, std::uint64_t seed,
                                      Share share);

/// A split of the vertices in random order: the first fraction is for training, the next for validation, the next for testing, and the rest
/// is unused. The lengths are fractions of num_vertices, rounded. Throws UserError if a fraction is negative or their sum exceeds 1.
[[nodiscard]] SplitPart random_split(std::int64_t num_vertices, std::array<double, 3> fractions,
                                     std::uint64_t seed, Share share);

} // namespace orthant::graph

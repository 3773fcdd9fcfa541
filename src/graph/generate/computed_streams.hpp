#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Streams of rows and edges that come from a formula instead of a file.

#include "graph/graph_source.hpp"

#include <algorithm>
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

} // namespace orthant::graph

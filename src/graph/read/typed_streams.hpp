#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Streams of a graph of several types (typed_graph.hpp), which has files for each type.

#include "graph/arrays/npy_streams.hpp"
#include "graph/graph_source.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace orthant::graph {

template<class Batch>
using Opened = std::function<std::unique_ptr<BatchStream<Batch>>()>;

/// Concatenates several streams. `convert(batch, i)` changes the batches of stream i.
template<class Batch>
class Joined final : public BatchStream<Batch> {
 public:
  Joined(std::vector<Opened<Batch>> streams, std::function<void(Batch&, std::size_t)> convert)
      : streams_(std::move(streams)),
        convert_(std::move(convert)) {}

  bool next(Batch& batch) override {
    for (; place_ < streams_.size(); ++place_) {
      if (!stream_) stream_ = streams_[place_]();
      if (stream_->next(batch)) {
        convert_(batch, place_);
        return true;
      }
      stream_.reset();
    }
    batch = {};
    return false;
  }
  [[nodiscard]] Progress progress() const override {
    return {static_cast<std::int64_t>(place_), static_cast<std::int64_t>(streams_.size())};
  }

 private:
  std::vector<Opened<Batch>> streams_;
  std::function<void(Batch&, std::size_t)> convert_;
  std::size_t place_ = 0;
  std::unique_ptr<BatchStream<Batch>> stream_;
};

/// Extends rows of `own` numbers to `width` numbers, with zeros.
inline void widen(std::vector<float>& numbers, std::int64_t num_rows, std::size_t own, std::size_t width) {
  auto const rows = static_cast<std::size_t>(num_rows);
  numbers.resize(rows * width);
  if (own == width) return;
  for (auto row = rows; row-- > 0;) // from the last row, because rows move towards the end
    for (auto column = width; column-- > 0;)
      numbers[row * width + column] = column < own ? numbers[row * own + column] : 0;
}

/// Edges of an array [E, 2], one row each.
class EdgeRows final : public EdgeStream {
 public:
  /// Ids must be below `num_vertices`.
  EdgeRows(OpenArray const& array, Range edges, std::int64_t num_vertices, std::int64_t batch_size)
      : array_(array()),
        edges_(edges),
        next_(edges.begin),
        num_vertices_(num_vertices),
        batch_size_(batch_size) {}

  bool next(EdgeBatch& batch) override {
    auto const count = std::min(batch_size_, edges_.end - next_);
    ends_.resize(2 * static_cast<std::size_t>(count));
    array_.read(2 * next_, std::span(ends_));
    batch = {};
    for (std::size_t i = 0; i < ends_.size(); i += 2) {
      if (auto const [low, high] = std::minmax(ends_[i], ends_[i + 1]); low < 0 || high >= num_vertices_)
        runtime::throw_user("{}: row {} is an edge from {} to {}; ids are from 0 to {}", array_.name(),
                            next_ + static_cast<std::int64_t>(i / 2), ends_[i], ends_[i + 1],
                            num_vertices_ - 1);
      batch.edges.push_back({ends_[i], ends_[i + 1]});
    }
    next_ += count;
    return count > 0;
  }
  [[nodiscard]] Progress progress() const override { return {next_ - edges_.begin, edges_.size()}; }

 private:
  NpyArray array_;
  Range edges_;
  std::int64_t next_, num_vertices_, batch_size_;
  std::vector<std::int64_t> ends_;
};

} // namespace orthant::graph

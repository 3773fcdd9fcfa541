#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A GraphSource put together from parts that know nothing of each other: edges from one file, features from
// another, labels drawn at random.

#include "graph/graph_source.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace orthant::graph {

struct EdgePart {
  std::int64_t num_edges = -1;       // as in GraphFacts
  std::int64_t num_local_edges = -1; // as in GraphSource
  bool is_weighted = false;
  std::string promised_by; // the file that says num_edges, for the message where it was wrong
  std::function<std::unique_ptr<EdgeStream>(std::int64_t batch_size)> open;
  std::function<void(EdgeBatch&)> resolve; // as in GraphSource; empty: not needed
};

struct FeaturePart {
  FeatureKind kind = FeatureKind::none;
  std::int64_t num_features = 0;
  std::function<std::unique_ptr<FeatureStream>(std::int64_t batch_rows)> open;
};

struct LabelPart {
  LabelKind kind = LabelKind::none;
  std::int64_t num_classes = 0;
  std::function<std::unique_ptr<LabelStream>(std::int64_t batch_rows)> open;
};

struct SplitPart {
  std::string name;
  std::function<SplitShare()> read; // empty: no split
};

struct SourceParts {
  std::string name;
  std::string format;
  std::int64_t num_vertices = 0;
  bool is_directed = false;
  EdgePart edges;
  FeaturePart features;
  LabelPart labels;
  SplitPart split;
};

[[nodiscard]] std::unique_ptr<GraphSource> assemble_source(SourceParts parts);

/// A share with nothing in it.
template<class Batch>
class EmptyStream final : public BatchStream<Batch> {
 public:
  bool next(Batch& batch) override {
    batch = {};
    return false;
  }
  [[nodiscard]] Progress progress() const override { return {}; }
};

} // namespace orthant::graph

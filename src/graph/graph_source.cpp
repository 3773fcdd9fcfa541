// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_source.hpp"

#include "runtime/error.hpp"

namespace orthant::graph {

namespace {

class AssembledSource final : public GraphSource {
 public:
  explicit AssembledSource(SourceParts parts) : parts_(std::move(parts)) {
    facts_.num_vertices = parts_.num_vertices;
    facts_.num_edges = parts_.edges.num_edges;
    facts_.is_directed = parts_.is_directed;
    facts_.is_weighted = parts_.edges.is_weighted;
    facts_.num_edge_features = parts_.edges.num_features;
    facts_.feature_kind = parts_.features.kind;
    facts_.num_features = parts_.features.num_features;
    facts_.features_have_remainders = parts_.features.have_remainders;
    facts_.label_kind = parts_.labels.kind;
    facts_.num_classes = parts_.labels.num_classes;
    facts_.class_names = parts_.labels.names;
    facts_.has_split = static_cast<bool>(parts_.split.read);
    facts_.num_splits = facts_.has_split ? parts_.split.count : 0;
    facts_.split_name = parts_.split.name;
    facts_.name = parts_.name;
    facts_.format = parts_.format;
    facts_.relations = parts_.names.relations;
    facts_.has_names = parts_.names.has_names;
    facts_.vertex_types = parts_.names.types;
    facts_.relation_ends = parts_.names.ends;
  }

  GraphFacts const& facts() const override { return facts_; }

  std::unique_ptr<EdgeStream> edges(std::int64_t batch_size) const override {
    ORTHANT_REQUIRE(batch_size > 0);
    return parts_.edges.open(batch_size);
  }
  bool needs_resolving() const override { return static_cast<bool>(parts_.edges.resolve); }
  void resolve(EdgeBatch& batch) const override {
    if (parts_.edges.resolve) parts_.edges.resolve(batch);
  }
  std::int64_t num_local_edges() const override { return parts_.edges.num_local_edges; }

  void check_num_edges(std::int64_t num_read) const override {
    if (num_read == 0) runtime::throw_user("{} has no edges", parts_.name);
    if (facts_.num_edges >= 0 && num_read != facts_.num_edges)
      runtime::throw_user("{} holds {} edges, but {} says {}", parts_.name, num_read,
                          parts_.edges.promised_by, facts_.num_edges);
  }

  std::unique_ptr<FeatureStream> features(std::int64_t batch_rows) const override {
    ORTHANT_REQUIRE(batch_rows > 0 && parts_.features.open != nullptr);
    return parts_.features.open(batch_rows);
  }
  std::unique_ptr<LabelStream> labels(std::int64_t batch_rows) const override {
    ORTHANT_REQUIRE(batch_rows > 0 && parts_.labels.open != nullptr);
    return parts_.labels.open(batch_rows);
  }
  SplitShare split(std::int64_t number) const override {
    ORTHANT_REQUIRE(0 <= number && number < facts_.num_splits);
    return parts_.split.read(number);
  }
  SourceMemory memory() const override { return parts_.memory; }
  NameList const* vertex_names() const override { return parts_.names.vertices.get(); }

 private:
  SourceParts parts_;
  GraphFacts facts_;
};

} // namespace

std::unique_ptr<GraphSource> assemble_source(SourceParts parts) {
  return std::make_unique<AssembledSource>(std::move(parts));
}

} // namespace orthant::graph

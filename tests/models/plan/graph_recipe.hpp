#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Stores of small graphs of any kind: features and labels of either kind, weighted or directed edges.

#include "graph/generate/computed_streams.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/partition.hpp"
#include "support/reference.hpp"

#include <memory>
#include <optional>
#include <string>

namespace orthant::testing {

struct GraphRecipe {
  std::int64_t num_vertices = 3000;
  std::int64_t num_edges = 30000;
  std::int64_t num_features = 50;
  std::int64_t features_per_vertex = 0; // of sparse features; 0: dense ones
  bool is_directed = false;
  bool is_weighted = false;
  std::int64_t num_relations = 0; // of directed graphs without weights; 0: none
  /// Then the edges are distinct, begin with self loops, and leave the last vertex alone; 0: none.
  std::int64_t num_edge_features = 0;
  bool has_types = false;         // of vertices: three, one of them without features
  bool has_feature_values = true; // of sparse features; else all are 1
  graph::LabelKind labels = graph::LabelKind::single;
  graph::PermutationKind permutation = graph::PermutationKind::twofold;
  graph::Normalization normalization = graph::Normalization::symmetric;
  std::int64_t train_every = 3; // vertices 0, 3, 6, .. train
  std::optional<graph::EdgeSplit> edge_split{};
};

inline constexpr std::int64_t num_classes = 6;

inline void fill_features(GraphRecipe const& recipe, graph::FeatureBatch& batch) {
  batch.dense.clear();
  batch.offsets.assign(1, 0);
  batch.columns.clear();
  batch.values.clear();
  auto const stride = recipe.features_per_vertex == 0 ? 1 : recipe.num_features / recipe.features_per_vertex;
  for (auto row = batch.rows.begin; row < batch.rows.end; ++row) {
    if (recipe.features_per_vertex == 0) {
      for (std::int64_t j = 0; j < recipe.num_features; ++j)
        batch.dense.push_back(static_cast<float>(small_real(3, row, j)));
      continue;
    }
    for (std::int64_t k = 0; k < recipe.features_per_vertex; ++k) {
      auto const place = static_cast<std::int64_t>(mixed(4, row, k) % static_cast<std::uint64_t>(stride));
      batch.columns.push_back(static_cast<std::int32_t>(k * stride + place));
      batch.values.push_back(recipe.has_feature_values ? static_cast<float>(small_real(5, row, k)) : 1.0F);
    }
    batch.offsets.push_back(static_cast<std::int64_t>(batch.columns.size()));
  }
  if (recipe.features_per_vertex == 0) batch.offsets.clear();
}

inline void fill_labels(GraphRecipe const& recipe, graph::LabelBatch& batch) {
  batch.classes.clear();
  batch.indicator.clear();
  batch.targets.clear();
  for (auto row = batch.rows.begin; row < batch.rows.end; ++row) {
    if (recipe.labels == graph::LabelKind::single) batch.classes.push_back(row % num_classes);
    for (std::int64_t c = 0; recipe.labels == graph::LabelKind::multi && c < num_classes; ++c)
      batch.indicator.push_back(static_cast<std::int8_t>(mixed(6, row, c) % 2));
    for (std::int64_t c = 0; recipe.labels == graph::LabelKind::real && c < num_classes; ++c) // some are none
      batch.targets.push_back(mixed(7, row, c) % 5 == 0 ? std::nan("")
                                                        : static_cast<double>(mixed(8, row, c) % 9) / 4);
  }
}

/// The edges of another stream, each with a weight of 1/4 to 2 if there are weights, and with a relation if there are any.
class EdgesWithWeights final : public graph::EdgeStream {
 public:
  EdgesWithWeights(std::unique_ptr<graph::EdgeStream> edges, GraphRecipe const& recipe)
      : edges_(std::move(edges)),
        has_weights_(recipe.is_weighted),
        num_features_(recipe.num_edge_features),
        num_relations_(static_cast<std::uint64_t>(recipe.num_relations)) {}

  bool next(graph::EdgeBatch& batch) override {
    auto const has_edges = edges_->next(batch);
    batch.weights.clear();
    if (has_weights_)
      for (auto const& edge : batch.edges)
        batch.weights.push_back(0.25F * static_cast<float>(1 + mixed(7, edge.source, edge.target) % 8));
    batch.features.clear();
    for (auto const& edge : batch.edges)
      for (std::int64_t f = 0; f < num_features_; ++f)
        batch.features.push_back(static_cast<float>(small_real(9 + f, edge.source, edge.target)));
    batch.relations.clear();
    if (num_relations_ > 0)
      for (auto const& edge : batch.edges)
        batch.relations.push_back(
            static_cast<std::uint16_t>(mixed(8, edge.source, edge.target) % num_relations_));
    return has_edges;
  }
  [[nodiscard]] graph::Progress progress() const override { return edges_->progress(); }

 private:
  std::unique_ptr<graph::EdgeStream> edges_;
  bool has_weights_;
  std::int64_t num_features_;
  std::uint64_t num_relations_;
};

inline std::unique_ptr<graph::GraphSource> open_recipe(runtime::Communicator const& comm,
                                                       GraphRecipe const& recipe) {
  auto const rows = runtime::balanced_range(recipe.num_vertices, comm.size(), comm.rank());
  auto const edges = runtime::balanced_range(recipe.num_edges, comm.size(), comm.rank());
  graph::SourceParts parts;
  parts.name = parts.format = "memory";
  parts.num_vertices = recipe.num_vertices;
  parts.is_directed = recipe.is_directed;
  for (std::int64_t r = 0; r < recipe.num_relations; ++r)
    parts.names.relations.push_back("r" + std::to_string(r));
  if (recipe.has_types) {
    auto const some = recipe.num_vertices / 5;
    parts.names.types = {{"a", some, recipe.num_features}, {"b", 3 * some, 0}};
    parts.names.types.push_back({"c", recipe.num_vertices - 4 * some, recipe.num_features - 1});
    parts.names.ends.resize(parts.names.relations.size());
  }
  parts.edges.num_edges = recipe.num_edges;
  parts.edges.num_local_edges = edges.size();
  parts.edges.is_weighted = recipe.is_weighted;
  parts.edges.num_features = recipe.num_edge_features;
  parts.edges.promised_by = "its definition";
  parts.edges.open = [=](std::int64_t batch_size) {
    auto const n = static_cast<std::uint64_t>(recipe.num_vertices);
    auto stream = std::make_unique<graph::ComputedEdges>(
        edges, batch_size, [=](graph::Range range, std::vector<graph::Edge>& list) {
          auto const ring = recipe.num_vertices - 1;
          for (auto e = range.begin; e < range.end; ++e)
            if (recipe.num_edge_features > 0) // steps of 0, 1, 2, .. around a ring
              list.push_back({e % ring, (e + e / ring) % ring});
            else
              list.push_back(
                  {static_cast<std::int64_t>(mixed(1, e) % n), static_cast<std::int64_t>(mixed(2, e) % n)});
        });
    return std::make_unique<EdgesWithWeights>(std::move(stream), recipe);
  };
  parts.features = {recipe.features_per_vertex == 0 ? graph::FeatureKind::dense : graph::FeatureKind::sparse,
                    recipe.num_features, [=](std::int64_t batch_rows) {
                      return std::make_unique<graph::ComputedRows<graph::FeatureBatch>>(
                          rows, batch_rows,
                          [=](graph::FeatureBatch& batch) { fill_features(recipe, batch); });
                    }};
  parts.labels = {recipe.labels, num_classes, [=](std::int64_t batch_rows) {
                    return std::make_unique<graph::ComputedRows<graph::LabelBatch>>(
                        rows, batch_rows, [=](graph::LabelBatch& batch) { fill_labels(recipe, batch); });
                  }};
  parts.split = {"thirds", [=](std::int64_t) {
                   graph::SplitShare split;
                   for (auto row = rows.begin; row < rows.end; ++row)
                     (row % recipe.train_every == 0 ? split.train
                      : row % 3 == 1                ? split.valid
                                                    : split.test)
                         .push_back(row);
                   return split;
                 }};
  return graph::assemble_source(std::move(parts));
}

inline graph::GraphStore store_of(runtime::Communicator const& comm, GraphRecipe const& recipe,
                                  std::int64_t num_clusters = 0) {
  graph::PartitionOptions how;
  how.permutation = recipe.permutation;
  how.normalization = recipe.normalization;
  how.seed = 3;
  how.num_clusters = num_clusters;
  how.edge_split = recipe.edge_split;
  return graph::partition_in_memory(
      comm, [&](runtime::Communicator const& self) { return open_recipe(self, recipe); }, how);
}

} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// Memory of the schedule rows: the listed arrays of a rank beside a short formula, term by term. That the list is
// what is allocated: training_arrays_test.cpp. With u = N w / P numbers, w columns aggregated at most:
//
//   A^        4 nnz / (Ga Gc) + 8 N / Gc; a transpose beside it as much again, with 8 N / Ga
//   kept      4 N / P (sum of D_l of layers that aggregate first, of outputs that share no memory with the next one, and
//             D_L), and a bit per number of all hidden outputs
//   passing   4 u (Gc operand + Ga partial result + 1 exchange if columns are split)
//
// and 4 N / P D_0 of features in the first step, and 41 bytes per own vertex of ids, targets and the loss. Gradients lie
// where outputs and aggregates lay.
#include "models/gnn/network/grid_choice.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

namespace orthant::testing {
namespace {

struct Graph {
  char const* name;
  std::int64_t num_vertices, num_nonzeros;
  std::vector<std::int64_t> widths;
  bool is_symmetric;
};
Graph const products{"products", 2'449'029, 126'167'053, {100, 128, 128, 47}, true};
Graph const papers{"papers100M", 111'059'956, 1'726'745'828, {128, 128, 128, 172}, false};

graph::StoreFacts facts_of(Graph const& graph) {
  graph::StoreFacts facts;
  facts.num_vertices = graph.num_vertices;
  facts.num_entries = graph.num_nonzeros - graph.num_vertices;
  facts.is_symmetric = graph.is_symmetric;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.num_features = graph.widths.front();
  facts.label_kind = graph::LabelKind::single;
  facts.num_classes = graph.widths.back();
  return facts;
}

models::NetworkSettings settings_of(Graph const& graph, models::Schedule schedule) {
  models::NetworkSettings settings;
  settings.hidden_widths.assign(graph.widths.begin() + 1, graph.widths.end() - 1);
  settings.dropout = 0;
  settings.schedule = schedule;
  return settings;
}

/// In bytes.
struct Terms {
  double adjacency = 0;
  double kept = 0;
  double passing = 0;

  [[nodiscard]] double sum() const { return adjacency + kept + passing; }
};

Terms formula(Graph const& graph, models::NetworkPlan const& plan, pmm::GridShape const& shape) {
  auto const n = static_cast<double>(graph.num_vertices);
  auto const own = n / shape.num_ranks();
  auto const a = static_cast<double>(shape.x), c = static_cast<double>(shape.z);
  Terms terms;
  auto const columns = 4 * static_cast<double>(graph.num_nonzeros) / (a * c);
  terms.adjacency = columns + 8 * n / c + (graph.is_symmetric ? 0 : columns + 8 * n / a);
  std::int64_t widest = 0;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    auto const& layer = plan.layers[l];
    auto const width = layer.output.extents.columns;
    if (layer.aggregates_first) terms.kept += 4 * own * static_cast<double>(layer.input.extents.columns);
    if (models::layer_of_output(plan, l) == l) terms.kept += 4 * own * static_cast<double>(width);
    if (!layer.makes_logits) terms.kept += own * static_cast<double>(width) / 8;
    widest = std::max(widest, layer.aggregated_width());
  }
  terms.passing = 4 * own * static_cast<double>(widest) * (c + a + (shape.y > 1 ? 1 : 0));
  // On a host, the weights of the non-zeros of each block, where they take at most twice an operand of all vertices.
  auto const width = std::ceil(static_cast<double>(widest) / static_cast<double>(shape.y));
  if (static_cast<double>(graph.num_nonzeros) <= 2 * n * width)
    terms.adjacency += (graph.is_symmetric ? 1 : 2) * columns;
  return terms;
}

/// Columns of features that have memory of their own until the first step is over: none if a later layer keeps an H that is as wide, in
/// whose place they lie.
double columns_of_features(Graph const& graph, models::NetworkPlan const& plan) {
  auto const width = graph.widths.front();
  auto const has_room = std::any_of(plan.layers.begin() + 1, plan.layers.end(), [&](auto const& layer) {
    return layer.aggregates_first && layer.input.extents.columns >= width;
  });
  return plan.layers.front().aggregates_first && has_room ? 0 : static_cast<double>(width);
}

struct Listed {
  Terms terms;
  double features = 0; // let go after the first step
  double rest = 0;
};

Listed listed(Graph const& graph, models::NetworkPlan const& plan, pmm::GridShape const& shape) {
  auto const step =
      models::list_of_rank(shape, {}, facts_of(graph), plan, settings_of(graph, models::Schedule::rows));
  std::map<std::string, double> sums;
  for (auto const& [label, bytes] : models::arrays_by_label(step))
    sums[label] = static_cast<double>(bytes);
  auto const take = [&](std::initializer_list<char const*> labels) {
    return std::accumulate(labels.begin(), labels.end(), 0.0, [&](double sum, char const* label) {
      auto const found = sums.find(label);
      if (found == sums.end()) return sum;
      sum += found->second;
      sums.erase(found);
      return sum;
    });
  };
  Listed result;
  result.terms.adjacency =
      take({"orthant::models::csr/columns", "orthant::models::csr/row_offsets", "orthant::pmm::columns",
            "orthant::pmm::row_offsets", "orthant::pmm::weights", "orthant::models::row_scale",
            "orthant::models::column_scale"});
  result.terms.kept =
      take({"orthant::models::output", "orthant::models::aggregated", "orthant::models::passed"});
  result.terms.passing =
      take({"orthant::pmm::workspace", "orthant::models::gradient", "orthant::models::middle"});
  result.features = take({"orthant::models::features"});
  for (auto const& [label, bytes] : sums)
    result.rest += bytes;
  return result;
}

/// What the formula leaves out, or counts and no array holds.
Terms differences(Graph const& graph, models::NetworkPlan const& plan, pmm::GridShape const& shape) {
  auto const n = static_cast<double>(graph.num_vertices);
  auto const own = n / shape.num_ranks();
  auto const a = static_cast<double>(shape.x), c = static_cast<double>(shape.z);
  Terms terms;
  // The scales of rows and columns, which fold the normalisation into the product.
  terms.adjacency = 4 * n / a + 4 * n / c;
  std::int64_t widest = 0, transformed = 0;
  for (auto const& layer : plan.layers) {
    widest = std::max(widest, layer.aggregated_width());
    if (!layer.aggregates_first) transformed = std::max(transformed, layer.output.extents.columns);
  }
  auto const u = 4 * own * static_cast<double>(widest);
  // Both directions use the same two buffers: with a transpose each is as long as the longer of both.
  if (!graph.is_symmetric) terms.passing += u * (2 * std::max(a, c) - a - c);
  // Whole rows need no operand, or no partial result, of their own. An operand that is the matrix itself lies apart from
  // the result.
  if (shape.y == 1 && shape.z == 1 && graph.is_symmetric)
    terms.passing += 4 * own * static_cast<double>(transformed) - u;
  if (shape.y == 1 && shape.x == 1 && graph.is_symmetric) terms.passing -= u;
  if (shape.y == 1 && shape.x == 1 && shape.z == 1 && !graph.is_symmetric) terms.passing -= 2 * u;
  return terms;
}

void expect_terms(Graph const& graph, pmm::GridShape const& shape) {
  SCOPED_TRACE(::testing::Message() << graph.name << " on " << shape.to_string());
  auto const plan = models::plan_network(facts_of(graph), settings_of(graph, models::Schedule::rows));
  auto const expected = formula(graph, plan, shape);
  auto const extra = differences(graph, plan, shape);
  auto const found = listed(graph, plan, shape);
  // Rows that do not divide: a cell of 38,000 rows or more has one too many, columns and rows of A^ a few.
  auto const close = 1e-4;
  // Products with weights gather the widest of them in the same workspace.
  auto const weight = 4.0 * 128 * 172;
  EXPECT_NEAR(found.terms.adjacency, expected.adjacency + extra.adjacency, close * found.terms.adjacency);
  EXPECT_NEAR(found.terms.kept, expected.kept + extra.kept, close * found.terms.kept);
  EXPECT_NEAR(found.terms.passing, expected.passing + extra.passing, close * found.terms.passing + weight);
  auto const own = static_cast<double>(graph.num_vertices) / shape.num_ranks();
  EXPECT_NEAR(found.features, 4 * own * columns_of_features(graph, plan), close * found.features);
  // Ids, targets and the loss: 41 bytes per own vertex; parameters and moments.
  EXPECT_NEAR(found.rest, 41 * own, 2e6);
}

TEST(MemoryOfRows, IsTheFormulaTermByTerm) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "a device keeps all outputs, and no weights of non-zeros";
  for (auto const& graph : {products, papers})
    for (auto const& shape : {pmm::GridShape{1, 1, 1, 1},
                              {1, 4, 1, 1},
                              {1, 1, 4, 1},
                              {1, 1, 1, 4},
                              {1, 2, 2, 2},
                              {1, 2, 4, 2},
                              {1, 4, 2, 4},
                              {1, 2, 8, 1},
                              {1, 4, 1, 4},
                              {1, 4, 4, 4},
                              {1, 2, 8, 4}})
      expect_terms(graph, shape);
}

TEST(MemoryOfRows, IsWithinTenPercentOfTheFormula) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "as above";
  auto const expect_close = [](Graph const& graph, pmm::GridShape const& shape) {
    auto const plan = models::plan_network(facts_of(graph), settings_of(graph, models::Schedule::rows));
    auto const own = static_cast<double>(graph.num_vertices) / shape.num_ranks();
    auto const others = own * (4 * columns_of_features(graph, plan) + 41);
    auto const expected = formula(graph, plan, shape).sum() + others;
    auto const found =
        models::cost_of_grid(shape, facts_of(graph), settings_of(graph, models::Schedule::rows)).array_bytes;
    if (shape.y == 1 && (shape.x == 1 || shape.z == 1)) // the operand, or the result, is the matrix itself
      EXPECT_LE(static_cast<double>(found), 1.1 * expected) << graph.name << " on " << shape.to_string();
    else
      EXPECT_NEAR(static_cast<double>(found), expected, 0.1 * expected)
          << graph.name << " on " << shape.to_string();
  };
  for (auto const num_ranks : {8, 16, 64})
    for (auto const& shape : pmm::all_shapes(num_ranks))
      expect_close(products, shape);
  // With a transpose if the axes of A^ are equally long.
  for (auto const& shape :
       {pmm::GridShape{1, 2, 2, 2}, {1, 2, 4, 2}, {1, 4, 1, 4}, {1, 4, 4, 4}, {1, 8, 4, 8}})
    expect_close(papers, shape);
}

TEST(MemoryOfRows, HoldsOneBlockOfTheAdjacency) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "as above";
  pmm::GridShape const shape{1, 2, 4, 2};
  auto const of = [&](models::Schedule schedule) {
    return models::cost_of_grid(shape, facts_of(products), settings_of(products, schedule)).adjacency_bytes;
  };
  auto const rows = of(models::Schedule::rows);
  auto const pmm3d = of(models::Schedule::pmm3d);
  EXPECT_NEAR(static_cast<double>(rows) / 1e6, 271.93, 0.01);
  EXPECT_NEAR(static_cast<double>(pmm3d) / 1e6, 556.1, 0.5);
}

} // namespace
} // namespace orthant::testing

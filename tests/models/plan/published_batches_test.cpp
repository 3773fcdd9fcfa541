// SPDX-License-Identifier: Apache-2.0
//
// Mini-batch epochs that ScaleGNN published (arXiv 2604.02651): the number of data groups grows, the grid of a group stays. Batch
// size, layers and widths are not published. So the network is assumed, the size of a batch is fitted to the first point of each row,
// and the errors of the others are printed. There is no bound on them: they tell how far such a guess carries.
#include "built_in_machine.hpp"
#include "graph_facts.hpp"
#include "models/gnn/batches/batch_plan.hpp"

#include <array>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace orthant::testing {
namespace {

/// Projection, three layers of 128 columns with norm, residual and dropout, head; all-reduces in bf16.
models::NetworkSettings scalegnn() {
  models::NetworkSettings settings;
  settings.projected_width = 128;
  settings.has_head = true;
  settings.has_residuals = true;
  settings.norm = models::Norm::rms;
  settings.set_layers(3, 128);
  settings.order = models::ProductOrder::aggregate_first;
  settings.wire = runtime::Wire::bf16;
  return settings;
}

struct Published {
  int num_ranks = 0;
  double milliseconds = 0;
};
struct Row {
  std::string machine;
  std::string graph;
  graph::StoreFacts facts;
  pmm::GridShape group; // as cubic as possible, of the smallest number of ranks
  std::vector<Published> points;
};

std::vector<Row> rows() {
  auto const products = facts_of(14249639, 245036907, 128, 32);
  auto const papers = facts_of(111059956, 1726745828, 128, 172);
  return {{"perlmutter",
           "products-14M",
           products,
           {1, 4, 4, 2},
           {{32, 1200}, {64, 606}, {128, 307}, {256, 168}, {512, 77}, {1024, 54}}},
          {"perlmutter", "papers100M", papers, {1, 4, 4, 4}, {{64, 4095}, {2048, 189}}},
          {"frontier", "products-14M", products, {1, 4, 4, 2}, {{32, 8809}, {1024, 394}}},
          {"tuolumne", "products-14M", products, {1, 4, 4, 2}, {{32, 9710}, {1024, 566}}}};
}

double milliseconds(Row const& row, std::int64_t batch, int num_ranks) {
  auto shape = row.group;
  shape.data = num_ranks / row.group.num_ranks();
  auto const seconds = models::mini_batch_seconds(row.facts, scalegnn(), {.num_vertices = batch},
                                                  built_in_machine(row.machine));
  return 1e3 * seconds(shape, models::Schedule::pmm3d).total();
}

/// The largest one that takes as long as the first point, or the one that comes nearest.
std::int64_t fitted_batch(Row const& row) {
  constexpr auto ratio = 1.02; // of neighbouring numbers of batches
  constexpr auto most_batches = 1e5;
  auto const& [num_ranks, observed] = row.points.front();
  std::int64_t best = 0;
  auto least = std::numeric_limits<double>::infinity();
  for (auto num_batches = 1.0; num_batches < most_batches; num_batches *= ratio) {
    auto const batch = static_cast<std::int64_t>(static_cast<double>(row.facts.num_vertices) / num_batches);
    auto const error = std::abs(milliseconds(row, batch, num_ranks) / observed - 1);
    if (error < least - 1e-3) {
      least = error;
      best = batch;
    }
  }
  return best;
}

TEST(PublishedBatches, EpochsOfScaleGnn) {
  for (auto const& row : rows()) {
    auto const batch = fitted_batch(row);
    fmt::print("{} on {}: {} vertices a batch ", row.graph, row.machine, batch);
    for (auto const& [num_ranks, observed] : row.points)
      fmt::print("  {}: {:+.0f} %", num_ranks, 100 * (milliseconds(row, batch, num_ranks) / observed - 1));
    fmt::print("\n");
    // What is fitted is met, and more groups take less time.
    EXPECT_NEAR(milliseconds(row, batch, row.points.front().num_ranks) / row.points.front().milliseconds, 1,
                0.05);
    EXPECT_LT(milliseconds(row, batch, row.points.back().num_ranks), row.points.front().milliseconds);
  }
}

} // namespace
} // namespace orthant::testing

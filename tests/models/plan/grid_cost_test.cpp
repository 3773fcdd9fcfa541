// SPDX-License-Identifier: Apache-2.0
//
// What `orthant plan` says of grids of which no rank exists. That lists equal ledgers: gcn_step_test.cpp.
#include "models/gnn/network/grid_choice.hpp"

#include "models/gnn/plan/network_step.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <vector>

namespace orthant::testing {
namespace {

using models::GridCost;
using models::Schedule;
using Widths = std::vector<std::int64_t>;

graph::StoreFacts facts_of(std::int64_t num_vertices, std::int64_t num_nonzeros, Widths const& widths,
                           bool is_symmetric = true) {
  graph::StoreFacts facts;
  facts.num_vertices = num_vertices;
  facts.num_entries = num_nonzeros - num_vertices;
  facts.is_symmetric = is_symmetric;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.num_features = widths.front();
  facts.label_kind = graph::LabelKind::single;
  facts.num_classes = widths.back();
  return facts;
}

models::NetworkSettings settings_of(Widths const& widths, Schedule schedule) {
  models::NetworkSettings settings;
  settings.hidden_widths.assign(widths.begin() + 1, widths.end() - 1);
  settings.dropout = 0;
  settings.schedule = schedule;
  return settings;
}

std::string grid_of(pmm::GridShape const& shape) {
  return shape.to_string().substr(2); // without the data axis
}

struct Graph {
  std::int64_t num_vertices, num_nonzeros;
  Widths widths;
  bool is_symmetric;
};
Graph const products{2'449'029, 126'167'053, {100, 128, 128, 47}, true};
Graph const isolate{8'745'542, 1'317'986'044, {128, 128, 128, 32}, true};
Graph const papers{111'059'956, 1'726'745'828, {128, 128, 128, 172}, false};

/// One line of the table of expected bytes (10^6 per epoch and rank, in the mean over the ranks), and the bytes
/// of the rank that sends most, in kilobytes, which `orthant plan` prints.
struct Line {
  Graph const& graph;
  int num_ranks;
  std::string pmm3d_grid;
  int pmm3d;
  std::string rows_grid;
  int rows, rows_bf16;
  std::int64_t pmm3d_busiest, rows_busiest, rows_bf16_busiest;
};

// The bytes of the busiest rank are larger than the mean by three causes, which the test below puts in numbers:
//   pmm3d gathers a weight twice and scatters its gradient once (layer 0: gathers once), not two transfers in
//   all as rows do, and flat shards are padded; biases, norms and the loss are summed;
//   columns that do not divide: 47 over 4 ranks are 12, 12, 12, 11; 172 over 8 are 22 or 21;
//   rows that do not divide: a part in a million.
// The table has 16x4x32 for papers100M on 2,048 ranks. 32x4x16 sends as much and holds less: sums of gradients
// that are half way are shorter.
Line const lines[] = {
    // table: pmm3d, rows, rows with bf16; here: the same of the busiest rank
    {products, 4, "2x2x1", 2767, "1x4x1", 1286, 643, 2'772'370, 1'288'400, 644'310},
    {products, 16, "4x2x2", 1762, "2x4x2", 750, 375, 1'765'770, 753'340, 376'810},
    {products, 64, "4x4x4", 846, "4x4x4", 402, 201, 848'610, 404'070, 202'170},
    {products, 256, "8x8x4", 393, "8x4x8", 208, 104, 393'690, 208'990, 104'640},
    {products, 1024, "16x8x8", 168, "16x4x16", 106, 53, 168'220, 106'340, 53'320},
    {products, 2048, "16x16x8", 111, "16x4x32", 80, 40, 110'820, 80'270, 40'280},
    {isolate, 4, "2x2x1", 9620, "1x4x1", 4198, 2099, 9'620'160, 4'198'080, 2'099'150},
    {isolate, 16, "4x2x2", 6096, "2x4x2", 2449, 1225, 6'095'670, 2'449'030, 1'224'650},
    {isolate, 64, "4x4x4", 2873, "4x4x4", 1312, 656, 2'872'930, 1'312'130, 656'210},
    {isolate, 256, "8x8x4", 1349, "8x4x8", 678, 339, 1'349'010, 678'080, 339'190},
    {isolate, 1024, "16x8x8", 578, "16x4x16", 345, 172, 577'760, 344'660, 172'480},
    {isolate, 2048, "16x8x16", 376, "16x4x32", 260, 130, 376'330, 259'950, 130'130},
    {papers, 4, "2x1x2", 151930, "1x4x1", 85294, 42647, 151'930'120, 85'294'380, 42'647'350},
    {papers, 16, "4x2x2", 95178, "2x4x2", 49755, 24878, 95'178'450, 49'755'280, 24'877'840},
    {papers, 64, "8x2x4", 49977, "4x4x4", 26655, 13328, 49'977'020, 26'654'830, 13'327'630},
    {papers, 256, "8x4x8", 22198, "8x4x8", 13772, 6886, 22'198'120, 13'771'880, 6'886'160},
    {papers, 1024, "16x8x8", 9187, "16x4x16", 6997, 3499, 9'211'040, 6'997'220, 3'498'830},
    {papers, 2048, "16x8x16", 6152, "32x4x16", 5276, 2638, 6'177'710, 5'275'790, 2'638'120},
};

/// Bytes per rank of the closed forms, in the mean over the ranks (docs/design.md 2.2).
struct ClosedForm {
  double activations = 0; // with what the loss sends for rows
  double weights = 0;     // one transfer of every weight in fp32
  double of_list = 0;     // what the list adds: see weights_of_list()
};

double ring(int size) {
  return static_cast<double>(size - 1);
}

/// Bytes that the list of pmm3d has in place of two transfers of every weight: two or, of layer 0, one gather
/// and one scatter of padded flat shards over `parts` ranks, which have a part of `length` numbers; and the bias.
double weights_of_list(std::size_t layer, double length, int parts, double num_bias, int rows_axis) {
  auto const padded = std::ceil(length / parts);
  return 4 * ((layer == 0 ? 2 : 3) * ring(parts) * padded + 2 * ring(rows_axis) / rows_axis * num_bias);
}

ClosedForm closed_form(Graph const& graph, Schedule schedule, pmm::GridShape const& shape, double wire) {
  auto const n = static_cast<double>(graph.num_vertices);
  auto const ranks = static_cast<double>(shape.num_ranks());
  ClosedForm sum;
  auto in_one_array = 0.0; // numbers of weights and biases, for rows
  auto a = shape.x, b = shape.y, c = shape.z;
  for (std::size_t l = 0; l + 1 < graph.widths.size(); ++l) {
    auto const in = static_cast<double>(graph.widths[l]);
    auto const out = static_cast<double>(graph.widths[l + 1]);
    if (schedule == Schedule::rows) {
      sum.weights += 4 * in * out * ring(shape.num_ranks()) / ranks;
      in_one_array = std::ceil(in_one_array / 16) * 16 + in * out; // each begins at a multiple of 16
      in_one_array = std::ceil(in_one_array / 16) * 16 + out;
      if (l > 0) // A^ F0 is kept
        sum.activations +=
            wire * (2 * ring(a) + 2 * ring(c) + 4 * ring(b) / b) * n * std::min(in, out) / ranks;
      continue;
    }
    auto const u = n * in / ranks;
    auto const v = n * out / ranks;
    if (l == 0 || in <= out) { // aggregate first
      sum.activations += wire * (2 * ring(b) * v + (l == 0 ? 0 : (4 * ring(a) + 2 * ring(c)) * u));
      sum.weights += 4 * ring(c) * in * out / ranks;
      sum.of_list += weights_of_list(l, in * out / (a * b), c, out / a, c);
      std::tie(a, b, c) = std::tuple(c, a, b);
    } else {
      sum.activations += wire * ((2 * ring(a) + 4 * ring(b)) * v + 2 * ring(c) * u);
      sum.weights += 4 * ring(a) * in * out / ranks;
      sum.of_list += weights_of_list(l, in * out / (b * c), a, out / c, b);
      std::tie(a, b, c) = std::tuple(b, c, a);
    }
  }
  // One gather and one sum of the padded array.
  sum.of_list += 4 * 2 * ring(shape.num_ranks()) * std::ceil(in_one_array / ranks);
  // Three numbers per row over the ranks of the classes.
  if (schedule == Schedule::pmm3d) sum.activations += 4 * 3 * 2 * ring(b) / b * n / a;
  return sum;
}

double mean_sent_bytes(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                       models::NetworkSettings const& settings) {
  auto const plan = models::plan_network(facts, settings);
  auto sum = 0.0;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    auto const at = pmm::coordinates_of(shape, rank);
    pmm::StepPlan step(shape, at, sizeof(float));
    plan_epoch(step, plan, settings, models::traits_of(facts, shape, at, plan, settings));
    sum += static_cast<double>(models::sent_bytes_of(step));
  }
  return sum / shape.num_ranks();
}

/// How much larger the widest part of the columns may be than the mean one, over all widths and axes.
double largest_excess(Widths const& widths, pmm::GridShape const& shape) {
  auto excess = 1.0;
  for (auto const width : widths)
    for (auto const size : {shape.x, shape.y, shape.z}) {
      auto const mean = static_cast<double>(width) / size;
      excess = std::max(excess, std::ceil(mean) / mean);
    }
  return excess;
}

void expect_line(Graph const& graph, int num_ranks, models::NetworkSettings const& settings,
                 std::int64_t least_width, std::string const& grid, int table_megabytes,
                 std::int64_t busiest_kilobytes) {
  auto const facts = facts_of(graph.num_vertices, graph.num_nonzeros, graph.widths, graph.is_symmetric);
  auto const best = models::costs_of_grids(num_ranks, facts, settings, least_width).front();
  SCOPED_TRACE(::testing::Message() << graph.num_vertices << " vertices, " << best.shape.to_string() << ", "
                                    << name_of(settings.schedule));
  auto const wire = settings.wire == runtime::Wire::native ? 4.0 : 2.0;
  auto const expected = closed_form(graph, settings.schedule, best.shape, wire);
  auto const mean = mean_sent_bytes(best.shape, facts, settings);
  auto const busiest = static_cast<double>(best.sent_bytes);

  EXPECT_EQ(grid_of(best.shape), grid);
  // The table is the closed form with two transfers of every weight, to the digit that it prints.
  EXPECT_EQ(std::llround((expected.activations + 2 * expected.weights) / 1e6), table_megabytes);
  // The list is the closed form with the transfers that it makes; a thousandth of a percent covers the sums of
  // norms and loss and the products of rows and columns that do not divide.
  EXPECT_NEAR(mean, expected.activations + expected.of_list, 1e-5 * mean + 200);
  // Every call of the busiest rank is at most a block with the widest part of the columns, and one row more
  // than the mean for each rank whose rows are in it.
  auto const rows_excess = 1 + static_cast<double>(num_ranks) / static_cast<double>(graph.num_vertices);
  EXPECT_GE(busiest, mean);
  EXPECT_LE(busiest, mean * largest_excess(graph.widths, best.shape) * rows_excess * (1 + 1e-5));
  EXPECT_NEAR(busiest / 1e3, static_cast<double>(busiest_kilobytes), 5);
}

TEST(GridCosts, OfThreeGraphsAreTheTableOfExpectedBytes) {
  for (auto const& line : lines) {
    auto rows = settings_of(line.graph.widths, Schedule::rows);
    auto const any_width = 1;
    auto const four_parts = 32; // of 128 columns
    expect_line(line.graph, line.num_ranks, settings_of(line.graph.widths, Schedule::pmm3d), any_width,
                line.pmm3d_grid, line.pmm3d, line.pmm3d_busiest);
    expect_line(line.graph, line.num_ranks, rows, four_parts, line.rows_grid, line.rows, line.rows_busiest);
    rows.wire = runtime::Wire::bf16;
    expect_line(line.graph, line.num_ranks, rows, four_parts, line.rows_grid, line.rows_bf16,
                line.rows_bf16_busiest);
  }
}

/// The most that any rank sends and holds.
GridCost largest_of_all_ranks(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                              models::NetworkSettings const& settings) {
  auto const plan = models::plan_network(facts, settings);
  GridCost most;
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    auto const step = models::list_of_rank(shape, pmm::coordinates_of(shape, rank), facts, plan, settings);
    most.sent_bytes = std::max(most.sent_bytes, models::sent_bytes_of(step));
    most.array_bytes = std::max(most.array_bytes, bytes_held(step));
    most.num_calls = std::max(most.num_calls, static_cast<std::int64_t>(calls_of(step).size()));
  }
  return most;
}

std::vector<models::NetworkSettings> networks(Widths const& widths, Schedule schedule) {
  std::vector<models::NetworkSettings> all;
  auto const add = [&](auto const& change) {
    all.push_back(settings_of(widths, schedule));
    change(all.back());
  };
  add([](auto&) {});
  add([](auto& s) { s.dropout = 0.5; });
  add([](auto& s) { s.norm = models::Norm::rms; });
  add([](auto& s) { s.trains_features = true; });
  add([](auto& s) { s.wire = runtime::Wire::bf16; });
  add([](auto& s) { s.order = models::ProductOrder::transform_first; });
  return all;
}

TEST(GridCosts, AreThoseOfTheRankThatSendsAndHoldsMost) {
  Widths const widths{13, 9, 9, 5};
  for (auto const schedule : {Schedule::pmm3d, Schedule::rows})
    for (auto const& settings : networks(widths, schedule))
      for (auto const num_vertices : {101, 5})
        for (auto const is_symmetric : {true, false})
          for (auto const num_ranks : {1, 2, 3, 4, 6, 7, 8, 9, 12, 30})
            for (auto const& shape : pmm::all_shapes(num_ranks)) {
              SCOPED_TRACE(shape.to_string() + " " + std::string(name_of(schedule)));
              auto const facts = facts_of(num_vertices, 12 * num_vertices, widths, is_symmetric);

              auto const cost = models::cost_of_grid(shape, facts, settings);

              auto const most = largest_of_all_ranks(shape, facts, settings);
              EXPECT_EQ(cost.sent_bytes, most.sent_bytes);
              EXPECT_EQ(cost.array_bytes, most.array_bytes);
              EXPECT_EQ(cost.num_calls, most.num_calls);
            }
}

// Rows of a residual that a rank keeps are not sent, so rank 0 need not be the busiest.
TEST(GridCosts, OfResidualsAreThoseOfTheBusiestRank) {
  Widths const widths{13, 9, 9, 9, 5};
  auto const facts = facts_of(101, 1200, widths);
  for (auto const schedule : {Schedule::pmm3d, Schedule::rows})
    for (auto const num_ranks : {2, 3, 4, 6, 8, 9, 12, 16})
      for (auto const& shape : pmm::all_shapes(num_ranks)) {
        SCOPED_TRACE(shape.to_string() + " " + std::string(name_of(schedule)));
        auto settings = settings_of(widths, schedule);
        settings.has_residuals = true;

        auto const cost = models::cost_of_grid(shape, facts, settings);

        auto const most = largest_of_all_ranks(shape, facts, settings);
        EXPECT_EQ(cost.sent_bytes, most.sent_bytes);
        EXPECT_EQ(cost.array_bytes, most.array_bytes);
      }
}

TEST(GridCosts, OfResidualsOnManyRanksAreNearlyThoseOfTheBusiestRank) {
  Widths const widths{100, 128, 128, 128, 47};
  auto const facts = facts_of(1'000'000, 12'000'000, widths);
  for (auto const& shape : {pmm::GridShape{1, 8, 6, 4}, {1, 4, 16, 4}}) {
    auto settings = settings_of(widths, Schedule::pmm3d);
    settings.has_residuals = true;

    auto const cost = models::cost_of_grid(shape, facts, settings);

    auto const most = largest_of_all_ranks(shape, facts, settings);
    EXPECT_LE(cost.sent_bytes, most.sent_bytes);
    EXPECT_GE(static_cast<double>(cost.sent_bytes), 0.95 * static_cast<double>(most.sent_bytes));
    EXPECT_GE(static_cast<double>(cost.array_bytes), 0.95 * static_cast<double>(most.array_bytes));
  }
}

TEST(GridCosts, LeaveOutGridsWhoseColumnsAreSplitTooFar) {
  auto const facts = facts_of(1000, 10'000, products.widths);
  auto const settings = settings_of(products.widths, Schedule::rows);

  for (auto const least_width : {1, 16, 32, 128, 129}) {
    auto const costs = models::costs_of_grids(64, facts, settings, least_width);

    // 128 columns are aggregated in layer 1, and 47 in layer 2.
    std::size_t num_allowed = 0;
    for (auto const& shape : pmm::all_shapes(64))
      num_allowed += shape.y == 1 || shape.y * least_width <= 128 ? 1 : 0;
    EXPECT_EQ(costs.size(), num_allowed) << least_width;
    for (auto const& cost : costs)
      EXPECT_EQ(cost.narrowest_part, 47 / cost.shape.y) << cost.shape.to_string();
  }
}

TEST(GridCosts, BeginWithTheFewestBytesAndOfNearlyEqualOnesTheLeastMemory) {
  auto const facts = facts_of(papers.num_vertices, papers.num_nonzeros, papers.widths, false);

  auto const costs = models::costs_of_grids(256, facts, settings_of(papers.widths, Schedule::rows), 1);

  for (std::size_t i = 1; i < costs.size(); ++i) {
    auto const& [before, after] = std::pair(costs[i - 1], costs[i]);
    auto const ratio = static_cast<double>(after.sent_bytes) / static_cast<double>(before.sent_bytes);
    EXPECT_GE(ratio, 1 / 1.001);
    if (ratio < 1) {
      EXPECT_LE(before.array_bytes, after.array_bytes);
    }
  }
}

TEST(GridCosts, CountGraphsLargerThanAnyOrRefuseThem) {
  Widths const widths{128, 128, 128, 172};
  auto const large = facts_of(1'000'000'000, 20'000'000'000, widths);
  for (auto const schedule : {Schedule::pmm3d, Schedule::rows})
    for (auto const& cost : models::costs_of_grids(64, large, settings_of(widths, schedule), 1)) {
      EXPECT_GT(cost.sent_bytes, 1'000'000'000);
      EXPECT_GT(cost.array_bytes, cost.adjacency_bytes);
      EXPECT_GT(cost.adjacency_bytes, 4 * large.num_entries / 64);
      EXPECT_LT(cost.array_bytes, std::int64_t{1} << 50);
    }
  auto const too_large = facts_of(std::int64_t{1} << 40, std::int64_t{1} << 43, {4096, 4096, 4096, 4096});
  EXPECT_THROW(std::ignore = models::costs_of_grids(2048, too_large,
                                                    settings_of({4096, 4096, 4096, 4096}, Schedule::rows), 1),
               runtime::UserError);
}

TEST(GridCosts, HaveAllArraysUnderTheirLabels) {
  auto const facts = facts_of(101, 1200, products.widths);
  for (auto const schedule : {Schedule::pmm3d, Schedule::rows}) {
    auto const settings = settings_of(products.widths, schedule);
    pmm::GridShape const shape{1, 2, 3, 2};

    auto const step = models::list_of_rank(shape, {}, facts, models::plan_network(facts, settings), settings);

    auto const sum_of = [](models::BytesByLabel const& arrays) {
      std::int64_t sum = 0;
      for (auto const& [label, bytes] : arrays)
        sum += bytes;
      return sum;
    };
    auto const cost = models::cost_of_grid(shape, facts, settings);
    EXPECT_EQ(sum_of(models::arrays_by_label(step)), cost.array_bytes);
    auto const loading = sum_of(models::loading_arrays_by_label(step));
    EXPECT_GT(loading, 0);
    EXPECT_LE(cost.loading_bytes, cost.array_bytes + loading);
  }
}

} // namespace
} // namespace orthant::testing

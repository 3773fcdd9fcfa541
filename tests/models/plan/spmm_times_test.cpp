// SPDX-License-Identifier: Apache-2.0
//
// What narrow products cost by a table, and what follows for schedules and grids.
#include "models/plan/spmm_times.hpp"

#include "models/gnn/grid_cost.hpp"
#include "models/plan/gcn_step.hpp"
#include "runtime/error.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

using models::GridOrder;
using models::Schedule;
using models::SpmmTimes;

SpmmTimes table(std::vector<SpmmTimes::Point> points) {
  return {std::move(points), "a processor", "2026-11-22", "fp32", "0.1.0"};
}

graph::StoreFacts products() {
  graph::StoreFacts facts;
  facts.num_vertices = 2449029;
  facts.num_entries = 126167053 - facts.num_vertices;
  facts.is_symmetric = true;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.num_features = 100;
  facts.label_kind = graph::LabelKind::single;
  facts.num_classes = 47;
  return facts;
}

models::GcnSettings three_layers(Schedule schedule) {
  models::GcnSettings settings;
  settings.set_layers(3, 128);
  settings.dropout = 0;
  settings.schedule = schedule;
  return settings;
}

TEST(SpmmTimes, AreThoseOfTheTableAndGrowLinearlyBetween) {
  auto const times = table({{4, 8}, {8, 5}, {32, 2}});
  EXPECT_DOUBLE_EQ(times.seconds(10, 4), 10 * 4 * 8);
  EXPECT_DOUBLE_EQ(times.seconds(10, 8), 10 * 8 * 5);
  EXPECT_DOUBLE_EQ(times.seconds(10, 32), 10 * 32 * 2);
  EXPECT_DOUBLE_EQ(times.seconds(10, 6), 10 * (32 + 40) / 2); // per non-zero 32 at 4 columns and 40 at 8
  EXPECT_DOUBLE_EQ(times.seconds(10, 1), 10 * 4 * 8);         // as 4 columns
  EXPECT_DOUBLE_EQ(times.seconds(10, 64), 10 * 64 * 2);
  EXPECT_EQ(times.seconds(0, 64), 0);
}

TEST(SpmmTimes, BuiltInOnesHaveAFloorOfSixteenColumns) {
  auto const& times = models::built_in_spmm_times();
  auto const of_row = [&](std::int64_t width) { return times.seconds(1'000'000, width); };
  EXPECT_DOUBLE_EQ(of_row(128), 128e-4);
  EXPECT_DOUBLE_EQ(of_row(32), 32e-4);
  EXPECT_DOUBLE_EQ(of_row(16), 16 * 1.3e-4);
  for (auto const narrower : {1, 4, 8})
    EXPECT_DOUBLE_EQ(of_row(narrower), of_row(16));
}

TEST(SpmmTimes, AFileReadsBackAsItWasWritten) {
  auto const times = table({{1, 1e-9}, {8, 1.0 / 3e9}});
  auto const read = models::parse_spmm_times(models::text_of(times), "t.json", "fp32");
  ASSERT_EQ(read.points.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.points[i].width, times.points[i].width);
    EXPECT_EQ(read.points[i].seconds, times.points[i].seconds);
  }
  EXPECT_EQ(read.processor, "a processor");
  EXPECT_EQ(read.date, "2026-11-22");
  EXPECT_EQ(read.version, "0.1.0");
}

TEST(SpmmTimes, AFileOfAnythingElseIsRefusedInOneLine) {
  auto const good = models::text_of(table({{4, 8}, {8, 5}}));
  auto const with = [&](std::string const& what, std::string const& in_place_of) {
    auto text = good;
    auto const at = text.find(in_place_of);
    EXPECT_NE(at, std::string::npos) << in_place_of;
    return text.replace(at, in_place_of.size(), what);
  };
  for (auto const& text : {std::string(),
                           std::string("[]"),
                           std::string("3"),
                           std::string("{\"table\": \"spmm_times\"}"),
                           good.substr(0, good.size() / 2),
                           with("\"spmm_tames\"", "\"spmm_times\""),
                           with("\"format\": 2", "\"format\": 1"),
                           with("\"width\": 9", "\"width\": 4"),
                           with("\"width\": 8", "\"width\": 4"),
                           with("\"width\": 0", "\"width\": 4"),
                           with("\"width\": 1e40", "\"width\": 4"),
                           with("\"width\": 4.5", "\"width\": 4"),
                           with("\"width\": 99999999999999999999", "\"width\": 8"),
                           with("column\": 0", "column\": 8"),
                           with("column\": -1", "column\": 8"),
                           with("column\": \"8\"", "column\": 8"),
                           with("column\": 1e999", "column\": 8"),
                           with("\"fp64\"", "\"fp32\""),
                           with("7", "\"a processor\""),
                           models::text_of(table({}))}) {
    try {
      std::ignore = models::parse_spmm_times(text, "t.json", "fp32");
      ADD_FAILURE() << "took " << text;
    } catch (runtime::UserError const& error) {
      std::string const message = error.what();
      EXPECT_NE(message.find("'t.json'"), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
  EXPECT_THROW(std::ignore = models::parse_spmm_times(good, "t.json", "fp64"), runtime::UserError);
}

pmm::LocalProduct product_of(bool is_sparse, std::int64_t num_columns, std::int64_t num_nonzeros) {
  pmm::LocalProduct product;
  product.is_sparse = is_sparse;
  product.m = product.k = 9;
  product.n = num_columns;
  product.num_nonzeros = num_nonzeros;
  return product;
}

TEST(SpmmTimes, OfAListAreSummedOverItsSparseProducts) {
  pmm::StepPlan step({1, 2, 2, 1}, {}, sizeof(float));
  step.add_product(product_of(true, 8, 100));
  step.add_product(product_of(false, 8, 0));
  step.add_product(product_of(true, 4, 10));
  step.add_product(product_of(true, 0, 10)); // no columns here
  EXPECT_DOUBLE_EQ(spmm_seconds(step, table({{4, 8}, {8, 5}})), 100 * 8 * 5 + 10 * 4 * 8);
}

TEST(GridCosts, CountNarrowProducts) {
  auto const facts = products();
  auto const settings = three_layers(Schedule::rows);
  // A rank has 1/16 of the non-zeros in 1x4x4 blocks or a quarter in 4 parts of the columns; A^ F0 is kept, so four
  // products of an epoch are 128, 128, 47 and 47 columns wide.
  auto const flat = table({{1, 1e-9}});
  auto const nonzeros = 126167053.0;
  auto const wide = models::cost_of_grid({1, 4, 1, 4}, facts, settings, flat);
  auto const narrow = models::cost_of_grid({1, 1, 16, 1}, facts, settings, flat);
  EXPECT_NEAR(wide.spmm_seconds, nonzeros / 16 * 2 * (128 + 47) * 1e-9, 1e-6 * wide.spmm_seconds);
  EXPECT_NEAR(narrow.spmm_seconds, nonzeros * 2 * (8 + 3) * 1e-9, 1e-6 * narrow.spmm_seconds);
  EXPECT_NEAR(wide.seconds - wide.spmm_seconds,
              50e-6 * static_cast<double>(wide.num_calls) + static_cast<double>(wide.sent_bytes) / 10e9,
              1e-12);
  // A part of 8 columns that costs as much as one of 128: a floor.
  auto const floor = table({{128, 1e-9}});
  EXPECT_GT(models::cost_of_grid({1, 1, 16, 1}, facts, settings, floor).spmm_seconds, 15 * wide.spmm_seconds);
}

TEST(GridCosts, AreOrderedByTimeIfAsked) {
  auto const facts = products();
  auto const settings = three_layers(Schedule::rows);
  auto const best = [&](SpmmTimes const& times) {
    auto const costs = models::costs_of_grids(16, facts, settings, 1, times, GridOrder::by_seconds);
    for (std::size_t i = 1; i < costs.size(); ++i)
      EXPECT_LE(costs[i - 1].seconds, costs[i].seconds);
    return costs.front();
  };
  // Free products: bytes decide, and features split on all ranks send least. Dear narrow ones: whole rows.
  auto const free = best(table({{1, 1e-30}}));
  auto const dear = best(table({{128, 1e-7}}));
  EXPECT_EQ(free.sent_bytes, models::costs_of_grids(16, facts, settings, 1).front().sent_bytes);
  EXPECT_EQ(dear.shape.y, 1);
  EXPECT_GT(free.shape.y, 4);
}

TEST(ChooseSchedule, WeighsWiderColumnsAgainstBytes) {
  // On 1x4x1 an aggregation of rows is split over four ranks as it is in some layers of pmm3d: the narrower
  // products are dear enough to outweigh the bytes, or they are not.
  auto const facts = products();
  auto const settings = three_layers(Schedule::rows);
  pmm::GridShape const shape{1, 1, 4, 1};
  auto const seconds = [&](Schedule schedule, SpmmTimes const& times) {
    return models::cost_of_grid(shape, facts, three_layers(schedule), times).seconds;
  };
  for (auto const& times : {table({{128, 1e-30}}), table({{128, 1e-6}}), models::built_in_spmm_times()}) {
    auto const expected =
        seconds(Schedule::rows, times) < seconds(Schedule::pmm3d, times) ? Schedule::rows : Schedule::pmm3d;
    EXPECT_EQ(models::choose_schedule("auto", facts, settings, shape, times), expected);
  }
  EXPECT_EQ(models::choose_schedule("auto", facts, settings, shape, table({{128, 1e-30}})), Schedule::rows);
  EXPECT_EQ(models::choose_schedule("auto", facts, settings, shape, table({{128, 1e-6}})), Schedule::pmm3d);
}

} // namespace
} // namespace orthant::testing

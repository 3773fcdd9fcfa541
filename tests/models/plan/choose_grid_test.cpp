// SPDX-License-Identifier: Apache-2.0
//
// What follows from the seconds of a machine for schedules and grids.
#include "graph_facts.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::GridOrder;
using models::Schedule;

/// Everything is free but sparse products, calls (50 us) and bytes (10 GB/s).
pmm::Machine machine(std::vector<pmm::WidthTable::Point> points) {
  constexpr auto free = 1e300;
  pmm::Machine machine;
  machine.name = "test";
  machine.ranks_per_node = 1 << 20;
  machine.memory.bytes_per_second = free;
  machine.dense = {free, free};
  machine.sparse.per_nonzero.points = std::move(points);
  machine.collectives = {50e-6, 0, {{{2, 1}, 10e9}}, 10e9};
  return machine;
}

graph::StoreFacts products() {
  return facts_of(2449029, 126167053, 100, 47);
}

models::NetworkSettings three_layers(Schedule schedule) {
  models::NetworkSettings settings;
  settings.set_layers(3, 128);
  settings.dropout = 0;
  settings.schedule = schedule;
  return settings;
}

/// On a grid that is given.
Schedule chosen_schedule(graph::StoreFacts const& facts, models::NetworkSettings const& settings,
                         pmm::GridShape const& shape, pmm::Machine const& on = pmm::assumed_machine(),
                         std::string_view word = "auto") {
  return models::choose_grid({shape.num_ranks(), shape.to_string(), word},
                             models::full_graph_seconds(facts, settings, on))
      .schedule;
}

TEST(GridCosts, CountNarrowProducts) {
  auto const facts = products();
  auto const settings = three_layers(Schedule::rows);
  // A rank has 1/16 of the non-zeros in 1x4x4 blocks or a quarter in 4 parts of the columns; A^ F0 is kept, so four
  // products of an epoch are 128, 128, 47 and 47 columns wide.
  auto const flat = machine({{1, 1e-9}});
  auto const nonzeros = 126167053.0;
  auto const wide = models::cost_of_grid({1, 4, 1, 4}, facts, settings, flat);
  auto const narrow = models::cost_of_grid({1, 1, 16, 1}, facts, settings, flat);
  EXPECT_NEAR(wide.seconds.sparse, nonzeros / 16 * 2 * (128 + 47) * 1e-9, 1e-6 * wide.seconds.sparse);
  EXPECT_NEAR(narrow.seconds.sparse, nonzeros * 2 * (8 + 3) * 1e-9, 1e-6 * narrow.seconds.sparse);
  EXPECT_NEAR(wide.seconds.total() - wide.seconds.sparse,
              50e-6 * static_cast<double>(wide.num_calls) + static_cast<double>(wide.sent_bytes) / 10e9,
              1e-12);
  // A part of 8 columns that costs as much as one of 128: a floor.
  auto const floor = machine({{128, 128e-9}});
  EXPECT_GT(models::cost_of_grid({1, 1, 16, 1}, facts, settings, floor).seconds.sparse,
            15 * wide.seconds.sparse);
}

TEST(GridCosts, AreOrderedByTimeIfAsked) {
  auto const facts = products();
  auto const settings = three_layers(Schedule::rows);
  auto const best = [&](pmm::Machine const& on) {
    auto const costs = models::costs_of_grids(16, facts, settings, 1, on, GridOrder::by_seconds);
    for (std::size_t i = 1; i < costs.size(); ++i)
      EXPECT_LE(costs[i - 1].seconds.total(), costs[i].seconds.total());
    return costs.front();
  };
  // Free products: bytes decide, and features split on all ranks send least. Dear narrow ones: whole rows.
  auto const free = best(machine({{1, 1e-30}}));
  auto const dear = best(machine({{128, 128e-7}}));
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
  auto const chosen = [&](pmm::Machine const& on) { return chosen_schedule(facts, settings, shape, on); };
  for (auto const& on : {machine({{128, 1e-30}}), machine({{128, 128e-6}}), pmm::assumed_machine()}) {
    auto const seconds = models::full_graph_seconds(facts, settings, on);
    auto const rows_are_faster =
        seconds(shape, Schedule::rows).total() < seconds(shape, Schedule::pmm3d).total();
    EXPECT_EQ(chosen(on), rows_are_faster ? Schedule::rows : Schedule::pmm3d);
  }
  EXPECT_EQ(chosen(machine({{128, 1e-30}})), Schedule::rows);
  EXPECT_EQ(chosen(machine({{128, 128e-6}})), Schedule::pmm3d);
}

TEST(ChooseSchedule, TakesWhatSendsLess) {
  auto const big = products();
  // coauthor_physics: the messages of a weight of 8,415 x 128 outweigh those of 34,493 rows.
  auto wide = facts_of(34493, 530417, 8415, 5);
  wide.feature_kind = graph::FeatureKind::sparse;
  auto const settings = three_layers(Schedule::pmm3d);
  auto const only_messages = machine({{1, 1e-300}});
  for (auto const& shape : {pmm::GridShape{1, 2, 2, 2}, {1, 4, 4, 4}, {1, 16, 8, 16}}) {
    EXPECT_EQ(chosen_schedule(big, settings, shape), Schedule::rows);
    EXPECT_EQ(chosen_schedule(wide, settings, shape, only_messages), Schedule::pmm3d);
    EXPECT_EQ(chosen_schedule(wide, settings, shape, only_messages, "rows"), Schedule::rows);
  }
  // Where no message differs, bytes of passes: a ReLU that leaves bits (models::shares_outputs).
  EXPECT_EQ(chosen_schedule(big, settings, {4, 1, 1, 1}),
            pmm::runs_on_host ? Schedule::rows : Schedule::pmm3d);
  EXPECT_THROW(static_cast<void>(chosen_schedule(big, settings, {}, only_messages, "3d")),
               runtime::UserError);
}

TEST(ChooseSchedule, CopiesNothingOnOneRank) {
  // Rows of the vertex itself, and those to which a layer goes back, are copied in pmm3d, and lie there in rows. The backward
  // pass of a GCN reads bits in place of outputs in rows, on a host.
  auto const facts = products();
  auto const of_gcn = pmm::runs_on_host ? Schedule::rows : Schedule::pmm3d;
  for (auto const& [model, schedule] : {std::pair(models::Model::gcn, of_gcn),
                                        {models::Model::sage, Schedule::rows},
                                        {models::Model::gin, Schedule::rows},
                                        {models::Model::appnp, Schedule::rows}}) {
    auto settings = three_layers(Schedule::pmm3d);
    set_model(settings, model);
    EXPECT_EQ(chosen_schedule(facts, settings, {}), schedule) << models::name_of(model);
  }
}

TEST(ChooseGrid, TakesTheLeastOfAllGridsAndSchedules) {
  auto const seconds =
      models::full_graph_seconds(products(), three_layers(Schedule::pmm3d), machine({{1, 1e-10}}));
  for (auto const num_ranks : {1, 2, 6, 16}) {
    std::vector<double> all;
    for (auto const& shape : pmm::all_shapes(num_ranks))
      for (auto const schedule : {Schedule::pmm3d, Schedule::rows})
        all.push_back(seconds(shape, schedule).total());
    std::ranges::sort(all);

    auto const choices = models::rank_grids({num_ranks}, seconds);

    ASSERT_EQ(choices.size(), all.size()) << num_ranks;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(choices[i].seconds, all[i]) << num_ranks;
      EXPECT_EQ(seconds(choices[i].shape, choices[i].schedule).total(), all[i]) << num_ranks;
    }
  }
  auto const given = models::choose_grid({6, "1x2x1x3"}, seconds);
  EXPECT_EQ(given.shape, (pmm::GridShape{1, 2, 1, 3}));
  EXPECT_THROW(static_cast<void>(models::choose_grid({6, "1x2x2x3"}, seconds)), runtime::UserError);
}

} // namespace
} // namespace orthant::testing

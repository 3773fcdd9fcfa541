// SPDX-License-Identifier: Apache-2.0
//
// The schedule rows: the block that a rank reads beside the whole matrix, and bytes: of grids that do not
// exist against closed forms, and beside those of pmm3d and of Plexus's schedule.
#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "models_fixture.hpp"
#include "plan/graph_facts.hpp"
#include "plan/graph_recipe.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

class OwnedBlock : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  runtime::Communicator self_{MPI_COMM_SELF, "self"};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
};

std::vector<std::int64_t> positions_in(std::vector<runtime::Range> const& ranges) {
  std::vector<std::int64_t> all;
  for (auto const& range : ranges)
    for (auto i = range.begin; i < range.end; ++i)
      all.push_back(i);
  return all;
}

/// A block with its scales, as a dense matrix.
Dense dense_of(pmm::SparseBlock<double> const& block) {
  auto const offsets = host_copy(block.csr.row_offsets);
  auto const columns = host_copy(block.csr.columns);
  auto const values = host_copy(block.csr.values);
  auto const rows_by = host_copy(block.row_scale);
  auto const columns_by = host_copy(block.column_scale);
  auto const scale = [](auto const& scales, std::size_t i) {
    return scales.extent(0) == 0 ? 1.0 : scales(i);
  };
  Dense dense(block.csr.num_rows, block.csr.num_columns);
  for (std::size_t i = 0; i < static_cast<std::size_t>(dense.rows); ++i)
    for (auto k = static_cast<std::size_t>(offsets(i)); k < static_cast<std::size_t>(offsets(i + 1)); ++k) {
      auto const j = static_cast<std::size_t>(columns(k));
      dense(static_cast<std::int64_t>(i), columns(k)) +=
          scale(rows_by, i) * (values.extent(0) == 0 ? 1.0 : values(k)) * scale(columns_by, j);
    }
  return dense;
}

/// A^ with vertices by original id, entry by entry from the rows of the store.
Dense whole_matrix(graph::GraphStore const& store) {
  auto const n = store.facts().num_vertices;
  auto const parity = graph::Parity::even;
  auto const csr = store.read_block(parity, {0, n}, {0, n});
  auto const scales = store.read_scales(parity, {0, n}, {0, n});
  auto const rows = store.read_original_ids(graph::row_order(parity), {0, n});
  auto const columns = store.read_original_ids(graph::column_order(parity), {0, n});
  Dense whole(n, n);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (auto k = static_cast<std::size_t>(csr.row_offsets[i]);
         k < static_cast<std::size_t>(csr.row_offsets[i + 1]); ++k) {
      auto const j = static_cast<std::size_t>(csr.columns[k]);
      whole(rows[i], columns[j]) = (scales.rows.empty() ? 1.0 : scales.rows[i]) *
                                   (csr.values.empty() ? 1.0 : static_cast<double>(csr.values[k])) *
                                   (scales.columns.empty() ? 1.0 : scales.columns[j]);
    }
  return whole;
}

TEST_P(OwnedBlock, IsThePartOfTheMatrixThatTheRolesName) {
  for (auto const* const graph :
       {"sbm:vertices=101,edges=600,features=3,classes=2",
        "sbm:vertices=101,edges=600,features=3,classes=2,directed=1", "ring:vertices=5,features=1,classes=2"})
    for (auto const permutation : {graph::PermutationKind::twofold, graph::PermutationKind::single,
                                   graph::PermutationKind::natural, graph::PermutationKind::pieces}) {
      auto const store = store_of_dataset(world_, graph, permutation);
      auto const whole = whole_matrix(store);
      auto const n = store.facts().num_vertices;
      auto const ids = store.read_original_ids(graph::Order::p1, {0, n});
      auto const id = [&](std::int64_t position) { return ids[static_cast<std::size_t>(position)]; };
      for (auto const& roles : {pmm::Roles{}, pmm::Roles{pmm::Axis::y, pmm::Axis::z, pmm::Axis::x}}) {
        auto const rows = positions_in(pmm::block_rows(grid_.shape(), grid_.coordinates(), roles, n));
        auto const columns = positions_in(pmm::block_columns(grid_.shape(), grid_.coordinates(), roles, n));

        auto const owned = models::read_owned_adjacency<double>(grid_, store, roles);

        auto const forward = dense_of(owned.forward.block());
        auto const backward = dense_of(owned.backward.block());
        ASSERT_EQ(forward.rows, std::ssize(rows));
        ASSERT_EQ(forward.columns, std::ssize(columns));
        auto const same = models::backward_flow(store.facts()) == pmm::Flow::forward;
        for (std::int64_t i = 0; i < forward.rows; ++i)
          for (std::int64_t j = 0; j < forward.columns; ++j) {
            auto const row = id(rows[static_cast<std::size_t>(i)]);
            auto const column = id(columns[static_cast<std::size_t>(j)]);
            ASSERT_EQ(forward(i, j), whole(row, column));
            // The same pattern is A^T's block of these rows; a transposed one has rows and columns swapped.
            ASSERT_EQ(same ? backward(i, j) : backward(j, i), same ? whole(column, row) : whole(row, column));
          }
      }
    }
}

TEST_P(OwnedBlock, BelongsToNetworksWhoseParametersHaveTheSameBitsOnAllRanks) {
  models::NetworkSettings settings;
  settings.schedule = models::Schedule::rows;
  settings.norm = models::Norm::rms;
  settings.has_head = true;
  settings.projected_width = 9;
  settings.set_layers(2, 9);
  auto const store = store_of_dataset(world_, "sbm:vertices=101,edges=600,features=13,classes=5");
  models::GraphNetwork<float> model(grid_, store, settings);
  auto loss = models::make_vertex_loss<float>(grid_, store, model.plan().logits());
  models::Trainer<float> trainer(grid_, model, loss, {});
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch)
    static_cast<void>(trainer.train_epoch(epoch));
  static_cast<void>(trainer.evaluate()); // reads what the last update wrote

  auto const expect_same = [&](runtime::Vector<float> const& numbers) {
    auto const host = host_copy(numbers);
    std::vector<float> const here(host.data(), host.data() + host.extent(0));
    auto of_first = here;
    runtime::broadcast(runtime::host, world_, of_first, 0);
    EXPECT_FALSE(here.empty());
    EXPECT_EQ(here, of_first);
  };
  auto const& parameters = *model.shared_parameters();
  for (auto const& layer :
       {parameters.projection(), parameters.layer(0), parameters.layer(1), parameters.head()}) {
    expect_same(layer.weight.storage());
    expect_same(layer.bias.local());
  }
  expect_same(parameters.layer(1).norm_scale.local());
  // Every number is updated by one rank.
  for (auto const& parameter : model.parameters())
    EXPECT_EQ(runtime::all_reduced(world_, static_cast<std::int64_t>(parameter.value().extent(0))),
              parameter.num_numbers())
        << parameter.name;
}

TEST_P(OwnedBlock, OfAWeightedGraphTrainsAsBetweenPlanes) {
  auto const trained = [&](graph::GraphStore const& store, models::Schedule schedule, pmm::Gather gather) {
    models::NetworkSettings settings;
    settings.set_layers(3, 9);
    settings.seed = 5;
    settings.schedule = schedule;
    settings.gather = gather;
    models::GraphNetwork<double> model(grid_, store, settings);
    auto loss = models::make_vertex_loss<double>(grid_, store, model.plan().logits());
    models::TrainSettings training;
    training.num_epochs = 4;
    std::vector<double> losses;
    models::Trainer<double>(grid_, model, loss, training).run([&](runtime::EpochRecord const& epoch) {
      losses.push_back(epoch.loss);
    });
    return losses;
  };
  GraphRecipe recipe;
  recipe.num_vertices = 101;
  recipe.num_edges = 300;
  recipe.num_features = 11;
  recipe.is_weighted = true;
  for (auto const normalization : {graph::Normalization::symmetric, graph::Normalization::row})
    for (auto const is_directed : {false, true}) {
      recipe.normalization = normalization;
      recipe.is_directed = is_directed;
      auto const store = store_of(world_, recipe);
      auto const expected = trained(store, models::Schedule::pmm3d, pmm::Gather::all);
      for (auto const gather : {pmm::Gather::all, pmm::Gather::needed})
        EXPECT_THAT(trained(store, models::Schedule::rows, gather),
                    ::testing::Pointwise(::testing::DoubleNear(1e-10), expected));
    }
}

class RowsOnBatches : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  /// Losses, norms and scores of a training on batches.
  std::vector<double> trained(graph::GraphStore const& store, models::NetworkSettings settings,
                              models::MiniBatchSettings const& batches, models::Schedule schedule) {
    settings.schedule = schedule;
    models::TrainSettings training;
    training.num_epochs = 3;
    training.eval_every = 3;
    models::MiniBatchNetwork<double> trainer(grid_, store, settings, training, batches);
    std::vector<double> numbers;
    trainer.run([&](runtime::EpochRecord const& record) {
      numbers.push_back(record.loss);
      numbers.insert(numbers.end(), record.grad_norms.begin(), record.grad_norms.end());
      if (auto const score = record.score("test_acc")) numbers.push_back(*score);
    });
    return numbers;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};
};

TEST_P(RowsOnBatches, TrainAsBetweenPlanes) {
  models::NetworkSettings plain;
  plain.set_layers(3, 9);
  plain.dropout = 0.4;
  plain.seed = 11;
  auto with_parts = plain;
  with_parts.norm = models::Norm::rms;
  with_parts.has_residuals = with_parts.has_head = true;
  with_parts.projected_width = 9;
  with_parts.set_layers(2, 9);
  models::MiniBatchSettings whole_batches; // some cells are empty on many ranks
  whole_batches.batch_size = 16;
  auto strata = whole_batches;
  strata.batch_size = 50;
  strata.train_fraction = 0.5;
  strata.num_accumulated = 2;
  strata.num_full_epochs = 1;
  std::string const graph = "sbm:vertices=203,edges=900,features=13,classes=5";
  for (auto const& text : {graph, graph + ",directed=1"})
    for (auto const permutation : {graph::PermutationKind::twofold, graph::PermutationKind::single})
      for (auto const& settings : {plain, with_parts})
        for (auto const& batches : {whole_batches, strata}) {
          auto const store = store_of_dataset(world_, text, permutation);
          auto const expected = trained(store, settings, batches, models::Schedule::pmm3d);
          auto const found = trained(store, settings, batches, models::Schedule::rows);
          EXPECT_GT(expected.front(), 0);
          EXPECT_THAT(found, ::testing::Pointwise(::testing::DoubleNear(1e-10), expected));
        }
}

int world_size_here() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Of one data group, and of two.
std::vector<std::array<int, 4>> grids_of_batches() {
  auto grids = grids_4d(world_size_here());
  std::erase_if(grids, [](std::array<int, 4> const& shape) { return shape[0] > 2; });
  return grids;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, RowsOnBatches, ::testing::ValuesIn(grids_of_batches()), GridName());
INSTANTIATE_TEST_SUITE_P(AllGrids, OwnedBlock, ::testing::ValuesIn(grids_3d(world_size_here())), GridName());

/// Bytes that all ranks of a grid that does not exist send in an epoch.
std::int64_t sent_in_an_epoch(pmm::GridShape const& shape, models::NetworkPlan const& plan,
                              models::NetworkSettings const& settings,
                              models::NetworkEpochTraits const& traits) {
  auto sent = std::int64_t{0};
  for (int rank = 0; rank < shape.num_ranks(); ++rank) {
    pmm::StepPlan step(shape, pmm::coordinates_of(shape, rank), sizeof(float));
    plan_epoch(step, plan, settings, traits);
    for (auto const& call : calls_of(step))
      sent += call.sent_bytes;
  }
  return sent;
}

models::NetworkShape three_layers(models::Schedule schedule, std::int64_t n) {
  models::NetworkShape shape;
  shape.num_vertices = n;
  shape.widths = {100, 128, 128, 47};
  shape.schedule = schedule;
  shape.is_symmetric = true;
  return shape;
}

/// The grid of least bytes, with parts of columns at least 16 wide.
std::int64_t least_bytes(int num_ranks, models::Schedule schedule, runtime::Wire wire, std::int64_t n) {
  models::NetworkSettings settings;
  settings.set_layers(3, 128);
  settings.dropout = 0;
  settings.wire = wire;
  auto const plan = models::plan_network(three_layers(schedule, n), models::ProductOrder::automatic);
  models::NetworkEpochTraits traits;
  traits.keeps_first_aggregate = models::keeps_first_aggregate(plan);
  auto least = std::numeric_limits<std::int64_t>::max();
  for (auto const& shape : pmm::all_shapes(num_ranks))
    if (128 / shape.y >= 16 || schedule == models::Schedule::pmm3d)
      least = std::min(least, sent_in_an_epoch(shape, plan, settings, traits));
  return least;
}

/// Plexus (arXiv 2505.04083) with trained features: every layer aggregates first and sends
/// 4 (Ga-1) u + 2 (Gb-1) u' + 2 (Gc-1) u with rotating roles, and its weights, gathered twice and their
/// gradient scattered, 3 (G-1)/G T; the least over all grids.
double plexus_bytes(int num_ranks, std::int64_t n) {
  constexpr std::array<double, 4> widths{100, 128, 128, 47};
  auto least = std::numeric_limits<double>::max();
  for (auto const& shape : pmm::all_shapes(num_ranks)) {
    std::array<double, 3> g{static_cast<double>(shape.x), static_cast<double>(shape.y),
                            static_cast<double>(shape.z)};
    auto words = 0.0;
    for (std::size_t l = 0; l < 3; ++l) {
      auto const [a, b, c] = g;
      auto const u = static_cast<double>(n) * widths[l], next = static_cast<double>(n) * widths[l + 1];
      words += 4 * (a - 1) * u + 2 * (b - 1) * next + 2 * (c - 1) * u;
      words += 3 * (c - 1) * widths[l] * widths[l + 1];
      g = {c, a, b};
    }
    least = std::min(least, 4 * words);
  }
  return least;
}

TEST(RowsSchedule, SendsAFractionOfWhatOtherSchedulesSend) {
  constexpr std::int64_t n = 48980;
  auto const plexus = plexus_bytes(16, n);
  auto const pmm3d = static_cast<double>(least_bytes(16, models::Schedule::pmm3d, runtime::Wire::native, n));
  auto const rows = static_cast<double>(least_bytes(16, models::Schedule::rows, runtime::Wire::native, n));
  auto const rounded = static_cast<double>(least_bytes(16, models::Schedule::rows, runtime::Wire::bf16, n));
  RecordProperty("rows_over_plexus", std::to_string(rows / plexus));
  RecordProperty("rows_over_pmm3d", std::to_string(rows / pmm3d));
  RecordProperty("bf16_over_plexus", std::to_string(rounded / plexus));
  EXPECT_LE(rows / plexus, 0.30);
  EXPECT_LE(rounded / plexus, 0.15);
  EXPECT_LE(rows / pmm3d, 0.50);
}

// Two layers, 64-32-16 wide, on X x Y x Z = 8 x 4 x 32, everything divides, A^ F0 not kept, no bias. u of a
// layer is N w / P numbers, w the narrower side: 32 and 16. Over all ranks a layer sends, in each direction,
// (Gc - 1) P u to gather, (Ga - 1) P u to sum and 2 (Gb - 1)/Gb P u to exchange; layer 0 goes one way only.
TEST(RowsSchedule, SentBytesOf1024RanksAreTheClosedForms) {
  constexpr std::int64_t n = 4096;
  models::NetworkShape network;
  network.num_vertices = n;
  network.widths = {64, 32, 16};
  network.has_input_dropout = true;
  network.schedule = models::Schedule::rows;
  models::NetworkSettings settings;
  settings.has_bias = false;
  auto const plan = models::plan_network(network, models::ProductOrder::transform_first);
  pmm::GridShape const shape{1, 8, 4, 32};

  auto const sent = sent_in_an_epoch(shape, plan, settings, {});

  auto const units = 2 * n * 32 + 2 * n * 16; // both layers transform first, so both go both ways
  auto const activations = (31 + 7) * units + 2 * 3 * units / 4;
  // Both weights, 2,048 and 512 numbers, are padded to 3 per rank, gathered once and their gradients summed
  // once. Two norms; the loss.
  auto const weights = 1023 * 2 * 3 * 1024;
  auto const doubles = 2 * 1023 * (2 + 1);
  EXPECT_EQ(sent, 4 * (activations + weights) + 8 * doubles);
}

} // namespace
} // namespace orthant::testing

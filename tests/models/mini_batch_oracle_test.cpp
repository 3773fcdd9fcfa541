// SPDX-License-Identifier: Apache-2.0
//
// Absolute losses, gradient norms and parameters of mini-batch steps, and the vertices of every batch,
// computed by a NumPy script from their definitions (oracle/oracle.py), repeated on every grid. A step has as
// many batches as its case says: shared out over the data groups, and accumulated.
#include "models/gnn/batches/mini_batch.hpp"
#include "oracle_cases.hpp"
#include "support/grids.hpp"

#include <algorithm>

namespace orthant::testing {
namespace {

std::filesystem::path const oracle_folder = where_sources_lie(ORTHANT_ORACLE_FOLDER);

/// Original ids by key: in order, or those that train before the others.
std::vector<std::int64_t> ids_by_key(graph::GraphStore const& store, bool has_two_strata) {
  auto const n = store.facts().num_vertices;
  auto const ids = store.read_original_ids(graph::Order::p1, {0, n});
  auto const mask = store.read_mask(graph::Split::train, graph::Order::p1, {0, n});
  std::vector<std::pair<bool, std::int64_t>> sorted; // trains not, id
  for (std::size_t i = 0; i < ids.size(); ++i)
    sorted.emplace_back(has_two_strata && mask[i] == 0, ids[i]);
  std::ranges::sort(sorted);
  std::vector<std::int64_t> by_key;
  for (auto const& [is_other, id] : sorted)
    by_key.push_back(id);
  return by_key;
}

class MiniBatchOracle : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  MiniBatchOracle()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  static void expect_batches(nlohmann::json const& figures, graph::GraphStore const& store,
                             sampling::Sampler const& sampler) {
    auto const by_key = ids_by_key(store, figures.contains("train_fraction"));
    auto const per_step = figures.at("batches_per_step").get<std::int64_t>();
    auto step = std::int64_t{0};
    for (auto const& expected : figures.at("steps")) {
      for (std::int64_t b = 0; b < per_step; ++b) {
        sampling::BatchKeys keys;
        sampler.draw(1 + step / sampler.num_steps(), step % sampler.num_steps() * per_step + b, keys);
        std::vector<std::int64_t> vertices;
        for (auto const key : keys.keys)
          vertices.push_back(by_key.at(static_cast<std::size_t>(key)));
        std::ranges::sort(vertices);
        EXPECT_EQ(vertices,
                  expected.at("batches").at(static_cast<std::size_t>(b)).get<std::vector<std::int64_t>>())
            << "step " << step << ", batch " << b;
      }
      ++step;
    }
  }

  void repeat(nlohmann::json const& figures, models::ProductOrder order) {
    SCOPED_TRACE(figures.at("name").get<std::string>());
    auto const num_groups = grid_.size(pmm::Axis::data);
    auto const per_step = figures.at("batches_per_step").get<std::int64_t>();
    if (per_step % num_groups != 0) return; // a step has one batch, or two, and there are more groups
    auto const store = store_of_case(world_, oracle_folder, figures);
    auto model = model_of_case(figures);
    model.order = order;
    auto settings = training_of_case(figures);
    settings.eval_every = 0;
    models::MiniBatchSettings batches;
    batches.batch_size = figures.at("batch_size").get<std::int64_t>();
    batches.num_accumulated = per_step / num_groups;
    if (figures.contains("train_fraction"))
      batches.train_fraction = figures.at("train_fraction").get<double>();
    models::MiniBatchNetwork<double> trainer(grid_, store, model, settings, batches);
    set_formula_parameters(trainer.parameters());
    auto const& expected = figures.at("steps");
    ASSERT_EQ(trainer.sampler().num_steps(), figures.at("steps_per_epoch").get<std::int64_t>());
    auto step = std::size_t{0};

    trainer.run([&](runtime::EpochRecord const& record) {
      for (auto const loss : trainer.step_losses()) {
        EXPECT_NEAR(loss, expected.at(step).at("loss").get<double>(), 1e-10) << "step " << step;
        ++step;
      }
      // The record has the norms of its last step.
      expect_gradient_norms(record.grad_norms, expected.at(step - 1).at("grad_norms"), trainer.parameters(),
                            1e-10);
    });

    EXPECT_EQ(step, expected.size());
    EXPECT_GE(step, 6U);
    expect_parameter_norms(grid_, trainer.parameters(), figures.at("final_norms"), 1e-10);
    expect_batches(figures, store, trainer.sampler());
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(MiniBatchOracle, IsRepeated) {
  for (auto const& figures : oracle_cases(oracle_folder, "mini_batch"))
    repeat(figures, models::ProductOrder::automatic);
}

TEST_P(MiniBatchOracle, IsRepeatedInEveryProductOrder) {
  if (grid_.shape() != pmm::near_cubic(world_.size())) GTEST_SKIP() << "on one grid per number of ranks";
  auto const cases = oracle_cases(oracle_folder, "mini_batch");
  auto const& with_all_parts = cases.at(4);
  ASSERT_EQ(with_all_parts.at("name"), "all_parts_and_dropout");
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    repeat(with_all_parts, order);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, MiniBatchOracle, ::testing::ValuesIn(grids_4d(world_size())), GridName());

} // namespace
} // namespace orthant::testing

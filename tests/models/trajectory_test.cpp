// SPDX-License-Identifier: Apache-2.0
//
// Exact loss trajectories on Cora, computed by PyTorch in float64 from weights made by a formula, repeated on
// every grid.
#include "models_fixture.hpp"
#include "support/grids.hpp"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace orthant::testing {
namespace {

/// W_l[i,j] of the reference file's conventions, in double.
KOKKOS_INLINE_FUNCTION double formula_weight(std::int64_t rows, std::int64_t columns, std::int64_t l,
                                             std::int64_t i, std::int64_t j) {
  auto const k = (31 * i * i + 17 * i * j + 7919 * i + 1009 * j + 104729 * l + 12345) % 100003;
  return std::sqrt(6.0 / static_cast<double>(rows + columns)) *
         (2.0 * static_cast<double>(k) / 100003.0 - 1.0);
}

template<class T>
void set_formula_weights(models::GraphNetwork<T>& model) {
  for (auto const& parameter : model.parameters()) {
    auto const extents = parameter.matrix.extents();
    auto const layer = parameter.layer;
    pmm::fill(
        runtime::DefaultExec(), parameter.matrix, KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
          return static_cast<T>(formula_weight(extents.rows, extents.columns, layer, i, j));
        });
  }
}

struct Reference {
  nlohmann::json cases;
  std::filesystem::path cora;
};

Reference const* reference() {
  static auto const loaded = []() -> std::unique_ptr<Reference> {
    auto const file = reference_folder() / "gcn_cora_trajectory.json";
    if (!std::filesystem::exists(file)) return nullptr;
    return std::make_unique<Reference>(
        Reference{nlohmann::json::parse(std::ifstream(file))["cases"], datasets_folder() / "cora"});
  }();
  return loaded.get();
}

template<class T>
void repeat_case(nlohmann::json const& expected, pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                 models::ProductOrder order, double tolerance) {
  auto const widths = expected["layer_widths"].get<std::vector<std::int64_t>>();
  models::NetworkSettings model_settings;
  model_settings.hidden_widths.assign(widths.begin() + 1, widths.end() - 1);
  model_settings.dropout = 0;
  model_settings.has_bias = false;
  model_settings.feature_norm = models::FeatureNorm::row;
  model_settings.order = order;
  models::TrainSettings settings;
  settings.weight_decay_first_layer = expected["weight_decay_first_layer"].get<double>();
  settings.num_epochs = expected["epochs"].get<std::int64_t>();
  settings.eval_every = 1;

  models::GraphNetwork<T> model(grid, store, model_settings);
  set_formula_weights(model);
  auto loss = models::make_vertex_loss<T>(grid, store, model.plan().logits());
  models::Trainer<T> trainer(grid, model, loss, settings);
  trainer.run([&](runtime::EpochRecord const& record) {
    auto const before = static_cast<std::size_t>(record.epoch) - 1;
    auto const after = before + 1;
    EXPECT_NEAR(record.loss, expected["train_loss"][before].get<double>(), tolerance);
    EXPECT_NEAR(*record.score("val_loss"), expected["valid_loss"][after].get<double>(), tolerance);
    EXPECT_NEAR(*record.score("test_loss"), expected["test_loss"][after].get<double>(), tolerance);
    auto const norms = expected["grad_norms"][before].get<std::vector<double>>();
    ASSERT_EQ(record.grad_norms.size(), norms.size());
    for (std::size_t l = 0; l < norms.size(); ++l)
      EXPECT_NEAR(record.grad_norms[l], norms[l], tolerance * std::max(1.0, norms[l]));
    if constexpr (sizeof(T) == 8) {
      EXPECT_EQ(std::llround(*record.score("train_acc") * 140),
                expected["train_correct"][after].get<long long>());
      EXPECT_EQ(std::llround(*record.score("val_acc") * 500),
                expected["valid_correct"][after].get<long long>());
      EXPECT_EQ(std::llround(*record.score("test_acc") * 1000),
                expected["test_correct"][after].get<long long>());
    }
  });
}

class CoraTrajectory : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  CoraTrajectory() : world_(MPI_COMM_WORLD, "world") {}
  [[nodiscard]] pmm::GridShape shape() const { return {1, GetParam()[0], GetParam()[1], GetParam()[2]}; }
  runtime::Communicator world_;
};

TEST_P(CoraTrajectory, IsRepeatedInFp64) {
  if (reference() == nullptr) GTEST_SKIP() << "no reference data (set ORTHANT_DATA)";
  pmm::ProcessGrid const grid(world_, shape());
  auto const store = store_of_folder(world_, reference()->cora);

  // The case of 100 epochs on one grid a rank count: its first ten epochs are another case's.
  auto const is_first = GetParam() == grids_3d(world_.size()).front();
  for (auto const& expected : reference()->cases)
    if (expected["epochs"].get<std::int64_t>() <= 10 || is_first)
      repeat_case<double>(expected, grid, store, models::ProductOrder::automatic, 1e-9);
}

TEST_P(CoraTrajectory, IsRepeatedInFp32WithEachProductOrder) {
  if (reference() == nullptr) GTEST_SKIP() << "no reference data (set ORTHANT_DATA)";
  pmm::ProcessGrid const grid(world_, shape());
  auto const store = store_of_folder(world_, reference()->cora, graph::PermutationKind::single);

  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    repeat_case<float>(reference()->cases[2], grid, store, order, 1e-5);
}

/// All cases, on one grid a rank count.
TEST(CoraTrajectories, AreRepeatedInFp32) {
  if (reference() == nullptr) GTEST_SKIP() << "no reference data (set ORTHANT_DATA)";
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const [x, y, z] = grids_3d(world.size()).front();
  pmm::ProcessGrid const grid(world, {1, x, y, z});
  auto const store = store_of_folder(world, reference()->cora);

  // Rounding grows with the epochs: the tolerances are those of the reference's README.
  for (auto const& expected : reference()->cases)
    repeat_case<float>(expected, grid, store, models::ProductOrder::automatic,
                       expected["epochs"].get<std::int64_t>() <= 10 ? 1e-5 : 1e-3);
}

int num_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, CoraTrajectory, ::testing::ValuesIn(grids_3d(num_ranks())), GridName());

} // namespace
} // namespace orthant::testing

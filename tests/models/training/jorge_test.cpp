// SPDX-License-Identifier: Apache-2.0
//
// The optimizer Jorge on every grid: ten steps beside those of jorge.py, which has no code in common with it, trainings of transformers
// and graph networks beside one rank, what a step does and holds beside its list, and checkpoints that go on on another grid.
#include "models/lm/checkpointed_training.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/models_fixture.hpp"
#include "models/plan/step_cases.hpp"
#include "support/live_arrays.hpp"
#include "support/scratch_folder.hpp"
#include "support/test_sources.hpp"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace orthant::testing {
namespace {

using models::Parameter, models::ParameterRole, pmm::Axis, pmm::Storage;

/// Values before step 0 (t = -1) and gradients of step t of parameter p.
double formula(std::int64_t row, std::int64_t column, double p, double t) {
  auto const i = static_cast<double>(row);
  auto const j = static_cast<double>(column);
  return std::sin(1 + 0.7 * i + 1.3 * j + 0.37 * i * j + 0.9 * t + 0.3 * p);
}

/// Calls work(number of this rank, row, column) for this rank's numbers.
template<class Work>
void for_each_number(Parameter<double> const& parameter, Work const& work) {
  for_each_box(parameter, [&](auto const& begin, auto const& counts, std::int64_t offset) {
    auto const first_row = begin.size() == 2 ? begin[0] : 0;
    auto const width = counts.back();
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(models::num_elements(counts)); ++k)
      work(static_cast<std::size_t>(offset + k), first_row + k / width, begin.back() + k % width);
  });
}

/// numbers := the formula times `factor`.
void fill(Parameter<double> const& parameter, runtime::Vector<double> const& numbers, std::size_t p, int t,
          double factor = 1) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), numbers);
  for_each_number(parameter, [&](std::size_t k, std::int64_t row, std::int64_t column) {
    host(k) = factor * formula(row, column, static_cast<double>(p), t);
  });
  Kokkos::deep_copy(numbers, host);
}

/// The parameters of jorge.py in different layouts.
std::vector<Parameter<double>> parameters_on(pmm::ProcessGrid const& grid) {
  std::vector<Parameter<double>> all;
  auto const add = [&](char const* name, pmm::Extents const& extents, pmm::Layout const& layout) {
    auto& parameter = all.emplace_back();
    parameter.name = name;
    parameter.matrix = {grid, {layout, extents}, "value"};
    parameter.matrix_gradient = {grid, {layout, extents}, "gradient"};
  };
  add("a", {9, 7}, {Axis::x, Axis::y, Storage::flat_sharded});
  add("b", {5, 13}, {Axis::z, Axis::x, Storage::flat_sharded});
  add("c", {6, 4}, {{}, Axis::y, Storage::replicated});
  auto& bias = all.emplace_back();
  bias.name = "bias";
  bias.role = ParameterRole::bias;
  bias.vector = {grid, Axis::z, 5, "value"};
  bias.vector_gradient = {grid, Axis::z, 5, "gradient"};
  return all;
}

models::TrainSettings settings_of(std::int64_t interval) {
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::jorge;
  settings.optimizer.learning_rate = 0.05;
  settings.optimizer.jorge = {.tile = 7, .interval = interval};
  settings.weight_decay = 0.1;
  settings.clip_norm = 0.5;
  settings.gradient_sum = {1000, false};
  settings.uses_device_graph = false;
  return settings;
}

class JorgeOnGrid : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  JorgeOnGrid()
      : grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}),
        one_(self_, {}) {}

  runtime::Communicator world_{MPI_COMM_WORLD, "world"}, self_{MPI_COMM_SELF, "self"};
  pmm::ProcessGrid grid_, one_;
};

TEST_P(JorgeOnGrid, TakesTheStepsOfTheReference) {
  auto const path = where_sources_lie(ORTHANT_JORGE_FOLDER) / "jorge.json";
  auto const reference = nlohmann::json::parse(std::ifstream(path));
  auto const parameters = parameters_on(grid_);
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::jorge;
  settings.optimizer.learning_rate = 0.1;
  settings.optimizer.jorge = {.tile = 4, .interval = 3};
  settings.weight_decay = 0.05;
  models::ParameterUpdate<double> update(grid_, parameters, settings);
  for (std::size_t p = 0; p < parameters.size(); ++p)
    fill(parameters[p], parameters[p].value(), p, -1);

  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases;
  constexpr auto gradient_scale = 2.0;
  for (int t = 0; t < 10; ++t) {
    for (std::size_t p = 0; p < parameters.size(); ++p)
      fill(parameters[p], parameters[p].gradient(), p, t, gradient_scale);
    update.run(exec, std::nullopt, phases, gradient_scale);
    static_cast<void>(update.finish(exec));
  }

  for (auto const& parameter : parameters) {
    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    auto const expected = reference.at(parameter.name).get<std::vector<double>>();
    auto const num_columns = extents_of(parameter).back();
    for_each_number(parameter, [&](std::size_t k, std::int64_t row, std::int64_t column) {
      EXPECT_NEAR(found(k), expected.at(static_cast<std::size_t>(row * num_columns + column)), 1e-12)
          << parameter.name << ", row " << row << ", column " << column;
    });
  }
}

/// GPT with dropout and a tied head, Llama with a head of its own and parts with padding, and adapters.
std::vector<LmCase> lm_cases() {
  std::vector<LmCase> all(3, small_gpt());
  all[0].settings.dropout = 0.1;
  auto& llama = all[1].settings;
  llama.norm = models::NormKind::rms;
  llama.activation = models::FeedForward::swiglu;
  llama.positions = models::Positions::rotary;
  llama.has_bias = llama.tied_head = false;
  llama.feed_forward = 31;
  all[2].settings.adapters = {.rank = 3, .alpha = 4, .targets = {"q", "v", "up"}};
  return all;
}

std::vector<double> losses_of(pmm::ProcessGrid const& grid, LmCase const& the_case, std::int64_t interval) {
  LmTrainer training(grid, the_case, 10, 2, settings_of(interval));
  training.trainer().run([](auto const&) {});
  return training.trainer().step_losses();
}

TEST_P(JorgeOnGrid, TrainsTransformersAsOneRank) {
  for (auto const& the_case : lm_cases()) {
    if (!fits(the_case, grid_.shape())) continue;
    auto const expected = losses_of(one_, the_case, 3);
    auto const found = losses_of(grid_, the_case, 3);
    for (std::size_t s = 0; s < expected.size(); ++s)
      EXPECT_NEAR(found[s], expected[s], 1e-10 * expected[s]) << "step " << s;
  }
}

TEST_P(JorgeOnGrid, DoesAndHoldsWhatIsListed) {
  for (auto const& the_case : lm_cases()) {
    if (!fits(the_case, grid_.shape())) continue;
    auto const settings = settings_of(1);
    auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                       the_case.num_sequences, the_case.sequence);
    models::SequenceSettings const sequences{.num_accumulated = 2};
    auto list = step_of<double>(grid_);
    plan_language_model_step(list, plan, sequences, settings.optimizer, 1000);
    LiveArrays const live;
    LmTrainer trainer(grid_, the_case, 2, 2, settings);
    models::TrainProgress progress;
    auto const arrays_before = live.by_label();
    trainer.trainer().train_epoch(progress, [](auto const&) { return true; }); // one step
    CountedWork const counted(grid_);
    trainer.trainer().train_epoch(progress, {});

    EXPECT_EQ(counted.passes(), passes_of(list));
    EXPECT_EQ(counted_calls(grid_), planned_calls(calls_of(list)));
    if (world_.size() <= 4) counted.expect_counted_kernels();
    if (!pmm::runs_on_host) continue;
    auto arrays = step_of<double>(grid_);
    plan_language_model_arrays(arrays, plan, sequences, settings.optimizer, 1000);
    auto const planned = live.planned(arrays, {pmm::Lifetime::training, pmm::Lifetime::first_step});
    for (auto const* const label :
         {"tiles", "tiles_at_pieces", "tiles_at_owners", "jorge_momentum", "jorge_direction", "jorge_left",
          "jorge_right", "jorge_scratch", "jorge_squares", "first_moment"}) {
      auto const whole = std::string("orthant::models::") + label;
      auto const of = [&](ArraysByLabel const& all) {
        return all.contains(whole) ? all.at(whole) : std::multiset<std::int64_t>();
      };
      EXPECT_EQ(of(arrays_before), of(planned)) << label;
    }
  }
}

/// An interval of k lists the k-th part of a refresh.
TEST_P(JorgeOnGrid, ListsTheMeanOfItsSteps) {
  auto const the_case = lm_cases()[0];
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  constexpr std::int64_t interval = 3;
  auto const settings = settings_of(interval);
  auto list = step_of<double>(grid_);
  plan_language_model_step(list,
                           plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                            the_case.num_sequences, the_case.sequence),
                           {.num_accumulated = 1}, settings.optimizer, 1000);
  LmTrainer trainer(grid_, the_case, interval, 1, settings);
  models::TrainProgress progress;
  CountedWork const counted(grid_);
  trainer.trainer().train_epoch(progress, {});
  std::int64_t bytes = 0;
  for (auto const& pass : counted.passes())
    bytes += pass.bytes();
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(interval * bytes_of_passes(list)),
              2 * interval);
}

TEST_P(JorgeOnGrid, TrainsGraphNetworksAsOneRank) {
  if (grid_.size(Axis::data) > 1) GTEST_SKIP() << "full-graph training has no data axis";
  constexpr auto graph_text = "sbm:vertices=103,edges=500,features=13,classes=5";
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
    models::NetworkSettings model;
    model.schedule = schedule;
    model.set_layers(3, 9);
    model.norm = models::Norm::rms;
    model.trains_features = true;
    model.dropout = 0.3;
    auto settings = settings_of(3);
    settings.optimizer.learning_rate = 0.01;
    auto const losses_on = [&](runtime::Communicator const& world, pmm::ProcessGrid const& grid) {
      auto const store = store_of_dataset(world, graph_text);
      models::GraphNetwork<double> network(grid, store, model);
      auto loss = models::make_vertex_loss<double>(grid, store, network.plan().logits());
      models::Trainer<double> trainer(grid, network, loss, settings);
      std::vector<double> losses;
      for (std::int64_t epoch = 1; epoch <= 7; ++epoch)
        losses.push_back(trainer.train_epoch(epoch).loss);
      return losses;
    };
    auto const expected = losses_on(self_, one_);
    auto const found = losses_on(world_, grid_);
    for (std::size_t e = 0; e < expected.size(); ++e)
      EXPECT_NEAR(found[e], expected[e], 1e-10 * expected[e])
          << "epoch " << e + 1 << ", " << models::name_of(schedule);
  }
}

TEST_P(JorgeOnGrid, DoesWhatIsListedOfGraphNetworks) {
  if (grid_.size(Axis::data) > 1) GTEST_SKIP() << "full-graph training has no data axis";
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows}) {
    StepCase the_case{std::string(models::name_of(schedule))};
    the_case.settings.schedule = schedule;
    the_case.settings.set_layers(3, 9);
    SCOPED_TRACE(the_case.name);
    expect_listed_epoch<double>(grid_, the_case, settings_of(1).optimizer);
  }
}

TEST_P(JorgeOnGrid, GoesOnUnderAnotherGrid) {
  auto const the_case = lm_cases()[0];
  auto const [data, x, y, z] = GetParam();
  pmm::GridShape const other_shape{.data = z, .x = y, .y = x, .z = data};
  if (!fits(the_case, grid_.shape()) || !fits(the_case, other_shape)) GTEST_SKIP() << "cannot be cut";
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("after-5.h5");
  auto const expected = losses_of(one_, the_case, 3);
  {
    LmTrainer training(grid_, the_case, 10, 2, settings_of(3));
    train_to_checkpoint(world_, grid_, training, 5, path);
  }
  pmm::ProcessGrid const other(world_, other_shape);
  LmTrainer training(other, the_case, 10, 2, settings_of(3));
  auto const losses = train_from_checkpoint(other, training, path);
  ASSERT_EQ(losses.size(), 5U);
  for (std::size_t s = 0; s < losses.size(); ++s)
    EXPECT_NEAR(losses[s], expected[5 + s], 1e-10 * expected[5 + s]) << "step " << s;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, JorgeOnGrid, ::testing::ValuesIn(lm_grids()), GridName());

/// The states of one rank by the closed form: four arrays of a tile, of which two are squares, momentum of vectors, and no others.
TEST(Jorge, HoldsTheStatesOfTheClosedForm) {
  constexpr std::int64_t L = 2, H = 64, V = 512, S = 8, word = sizeof(double);
  auto const plan = plan_transformer({1, 1, 1, 1}, {}, models::gpt2_settings(L, H, 4, V, S), 8, S);
  auto const bytes_of = [&](models::OptimizerKind kind) {
    models::OptimizerSettings optimizer;
    optimizer.kind = kind;
    optimizer.jorge.tile = H;
    pmm::StepPlan step({1, 1, 1, 1}, {}, word);
    plan_language_model_arrays(step, plan, {.sequence = S, .global_batch = 8}, optimizer, 1 << 20);
    return bytes_held(step);
  };
  auto const num_tiles = L * 12 + V / H;        // H x H
  auto const whole = num_tiles * H * H + S * H; // and positions, S x H
  auto const squares = 2 * num_tiles * H * H + S * S + H * H;
  auto const found = bytes_of(models::OptimizerKind::jorge) - bytes_of(models::OptimizerKind::sgd);
  // sgd has a momentum of all numbers. Tiles have a copy of the gradients, and scratch memory of three squares.
  EXPECT_EQ(found, (2 * whole + squares + 3 * H * H) * word + 4 * std::int64_t{sizeof(double)});
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// Optimizer states that are sharded over the batch axes (ZeRO stages 1 and 2), on every grid and expert degree beside one rank: trainings,
// words and memory, and checkpoints that go on under another stage and grid.
#include "models/lm/checkpointed_training.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/plan/step_cases.hpp"
#include "support/live_arrays.hpp"
#include "support/scratch_folder.hpp"

#include <numeric>

namespace orthant::testing {
namespace {

using pmm::Axis, runtime::Operation;

struct NamedCase {
  std::string name;
  LmCase lm;
};

std::vector<NamedCase> cases() {
  std::vector<NamedCase> all{{"gpt with dropout and a tied head", small_gpt()},
                             {"llama with dropout and a head of its own", small_gpt()},
                             {"experts with biases of the router", small_gpt()}};
  all[0].lm.settings.dropout = 0.1;
  for (auto& [name, lm] : all)
    lm.num_sequences = 16;
  auto& llama = all[1].lm.settings;
  llama.norm = models::NormKind::rms;
  llama.activation = models::FeedForward::swiglu;
  llama.positions = models::Positions::rotary;
  llama.has_bias = llama.tied_head = false;
  llama.dropout = 0.1;
  llama.feed_forward = 31; // parts with padding
  auto& experts = all[2].lm.settings;
  experts.experts.num_experts = 8;
  experts.experts.top_k = 2;
  experts.experts.has_biases = true;
  experts.experts.sequence_loss = 0.3;
  for (auto& each : all)
    each.lm.sequence = each.lm.settings.max_sequence = 8; // which two and four ranks along context can share
  return all;
}

models::TrainSettings settings_of(int stage, std::int64_t bucket_bytes, bool starts_early, bool clips) {
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::adamw;
  settings.optimizer.learning_rate = 0.003;
  settings.optimizer.zero_stage = stage;
  settings.weight_decay = 0.1;
  if (clips) settings.clip_norm = 0.5;
  settings.gradient_sum = {bucket_bytes, starts_early};
  return settings;
}

LmTraining train(pmm::ProcessGrid const& grid, LmCase const& the_case, models::TrainSettings const& settings,
                 std::int64_t num_accumulated) {
  LmTrainer training(grid, the_case, 10, num_accumulated, settings);
  return run_to_the_end(training);
}

/// data, expert, x, y, z, context.
class ShardedStates : public ::testing::TestWithParam<std::array<int, 6>> {
 protected:
  ShardedStates()
      : grid_(world_, {.data = GetParam()[0],
                       .x = GetParam()[2],
                       .y = GetParam()[3],
                       .z = GetParam()[4],
                       .expert = GetParam()[1],
                       .context = GetParam()[5]}),
        one_(self_, {}) {}
  [[nodiscard]] bool can_train(LmCase const& the_case) const {
    auto const num_owners = grid_.size(Axis::expert);
    auto const context = grid_.size(Axis::context);
    auto const can_share = context == 1 || (the_case.sequence % (2 * context) == 0 &&
                                            the_case.settings.experts.sequence_loss == 0);
    return fits(the_case, grid_.shape()) && can_share &&
           (num_owners == 1 || (the_case.settings.experts.is_on() && 8 % num_owners == 0));
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"}, self_{MPI_COMM_SELF, "self"};
  pmm::ProcessGrid grid_, one_;
};

TEST_P(ShardedStates, TrainAsOneRank) {
  for (auto const& [name, the_case] : cases()) {
    if (!can_train(the_case)) continue;
    SCOPED_TRACE(name);
    auto const expected = train(one_, the_case, settings_of(0, 1000, false, true), 2);
    for (int const stage : {1, 2})
      for (std::int64_t const bucket_bytes : {1000, 1 << 20}) {
        auto const starts_early = bucket_bytes == 1000;
        SCOPED_TRACE(::testing::Message() << "stage " << stage << ", buckets of " << bucket_bytes);
        auto const found = train(grid_, the_case, settings_of(stage, bucket_bytes, starts_early, true), 2);
        for (std::size_t s = 0; s < expected.losses.size(); ++s)
          EXPECT_NEAR(found.losses[s], expected.losses[s], 1e-10 * expected.losses[s]) << "step " << s;
        for (std::size_t p = 0; p < expected.norms.size(); ++p)
          EXPECT_NEAR(found.norms[p], expected.norms[p], 1e-9 * expected.norms[p]) << p;
        // Adam divides gradients that are zero but for rounding by its epsilon, such as that of a key's bias.
        for (std::size_t p = 0; p < expected.parameters.size(); ++p)
          for (std::size_t k = 0; k < expected.parameters[p].numbers.size(); ++k)
            EXPECT_NEAR(found.parameters[p].numbers[k], expected.parameters[p].numbers[k], 1e-8)
                << p << ", " << k;
      }
  }
}

// a + b is b + a. Stage 2 sums the groups of a batch before the batches. A factor of clipping would follow from norms in another order.
TEST_P(ShardedStates, OfTwoGroupsTrainAsWholeOnesToTheBit) {
  if (grid_.size(pmm::batch_axes(grid_.shape())) != 2) GTEST_SKIP() << "equal to rounding";
  for (auto const& [name, the_case] : cases()) {
    if (!can_train(the_case)) continue;
    SCOPED_TRACE(name);
    for (auto const& [stage, num_accumulated] : {std::pair(1, 1), {1, 2}, {2, 1}}) {
      auto const found = train(grid_, the_case, settings_of(stage, 1000, false, false), num_accumulated);
      auto const expected = train(grid_, the_case, settings_of(0, 1000, false, false), num_accumulated);
      EXPECT_EQ(found.losses, expected.losses);
      for (std::size_t p = 0; p < expected.parameters.size(); ++p)
        EXPECT_EQ(found.parameters[p].numbers, expected.parameters[p].numbers) << p;
    }
  }
}

// The second step must do what is listed, and the trainer must hold what is listed.
TEST_P(ShardedStates, DoAndHoldWhatIsListed) {
  for (auto const& [name, the_case] : cases())
    for (int const stage : {1, 2})
      for (std::int64_t const num_accumulated : {1, 2}) {
        if (!can_train(the_case)) continue;
        SCOPED_TRACE(::testing::Message()
                     << name << ", stage " << stage << ", accumulated " << num_accumulated);
        auto const settings = settings_of(stage, 1000, num_accumulated == 2, true);
        auto plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                     the_case.num_sequences, the_case.sequence);
        LiveArrays const live;
        LmTrainer trainer(grid_, the_case, 2, num_accumulated, settings);
        models::TrainProgress progress;
        auto const arrays_before = live.by_label();
        trainer.trainer().train_epoch(progress, [](auto const&) { return true; }); // one step
        CountedWork const counted(grid_);
        trainer.trainer().train_epoch(progress, {});

        auto list = step_of<double>(grid_);
        // Batches of experts vary, and expert_transformer_test.cpp compares them with their list.
        if (the_case.settings.experts.is_on() && num_accumulated == 1)
          plan.experts.loads = trainer.network().dispatch_sizes();
        models::SequenceSettings const sequences{.num_accumulated = num_accumulated};
        plan_language_model_step(list, plan, sequences, settings.optimizer, 1000);
        if (!the_case.settings.experts.is_on()) {
          EXPECT_EQ(counted.passes(), passes_of(list));
        }
        if (!the_case.settings.experts.is_on() || num_accumulated == 1) {
          EXPECT_EQ(counted_calls(grid_), planned_calls(calls_of(list)));
        }
        if (world_.size() <= 4) counted.expect_counted_kernels();

        if (!pmm::runs_on_host) continue;
        auto arrays = step_of<double>(grid_);
        plan_language_model_arrays(arrays, plan, sequences, settings.optimizer, 1000);
        auto const planned = live.planned(arrays, {pmm::Lifetime::training, pmm::Lifetime::first_step});
        for (auto const* const label : {"owned_gradients", "gradient_buckets", "received_gradients",
                                        "first_moment", "second_moment", "gradient_sum"}) {
          auto const whole = std::string("orthant::models::") + label;
          auto const of = [&](ArraysByLabel const& all) {
            return all.contains(whole) ? all.at(whole) : std::multiset<std::int64_t>();
          };
          EXPECT_EQ(of(arrays_before), of(planned)) << label;
        }
      }
}

/// The names of a checkpoint are those of whole arrays, so another stage and grid continue from it.
TEST_P(ShardedStates, ContinueUnderAnotherStageAndGrid) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const shape = grid_.shape();
  pmm::GridShape const other_shape{
      .data = shape.z, .x = shape.x, .y = shape.y, .z = shape.data * shape.expert * shape.context};
  pmm::ProcessGrid const other(world_, other_shape);
  auto const the_case = cases()[2].lm;
  if (!can_train(the_case) || !fits(the_case, other_shape)) GTEST_SKIP() << "cannot be cut";
  auto const of_stage = [](int stage) { return settings_of(stage, 1000, false, true); };
  auto const expected = train(one_, the_case, of_stage(0), 1).losses;
  auto const path = folder.file("after-5.h5");
  {
    LmTrainer training(grid_, the_case, 10, 1, of_stage(1));
    train_to_checkpoint(world_, grid_, training, 5, path);
  }
  auto const continue_on = [&](pmm::ProcessGrid const& grid, int stage) {
    SCOPED_TRACE(grid.shape().to_string() + ", stage " + std::to_string(stage));
    LmTrainer training(grid, the_case, 10, 1, of_stage(stage));
    auto const losses = train_from_checkpoint(grid, training, path);
    EXPECT_EQ(losses.size(), 5U);
    for (std::size_t s = 0; s < losses.size(); ++s)
      EXPECT_NEAR(losses[s], expected[5 + s], 1e-10 * expected[5 + s]) << "step " << s;
  };
  for (int const stage : {0, 1, 2})
    for (pmm::ProcessGrid const* const grid : {static_cast<pmm::ProcessGrid const*>(&grid_), &other})
      continue_on(*grid, stage);
}

std::vector<std::array<int, 6>> sharding_grids() {
  std::vector<std::array<int, 6>> all;
  for (auto const& [data, x, y, z] : grids_4d(world_size()))
    for (int inner = 1; inner <= data; ++inner) {
      if (data % inner != 0 || data == 1 || 8 % inner != 0) continue;
      all.push_back({data / inner, inner, x, y, z, 1});
      if (inner > 1) all.push_back({data / inner, 1, x, y, z, inner});
    }
  return all;
}
INSTANTIATE_TEST_SUITE_P(AllGrids, ShardedStates, ::testing::ValuesIn(sharding_grids()), GridName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ShardedStates);

/// Words of rank 0 along the data axis.
std::int64_t words(pmm::StepPlan const& step, Operation operation) {
  std::int64_t sum = 0;
  for (auto const& call : calls_of(step))
    if (call.axis == "data" && call.operation == operation) sum += call.bytes / std::int64_t{sizeof(double)};
  return sum;
}
std::int64_t bytes_of(pmm::StepPlan const& step, std::string_view label) {
  std::int64_t sum = 0;
  for (auto const& array : step.arrays())
    if (array.label == "orthant::models::" + std::string(label)) sum += array.bytes;
  return sum;
}

// With P matrix elements per rank, D data groups, K batches per step, and buckets of B elements: P words are scattered (K P at stage 2) and
// P gathered, where an all_reduce sends the same twice. V elements of vectors and positions have whole states.
TEST(ShardedStatesOfAGrid, HaveTheWordsAndTheMemoryOfTheClosedForms) {
  constexpr std::int64_t S = 8, K = 4, word = sizeof(double);
  struct Size {
    std::int64_t layers, hidden, vocabulary;
  };
  for (auto const& [L, H, V] : {Size{2, 64, 512}, Size{4, 128, 2048}, Size{3, 256, 1024}})
    for (auto const& shape : {pmm::GridShape{2, 1, 1, 1}, {4, 1, 1, 2}, {8, 2, 1, 1}, {4, 2, 2, 2}})
      for (int const stage : {0, 1, 2}) {
        SCOPED_TRACE(::testing::Message()
                     << L << " x " << H << ", " << shape.to_string() << ", stage " << stage);
        auto const settings = models::gpt2_settings(L, H, 4, V, S);
        auto const plan = plan_transformer(shape, {}, settings, 64, S);
        models::OptimizerSettings optimizer;
        optimizer.kind = models::OptimizerKind::adamw;
        optimizer.zero_stage = stage;
        models::SequenceSettings const sequences{.sequence = S, .global_batch = 64 * K, .num_accumulated = K};
        constexpr std::int64_t B = 16384;
        pmm::StepPlan step(shape, {}, word), arrays(shape, {}, word);
        plan_language_model_step(step, plan, sequences, optimizer, B * word);
        plan_language_model_arrays(arrays, plan, sequences, optimizer, B * word);

        auto const D = std::int64_t{shape.data};
        auto const P = (L * 12 * H * H + V * H) / (shape.x * shape.y * shape.z);
        auto const vectors = S * H / shape.y + 2 * (2 * L + 1) * H / shape.y + L * (3 * H + 4 * H) / shape.x +
                             L * 2 * H / shape.y;
        EXPECT_EQ(words(step, Operation::all_reduce), (stage == 0 ? P : 0) + vectors + 2);
        EXPECT_EQ(words(step, Operation::reduce_scatter), stage == 0 ? 0 : stage == 1 ? P : K * P);
        EXPECT_EQ(words(step, Operation::all_gather), stage == 0 ? 0 : P);
        auto const states = bytes_of(arrays, "first_moment") + bytes_of(arrays, "second_moment");
        EXPECT_EQ(states, 2 * word * ((stage == 0 ? P : P / D) + vectors));
        EXPECT_EQ(bytes_of(arrays, "gradient_sum"), word * ((stage == 0 ? P : 0) + vectors));
        EXPECT_EQ(bytes_of(arrays, "owned_gradients"), stage == 0 ? 0 : word * P / D);
        auto const slots = stage == 0 ? 0 : stage == 1 ? P : 2 * D * std::min(B / D, P / D / 8);
        EXPECT_EQ(bytes_of(arrays, "gradient_buckets"), word * slots);
        EXPECT_EQ(bytes_of(arrays, "received_gradients"), stage == 2 ? word * slots / D : 0);
      }
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// What pruned training does and holds, beside its lists and closed forms, and checkpoints that go on on another grid.
#include "models/lm/pruned_cases.hpp"
#include "support/live_arrays.hpp"
#include "support/scratch_folder.hpp"

namespace orthant::testing {
namespace {

using PrunedStates = PrunedTraining;

/// Words that were summed over the axes of batches.
std::int64_t summed_words(CallTotals const& calls) {
  std::int64_t words = 0;
  for (auto const& [call, totals] : calls)
    if (call.second == runtime::Operation::all_reduce && call.first.find("data") != std::string::npos)
      words += totals[1] / std::int64_t{sizeof(double)};
  return words;
}

/// Bytes read and written by all passes of a name: each matrix keeps another share, of which only the mean is planned.
std::map<std::string, std::array<std::int64_t, 2>>
bytes_by_name(std::vector<runtime::LocalPass> const& passes) {
  std::map<std::string, std::array<std::int64_t, 2>> all;
  for (auto const& pass : passes) {
    auto& [num_read, num_written] = all[std::string(pass.name)];
    num_read += pass.bytes_read;
    num_written += pass.bytes_written;
  }
  return all;
}

std::multiset<std::int64_t> of(ArraysByLabel const& all, std::string const& label) {
  auto const found = all.find("orthant::models::" + label);
  return found == all.end() ? std::multiset<std::int64_t>() : found->second;
}
std::int64_t sum_of(std::multiset<std::int64_t> const& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}
std::int64_t total(ArraysByLabel const& all) {
  std::int64_t sum = 0;
  for (auto const& [label, bytes] : all)
    sum += sum_of(bytes);
  return sum;
}

TEST_P(PrunedStates, DoesAndHoldsWhatIsListed) {
  for (auto const& [name, the_case] : pruned_cases())
    for (std::int64_t const num_accumulated : {1, 2}) {
      if (!can_train(the_case) || the_case.settings.experts.is_on() || grid_.size(Axis::pipe) > 1) continue;
      SCOPED_TRACE(::testing::Message() << name << ", accumulated " << num_accumulated);
      auto const settings = settings_of({0.8, 0}, OptimizerKind::adamw, 1.0);
      auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                         the_case.num_sequences, the_case.sequence);
      models::SequenceSettings const sequences{.num_accumulated = num_accumulated};
      auto list = step_of<double>(grid_);
      plan_language_model_step(list, plan, sequences, settings.optimizer, 1000);
      LmTrainer trainer(grid_, the_case, 2, num_accumulated, settings);
      models::TrainProgress progress;
      trainer.trainer().train_epoch(progress, [](auto const&) { return true; }); // one step
      CountedWork const counted(grid_);
      trainer.trainer().train_epoch(progress, {});
      if (world_.size() <= 4) counted.expect_counted_kernels();

      // Kept entries and all other gradients are summed, with the loss and its count.
      std::int64_t num_summed = 2;
      for (auto const& parameter : trainer.network().parameters()) {
        auto const values = host_copy(parameter.value());
        auto const length = static_cast<std::ptrdiff_t>(values.extent(0));
        num_summed +=
            parameter.is_prunable ? length - std::count(values.data(), values.data() + length, 0.0) : length;
      }
      auto const expected = num_batch_ranks() == 1 ? 0 : num_summed;
      EXPECT_EQ(summed_words(counted_calls(grid_)), expected);
      if (!has_all_weights()) continue;
      EXPECT_EQ(counted_calls(grid_), planned_calls(calls_of(list)));
      EXPECT_EQ(bytes_by_name(counted.passes()), bytes_by_name(passes_of(list)));
    }
}

// With N prunable elements, L layers and f N kept: the dense gradients of one layer, and f N gradients, places, and moments of each kind.
TEST_P(PrunedStates, HasTheMemoryOfTheFormula) {
  struct Size {
    std::int64_t layers, hidden, vocabulary;
  };
  constexpr double share = 0.8;
  if (!pmm::runs_on_host || grid_.size({Axis::expert, Axis::pipe}) > 1) GTEST_SKIP() << "of hosts and stages";
  for (auto const& [L, H, V] : {Size{2, 64, 300}, Size{4, 96, 100}, Size{3, 128, 500}}) {
    SCOPED_TRACE(::testing::Message() << L << " x " << H);
    LmCase the_case{models::gpt2_settings(L, H, 4, V, 8), 4, 8};
    if (!can_train(the_case)) continue;
    auto const settings = settings_of({share, 0});
    auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                       the_case.num_sequences, the_case.sequence);
    auto arrays = step_of<double>(grid_);
    plan_language_model_arrays(arrays, plan, {}, settings.optimizer, 1000);
    LiveArrays const live;
    LmTrainer trainer(grid_, the_case, 1, 1, settings);
    trainer.trainer().train_epoch(1);
    auto const found = live.by_label();
    auto const planned = live.planned(arrays, {pmm::Lifetime::training, pmm::Lifetime::first_step});
    EXPECT_NEAR(static_cast<double>(total(found)), static_cast<double>(total(planned)),
                0.05 * static_cast<double>(total(planned)));

    auto const N = static_cast<double>(L * 12 * H * H) / grid_.group().size();
    auto const f = 1 - share;
    std::int64_t of_gradients = 0, num_others = 0; // elements of parameters that are not pruned
    for (auto const* const name : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"})
      of_gradients += sum_of(of(found, std::string(name) + ".weight/gradient"));
    for (auto const& parameter : trainer.network().parameters())
      if (!parameter.is_prunable) num_others += static_cast<std::int64_t>(parameter.value().extent(0));
    auto const of_others = static_cast<double>(num_others) * sizeof(double);
    auto const near = [](std::int64_t bytes, double expected) {
      EXPECT_NEAR(static_cast<double>(bytes), expected, 0.05 * expected);
    };
    near(of_gradients, 8 * N / static_cast<double>(L));
    near(sum_of(of(found, "kept_places")), 4 * f * N);
    near(sum_of(of(found, "gradient_sum")), 8 * f * N + (num_batch_ranks() > 1 ? of_others : 0));
    for (auto const* const moment : {"first_moment", "second_moment"})
      near(sum_of(of(found, moment)), 8 * f * N + of_others);
  }
}

TEST_P(PrunedStates, ContinuesFromCheckpointsAlsoOnAnotherGrid) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const shape = grid_.shape();
  pmm::GridShape const other_shape{
      .data = shape.z, .x = shape.x, .y = shape.y, .z = shape.data * shape.expert * shape.pipe};
  pmm::ProcessGrid const other(world_, other_shape);
  for (auto const& [name, the_case] : pruned_cases()) {
    if (!can_train(the_case) || !can_train(the_case, other_shape)) continue;
    auto const settings = settings_of({0.8, 3}, OptimizerKind::adamw, 0.5);
    auto const expected = train(one_, the_case, settings, 1).losses;
    for (int const num_done : {2, 3, 5}) { // before the weights are pruned, at that time, and after
      SCOPED_TRACE(::testing::Message() << name << ", after " << num_done);
      auto const path = folder.file("after-" + std::to_string(num_done) + ".h5");
      LmTrainer training(grid_, the_case, 8, 1, settings);
      auto const progress = train_to_checkpoint(world_, grid_, training, num_done, path);
      training.trainer().run([](auto const&) {}, progress);
      LmTrainer again(grid_, the_case, 8, 1, settings), elsewhere(other, the_case, 8, 1, settings);
      EXPECT_EQ(train_from_checkpoint(grid_, again, path), training.trainer().step_losses());
      auto const losses = train_from_checkpoint(other, elsewhere, path);
      ASSERT_EQ(losses.size(), 8U - static_cast<std::size_t>(num_done));
      for (std::size_t s = 0; s < losses.size(); ++s)
        EXPECT_NEAR(losses[s], expected[s + static_cast<std::size_t>(num_done)], 1e-10 * losses[s]) << s;
      if (world_.is_root()) std::filesystem::remove(path);
      ORTHANT_MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, PrunedStates, ::testing::ValuesIn(pruning_grids()), GridName());

} // namespace
} // namespace orthant::testing

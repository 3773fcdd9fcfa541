// SPDX-License-Identifier: Apache-2.0
//
// Memory of experts that are chosen unevenly, beside what the list of arrays says: from the loads of the run, and from an imbalance alone.
#include "models/lm/formula_batches.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "support/live_arrays.hpp"

#include <numeric>

namespace orthant::testing {
namespace {

constexpr std::int64_t num_experts = 4;

/// Wide experts and many tokens: most memory is that of rows that arrive.
LmCase skewed_case(double noise, bool keeps) {
  auto the_case = small_gpt();
  auto& settings = the_case.settings;
  settings.num_layers = 3;
  settings.feed_forward = 64;
  settings.experts.num_experts = num_experts;
  settings.experts.noise = noise;
  settings.checkpoint_every = keeps ? 1 : 0;
  settings.keeps_collectives = keeps;
  the_case.num_sequences = 128;
  return the_case;
}

/// Logits of expert e that grow with e by the first number of a row, beside which noise decides: without it, all choose the first or the last
/// expert, with much of it each as often.
void skew_routers(std::vector<models::Parameter<double>>& parameters) {
  for (auto const& parameter : parameters) {
    if (!parameter.name.ends_with("router.weight")) continue;
    auto const host = host_copy(parameter.value());
    for_each_element(parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) {
      host(place) = i == 0 ? static_cast<double>(j) : 0.0;
    });
    Kokkos::deep_copy(parameter.value(), host);
  }
}

std::int64_t sum_of(ArraysByLabel const& arrays) {
  std::int64_t sum = 0;
  for (auto const& [label, sizes] : arrays)
    sum = std::accumulate(sizes.begin(), sizes.end(), sum);
  return sum;
}

TEST(ExpertMemory, IsPredictedAtEveryImbalance) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "lists of devices lack some arrays";
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  if (num_experts % world.size() != 0) GTEST_SKIP() << num_experts << " experts";
  pmm::ProcessGrid const grid(world, {.expert = world.size()});
  auto least = 9.0, most = 0.0;
  for (auto const keeps : {false, true})
    for (auto const noise : {100.0, 4.0, 2.0, 1.0, 0.5, 0.0}) {
      SCOPED_TRACE(::testing::Message() << "noise " << noise << ", keeps " << keeps);
      auto const the_case = skewed_case(noise, keeps);
      auto plan = plan_transformer(grid.shape(), grid.coordinates(), the_case.settings,
                                   the_case.num_sequences, the_case.sequence);
      models::OptimizerSettings optimizer;
      models::TrainSettings settings;
      settings.optimizer = optimizer;
      LiveArrays const live;
      LmTrainer training(grid, the_case, 6, 1, settings);
      skew_routers(training.network().parameters());
      auto imbalance = 0.0; // the largest of all steps, as memory is
      models::TrainProgress progress;
      training.trainer().train_epoch(progress, [&](auto const&) {
        for (auto const& load : training.network().expert_loads())
          imbalance = std::max(imbalance, load.imbalance());
        return false; // go on
      });
      auto found = live.by_label();
      found.erase("orthant::testing::device_copy");
      auto const num_found = runtime::all_reduced(world, sum_of(found), runtime::Reduction::max);

      auto const predicted = [&] {
        auto arrays = step_of<double>(grid);
        plan_language_model_arrays(arrays, plan, {the_case.sequence, the_case.num_sequences, 1, 0},
                                   optimizer);
        return runtime::all_reduced(world, bytes_held(arrays), runtime::Reduction::max);
      };
      plan.experts.loads = training.network().largest_dispatch_sizes();
      auto const by_loads = predicted();
      EXPECT_NEAR(static_cast<double>(num_found), static_cast<double>(by_loads),
                  0.1 * static_cast<double>(by_loads));
      plan.experts.loads.clear();
      plan.experts.settings.planned_imbalance = imbalance;
      auto const by_imbalance = predicted();
      // The worst case: all layers in all steps are that full, and with several experts per rank all of them.
      EXPECT_LE(static_cast<double>(num_found), 1.1 * static_cast<double>(by_imbalance));
      if (world.size() == num_experts) {
        EXPECT_GE(static_cast<double>(num_found), 0.8 * static_cast<double>(by_imbalance));
      }
      least = std::min(least, imbalance);
      most = std::max(most, imbalance);
    }
  EXPECT_LT(least, 1.3);
  EXPECT_EQ(most, 4.0);
}

TEST(ExpertMemory, AssumesTheMiddleOfWhatIsPossible) {
  auto const assumed = [](models::ExpertSettings const& settings, int num_owners, bool is_training = false) {
    models::ExpertPlan plan;
    plan.settings = settings;
    plan.axes.owners = pmm::Axis::expert;
    auto const of_memory = plan_for_memory(plan, {.expert = num_owners});
    return assumed_imbalance(of_memory.settings, num_owners, is_training);
  };
  models::ExpertSettings settings;
  settings.num_experts = 8;
  EXPECT_EQ(assumed(settings, 1), 1.0);
  EXPECT_EQ(assumed(settings, 4), 2.5);
  EXPECT_EQ(assumed(settings, 8), 4.5);
  // On eight ranks each has one expert: one of the four choices of a token at most, where the mean is a half.
  settings.top_k = 4;
  EXPECT_EQ(assumed(settings, 8), 1.5);
  settings.top_k = 8;
  EXPECT_EQ(assumed(settings, 8), 1.0);
  settings.top_k = 1;
  settings.capacity = 1.25;
  EXPECT_EQ(assumed(settings, 4, true), 1.25);
  EXPECT_EQ(assumed(settings, 4, false), 2.5);
  settings.planned_imbalance = 3;
  EXPECT_EQ(assumed(settings, 4), 3.0);
  EXPECT_EQ(assumed(settings, 2), 2.0);
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// An update works in place. DeepSpeed-TED (arXiv 2303.06318) updates experts in tiles of 1.8M parameters, because
// there an update copies all gradients to another format: 4 bytes per parameter of a rank. Here it copies none.
#include "models/lm/transformer/transformer.hpp"
#include "models/plan/counted_memory.hpp"
#include "models/training/parameter_update.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

/// 8 experts of 2 x 128 x 512 numbers in each of 2 layers, half of them per rank along the expert axis.
models::TransformerSettings model_with_experts() {
  auto settings = models::gpt2_settings(2, 128, 4, 64, 8);
  settings.experts.num_experts = 8;
  return settings;
}

TEST(ParameterUpdate, TakesNoMemoryForWhatItUpdates) {
  if (!pmm::runs_on_host) GTEST_SKIP() << "arrays in the memory of a device are not counted";
  count_kokkos_arrays();
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  pmm::ProcessGrid const grid(world, {.expert = world.size()});
  models::Transformer<float> network(grid, model_with_experts(), 8, 8, 1);
  std::int64_t parameter_bytes = 0;
  for (auto const& parameter : network.parameters())
    parameter_bytes += static_cast<std::int64_t>(parameter.value().extent(0) * sizeof(float));
  ASSERT_GT(parameter_bytes, 2 << 20);
  for (auto const kind : {models::OptimizerKind::adam, models::OptimizerKind::adamw,
                          models::OptimizerKind::sgd, models::OptimizerKind::lion}) {
    models::TrainSettings settings;
    settings.optimizer.kind = kind;
    settings.weight_decay = 0.1;
    settings.clip_norm = 1;
    auto const without = live_bytes();
    models::ParameterUpdate<float> update(grid, network.parameters(), settings);
    auto const is_adam = kind == models::OptimizerKind::adam || kind == models::OptimizerKind::adamw;
    auto const num_moments = is_adam ? 2 : 1;
    EXPECT_GE(live_bytes() - without, num_moments * parameter_bytes);
    runtime::DefaultExec const exec;
    runtime::PhaseTimes phases;
    for (int step = 0; step < 2; ++step) {
      auto const before = live_bytes();
      restart_peak();
      update.run(exec, std::nullopt, phases);
      static_cast<void>(update.finish(exec));
      // Norms and messages of a number per parameter.
      constexpr std::int64_t few_bytes = 64 << 10;
      EXPECT_LE(peak_bytes() - before, few_bytes) << "step " << step << " of " << parameter_bytes << " bytes";
    }
  }
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// Training on batches that kernels make gives the losses of batches that the host makes, for every model of the tests of steps that
// multiplies by A~ and has dense features; the others are refused.
#include "mini_batch_fixture.hpp"
#include "models/plan/step_cases.hpp"
#include "support/user_messages.hpp"

namespace orthant::testing {
namespace {

using models::BatchPlace;
using models::SamplerKind;
using sampling::BatchEdges;

bool fits_kernels(StepCase const& the_case, graph::GraphStore const& store, int num_ranks) {
  auto const& settings = the_case.settings;
  auto const traits = models::traits_of(settings.model, settings.aggregator);
  auto const plan = models::plan_network(store, settings);
  auto const& first = plan.layers.front();
  auto const has_sparse_features =
      store.facts().feature_kind == graph::FeatureKind::sparse && !settings.trains_features;
  return !traits.attention && !traits.takes_maximum && !traits.has_relations && !has_sparse_features &&
         (!first.owners || settings.gather != pmm::Gather::needed || num_ranks == 1);
}

class DeviceBatches : public MiniBatch {};

TEST_P(DeviceBatches, TrainLikeBatchesOfTheHost) {
  int num_fitting = 0, num_refused = 0;
  for (auto const& the_case : step_cases()) {
    SCOPED_TRACE(the_case.name);
    auto const& settings = the_case.settings;
    if (settings.wire != runtime::Wire::native || settings.operand_format != runtime::Wire::native) continue;
    auto const store = the_case.store(world_);
    auto const n = store.facts().num_vertices;
    auto batches = small_batches();
    batches.batch_size = n / 2 / grid_.size(pmm::Axis::data);
    if (batches.batch_size < 8) continue;
    auto const number = num_fitting + num_refused;
    batches.kind = number % 2 == 0 ? SamplerKind::uniform : SamplerKind::degree;
    if (number % 3 == 0 && store.facts().normalization != graph::Normalization::none)
      batches.edges = BatchEdges::renormalize;
    batches.num_accumulated = number % 4 == 3 ? 2 : 1;
    auto training = short_training(2);
    training.loss = the_case.loss();
    batches.place = BatchPlace::device;
    if (!fits_kernels(the_case, store, grid_.group().size())) {
      ++num_refused;
      auto const message = test::message_of(
          [&] { models::MiniBatchNetwork<double>(grid_, store, settings, training, batches); });
      EXPECT_NE(message.find("--batch-source host"), std::string::npos) << message;
      continue;
    }
    ++num_fitting;
    auto const found = train_in_batches(grid_, store, settings, training, batches);
    batches.place = BatchPlace::host;
    expect_equal(found, train_in_batches(grid_, store, settings, training, batches));
  }
  EXPECT_GE(num_fitting, 20);
  EXPECT_GE(num_refused, 10);
}

INSTANTIATE_TEST_SUITE_P(Grids, DeviceBatches, ::testing::ValuesIn(batch_grids(world_size())), GridName{});

} // namespace
} // namespace orthant::testing

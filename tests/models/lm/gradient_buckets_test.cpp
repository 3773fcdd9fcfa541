// SPDX-License-Identifier: Apache-2.0
//
// Gradients of transformers that are summed over data groups while the backward pass goes on: the same bits, and when
// each call is made.
#include "models/lm/formula_batches.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "models/plan/step_cases.hpp"
#include "runtime/comm/backend.hpp"

#include <set>

namespace orthant::testing {
namespace {

using models::GradientSumSettings, runtime::Operation, runtime::detail::Mode;

/// A call, and the flops of dense products before it.
struct RecordedCall {
  std::string axis;
  Operation operation;
  Mode mode;
  std::int64_t flops;
};

/// Records the calls of a communicator, and leaves them to others.
class CallRecorder final : public runtime::detail::Backend {
 public:
  CallRecorder(runtime::Communicator const& comm, std::vector<RecordedCall>& calls)
      : comm_(comm),
        calls_(calls) {}
  bool takes(runtime::detail::Call const& call, Mode mode) const override {
    calls_.push_back({comm_.axis(), call.operation, mode, comm_.instruments().flops.dense});
    return false;
  }
  bool is_ordered_by_stream() const override { return false; }
  std::unique_ptr<runtime::detail::Exchange> begin(runtime::Communicator const&, runtime::detail::Call const&,
                                                   Mode) override {
    return nullptr;
  }

 private:
  runtime::Communicator const& comm_;
  std::vector<RecordedCall>& calls_;
};

struct BucketCase {
  std::string name;
  LmCase model;
  std::int64_t num_accumulated = 1;
};

std::vector<BucketCase> bucket_cases() {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  std::vector<BucketCase> all{{"gpt", small_gpt()},
                              {"accumulated", lm_case(reference.at("llama_dropout")), 2},
                              {"head of its own", lm_case(reference.at("rms_untied")), 2},
                              {"checkpointing", small_gpt(), 2}};
  all.back().model.settings.num_layers = 3;
  all.back().model.settings.checkpoint_every = 1;
  return all;
}

class GradientBuckets : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  GradientBuckets()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  [[nodiscard]] LmTrainer trainer_of(BucketCase const& the_case, GradientSumSettings const& sums) const {
    models::TrainSettings settings;
    settings.optimizer.kind = models::OptimizerKind::adamw;
    settings.clip_norm = 0.5;
    settings.gradient_sum = sums;
    return {grid_, the_case.model, num_steps, the_case.num_accumulated, settings};
  }
  /// Parameters and losses after all steps.
  [[nodiscard]] std::vector<std::vector<double>> trained(BucketCase const& the_case,
                                                         GradientSumSettings const& sums) const {
    auto training = trainer_of(the_case, sums);
    training.trainer().run([](auto const&) {});
    std::vector<std::vector<double>> result{training.trainer().step_losses()};
    for (auto const& parameter : training.network().parameters()) {
      auto const numbers = host_copy(parameter.value());
      result.emplace_back(numbers.data(), numbers.data() + numbers.extent(0));
    }
    return result;
  }
  /// The calls of the second step.
  [[nodiscard]] std::vector<RecordedCall> calls_of_step(BucketCase const& the_case,
                                                        GradientSumSettings const& sums) {
    auto training = trainer_of(the_case, sums);
    models::TrainProgress progress;
    training.trainer().train_epoch(progress, [](auto const&) { return true; });
    auto const before = world_.instruments().flops.dense;
    for (auto const& [axes, comm] : grid_.communicators())
      if (recorded_.insert(&comm).second) comm.use_backend(std::make_unique<CallRecorder>(comm, calls_));
    calls_.clear();
    training.trainer().train_epoch(progress, [](auto const&) { return true; });
    auto calls = calls_;
    for (auto& call : calls)
      call.flops -= before;
    return calls;
  }

  static constexpr std::int64_t num_steps = 2;
  std::vector<RecordedCall> calls_;
  std::set<runtime::Communicator const*> recorded_;
  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

// With more groups, an all_reduce may add them in an order that follows from the size of the message.
TEST_P(GradientBuckets, OfAnySizeGiveTheSameBits) {
  if (grid_.size(pmm::Axis::data) > 2)
    GTEST_SKIP() << "equal to rounding: models/batches/gradient_sum_test.cpp";
  for (auto const& the_case : bucket_cases()) {
    if (!fits(the_case.model, grid_.shape())) continue;
    SCOPED_TRACE(the_case.name);
    auto const expected = trained(the_case, {});
    for (std::int64_t const bytes : {1000, 10000})
      for (bool const starts_early : {false, true}) {
        SCOPED_TRACE(::testing::Message() << bytes << " bytes, early: " << starts_early);
        EXPECT_EQ(trained(the_case, {bytes, starts_early}), expected);
      }
  }
}

// A weight's gradient is known to be complete half a block after its product. A head of its own is complete before the
// first block; the embedding, biases, norms and positions when the pass ends. With 2 products per weight in a backward
// pass, and one in a forward pass, the flops before each call say when it is made.
TEST_P(GradientBuckets, AreSummedAsSoonAsTheyAreComplete) {
  constexpr std::int64_t bucket_bytes = 1000;
  for (auto const& the_case : bucket_cases()) {
    auto const& settings = the_case.model.settings;
    if (grid_.size(pmm::Axis::data) == 1 || settings.checkpoint_every > 0 ||
        !fits(the_case.model, grid_.shape()))
      continue;
    SCOPED_TRACE(the_case.name);
    auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), settings,
                                       the_case.model.num_sequences, the_case.model.sequence);
    auto list = step_of<double>(grid_);
    for (std::int64_t k = 0; k < the_case.num_accumulated; ++k) {
      plan_transformer_forward(list, plan);
      plan_transformer_backward(list, plan);
    }
    std::vector<std::int64_t> flops{0};
    for (auto const& product : products_of(list))
      flops.push_back(flops.back() + product.flops());
    auto const parameters = parameters_of(grid_.shape(), grid_.coordinates(), plan);
    auto const order = gradient_order_of(parameters);
    auto const lengths = lengths_of(list, parameters);
    // Half a block has two weights and four products of a backward pass.
    auto const num_halves = static_cast<std::size_t>(2 * settings.num_layers);
    auto const first_of_blocks = std::size_t{settings.tied_head ? 0U : 1U};
    std::vector<std::int64_t> expected;
    std::int64_t num_complete = 0, num_started = 0;
    std::size_t next = 0;
    for (std::size_t half = 1; half <= num_halves; ++half) {
      for (; next < first_of_blocks + 2 * (half - 1); ++next)
        num_complete += lengths[order[next]];
      for (; (num_started + 1) * bucket_bytes <= num_complete * std::int64_t{sizeof(double)}; ++num_started)
        expected.push_back(flops[flops.size() - 1 - 4 * (num_halves - half)]);
    }

    auto const calls = calls_of_step(the_case, {bucket_bytes, true});

    std::vector<std::int64_t> found;
    for (auto const& call : calls)
      if (call.axis == "data" && call.mode == Mode::asynchronous) {
        EXPECT_EQ(call.operation, Operation::all_reduce);
        found.push_back(call.flops);
      }
    EXPECT_EQ(found, expected);
    EXPECT_GT(found.size(), 0U);
  }
}

// All other calls are the same, and sums that wait are made behind the last product.
TEST_P(GradientBuckets, OnlyMoveTheCallsAlongData) {
  for (auto const& the_case : bucket_cases()) {
    if (!fits(the_case.model, grid_.shape())) continue;
    SCOPED_TRACE(the_case.name);
    auto const early = calls_of_step(the_case, {1000, true});
    auto const late = calls_of_step(the_case, {1000, false});
    auto const others = [](std::vector<RecordedCall> const& calls) {
      std::vector<std::tuple<std::string, Operation, std::int64_t>> all;
      for (auto const& call : calls)
        if (call.axis != "data") all.emplace_back(call.axis, call.operation, call.flops);
      return all;
    };
    auto const num_along_data = [](std::vector<RecordedCall> const& calls) {
      return std::ranges::count_if(calls, [](auto const& call) { return call.axis == "data"; });
    };

    EXPECT_EQ(others(early), others(late));
    EXPECT_EQ(num_along_data(early), num_along_data(late));
    for (auto const& call : late)
      if (call.axis == "data") {
        EXPECT_EQ(call.flops, late.back().flops);
        EXPECT_EQ(call.mode, Mode::blocking);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, GradientBuckets, ::testing::ValuesIn(lm_grids()), GridName());

} // namespace
} // namespace orthant::testing

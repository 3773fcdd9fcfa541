// SPDX-License-Identifier: Apache-2.0
//
// What a step of a transformer communicates, multiplies, passes over and holds, beside its list; and the list beside the
// closed forms of AxoNN's placement.

#include "models/lm/listed_step.hpp"

namespace orthant::testing {
namespace {

using models::PlannedTransformerParameter, runtime::Operation;

/// A step on a grid.
class ListedStep {
 protected:
  explicit ListedStep(pmm::GridShape const& shape) : world_(MPI_COMM_WORLD, "world"), grid_(world_, shape) {}

  void expect_listed_step(LmCase const& the_case, std::int64_t num_accumulated,
                          models::GradientSumSettings const& sums) {
    testing::expect_listed_step(grid_, the_case, num_accumulated, sums);
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

class LmStep : public ListedStep, public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  LmStep() : ListedStep({GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}
};

/// X, Y, Z and stages, of which there are 2 to 6.
std::vector<std::array<int, 4>> pipelines() {
  std::vector<std::array<int, 4>> all;
  for (auto const& shape : grids_4d(world_size()))
    if (shape[3] > 1 && shape[3] <= 6) all.push_back(shape);
  if (all.empty()) all.push_back({1, world_size(), 1, 1});
  return all;
}

TEST_P(LmStep, DoesWhatIsListed) {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const* const name :
       {"gpt", "llama_dropout", "uneven", "rotary_biased", "multi_query", "head_norms", "joint_norms"}) {
    SCOPED_TRACE(name);
    auto the_case = lm_case(reference.at(name));
    the_case.settings.masks_documents = name == std::string("llama_dropout") || name == std::string("uneven");
    if (!fits(the_case, grid_.shape())) continue;
    for (auto const& sums : {models::GradientSumSettings{}, {1000, true}})
      expect_listed_step(the_case, name == std::string("gpt") ? 1 : 2, sums);
  }
}

TEST_P(LmStep, WithEncodedMessagesDoesWhatIsListed) {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const* const name : {"gpt", "llama_dropout", "uneven"})
    for (auto const wire : {runtime::Wire::bf16, runtime::Wire::int8}) {
      SCOPED_TRACE(name);
      auto the_case = lm_case(reference.at(name));
      the_case.settings.wire = wire;
      if (!fits(the_case, grid_.shape())) continue;
      testing::expect_listed_step<float>(grid_, the_case, 2);
      the_case.settings.checkpoint_every = 1;
      testing::expect_listed_step<float>(grid_, the_case, 1);
    }
}

TEST_P(LmStep, WithFrozenWeightsDoesWhatIsListed) {
  auto the_case = small_gpt();
  the_case.settings.frozen = {"wte.weight", "h.*.bias", "h.0.attn.*"};
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  for (auto const& sums : {models::GradientSumSettings{}, {1000, true}})
    expect_listed_step(the_case, 2, sums);
}

TEST_P(LmStep, WithAdaptersDoesWhatIsListed) {
  for (auto const* const name : {"gpt", "llama"}) {
    SCOPED_TRACE(name);
    auto the_case = lm_case(lm_reference(ORTHANT_LM_REFERENCE_FOLDER).at(name));
    the_case.settings.adapters = {2, 16, {"q", "v", "o", "up"}};
    if (!fits(the_case, grid_.shape())) continue;
    expect_listed_step(the_case, 2, {});
  }
}

// Every division of the ranks into stages, with the grids of a stage.
class LmStepInPipeline : public ListedStep, public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  LmStepInPipeline()
      : ListedStep({.x = GetParam()[0], .y = GetParam()[1], .z = GetParam()[2], .pipe = GetParam()[3]}) {}
};

TEST_P(LmStepInPipeline, DoesWhatIsListed) {
  auto const reference = lm_reference(ORTHANT_LM_REFERENCE_FOLDER);
  for (auto const* const name : {"gpt", "llama_dropout"})
    for (std::int64_t const checkpoint_every : {-1, 0, 1, 2}) // -1: backward passes are split
      for (std::int64_t const num_accumulated : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << name << ", every " << checkpoint_every);
        auto the_case = lm_case(reference.at(name));
        the_case.settings.num_layers = 6;
        the_case.settings.checkpoint_every = std::max<std::int64_t>(0, checkpoint_every);
        the_case.settings.splits_backward = checkpoint_every < 0;
        the_case.settings.recomputed.norms = checkpoint_every < 0 && num_accumulated == 3;
        the_case.settings.masks_documents = name == std::string("llama_dropout");
        if (!fits(the_case, grid_.shape())) continue;
        expect_listed_step(the_case, num_accumulated, {});
      }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, LmStepInPipeline, ::testing::ValuesIn(pipelines()), GridName());

INSTANTIATE_TEST_SUITE_P(AllGrids, LmStep, ::testing::ValuesIn(lm_grids()), GridName());

/// Calls and words of rank 0 along an axis.
struct CallsAndWords {
  std::int64_t calls = 0, words = 0;
  friend bool operator==(CallsAndWords const&, CallsAndWords const&) = default;
};
std::ostream& operator<<(std::ostream& out, CallsAndWords const& of) {
  return out << of.calls << " calls of " << of.words << " words";
}

CallsAndWords along(pmm::StepPlan const& step, std::string_view axis, runtime::Operation operation) {
  CallsAndWords sum;
  for (auto const& call : calls_of(step))
    if (call.axis == axis && call.operation == operation) {
      ++sum.calls;
      sum.words += call.bytes / std::int64_t{sizeof(double)};
    }
  return sum;
}

/// A pass forward, the loss with its count, and a pass back; and over data the sums of a step.
pmm::StepPlan pass_of_small_gpt(pmm::GridShape const& shape,
                                std::int64_t bucket_bytes = models::default_bucket_bytes) {
  auto const the_case = small_gpt();
  pmm::StepPlan step(shape, {}, sizeof(double));
  auto const plan = plan_transformer(shape, {}, the_case.settings, the_case.num_sequences, the_case.sequence);
  plan_language_model_step(step, plan, {}, {}, bucket_bytes);
  return step;
}

// With G_a the ranks along an axis, m = 48 / (G_z G_data) tokens of a rank, L layers of width H, F in between, V
// tokens: words and calls as docs/transformers.md has them.
TEST(LmStepOfAGrid, CommunicatesTheClosedForms) {
  constexpr std::int64_t L = 2, H = 16, F = 32, V = 24, S = 6;
  constexpr auto weights = L * (4 * H * H + 2 * H * F);
  for (auto const& shape : {pmm::GridShape{1, 1, 1, 1},
                            {1, 1, 2, 1},
                            {1, 2, 1, 1},
                            {1, 1, 1, 2},
                            {2, 1, 1, 1},
                            {1, 2, 2, 1},
                            {1, 2, 2, 2},
                            {2, 2, 2, 2},
                            {1, 2, 4, 1},
                            {1, 4, 1, 2},
                            {1, 4, 2, 2}}) {
    SCOPED_TRACE(shape.to_string());
    auto const step = pass_of_small_gpt(shape);
    auto const [x, y, z, data] = std::array<std::int64_t, 4>{shape.x, shape.y, shape.z, shape.data};
    auto const m = 48 / (z * data);
    auto const if_split = [](std::int64_t size, CallsAndWords const& of) {
      return size == 1 ? CallsAndWords{} : of;
    };
    auto const vectors = S * H / y + 2 * (2 * L + 1) * H / y + L * (3 * H + F) / x + L * 2 * H / y;
    auto const pieces = (weights + V * H) / (x * y * z);

    EXPECT_EQ(along(step, "y", Operation::all_reduce),
              if_split(y, {8 * L + 3, 4 * m * (2 * L + 1) + L * m / x * (4 * H + 2 * F) + m * V / x}));
    EXPECT_EQ(along(step, "x", Operation::all_reduce),
              if_split(x, {4 * L + 4, L * m / y * 4 * H + 2 * m * H / y + 3 * m}));
    EXPECT_EQ(along(step, "z", Operation::all_gather),
              if_split(z, {8 * L + 1, (2 * weights + V * H) / (x * y)}));
    EXPECT_EQ(along(step, "z", Operation::reduce_scatter),
              if_split(z, {4 * L + 1, (weights + V * H) / (x * y)}));
    EXPECT_EQ(along(step, "z", Operation::all_reduce), if_split(z, {2, vectors + 2}));
    EXPECT_EQ(along(step, "data", Operation::all_reduce), if_split(data, {2, pieces + vectors + 2}));
    constexpr std::int64_t words_of_bucket = 100;
    auto const num_buckets = (pieces + vectors + words_of_bucket - 1) / words_of_bucket;
    EXPECT_EQ(along(pass_of_small_gpt(shape, 8 * words_of_bucket), "data", Operation::all_reduce),
              if_split(data, {num_buckets + 1, pieces + vectors + 2}));
  }
}

// r ranks along x share a key-value head: the broadcast and the sum of 2 m head_dim words in each layer.
TEST(LmStepOfAGrid, SendsSharedKeysAndValuesTwiceInALayer) {
  auto the_case = small_gpt();
  auto const expect = [&](pmm::GridShape const& shape, std::int64_t num_kv_heads, std::string const& run) {
    SCOPED_TRACE(shape.to_string() + ", key-value heads " + std::to_string(num_kv_heads));
    the_case.settings.num_kv_heads = num_kv_heads;
    pmm::StepPlan step(shape, {}, sizeof(double));
    auto const plan =
        plan_transformer(shape, {}, the_case.settings, the_case.num_sequences, the_case.sequence);
    plan_transformer_forward(step, plan, true);
    plan_transformer_backward(step, plan);
    constexpr std::int64_t L = 2, head_dim = 4;
    auto const m = 48 / (shape.z * shape.data);
    EXPECT_EQ(along(step, run, Operation::broadcast), (CallsAndWords{L, L * 2 * m * head_dim}));
    if (run != "x") {
      EXPECT_EQ(along(step, run, Operation::all_reduce), (CallsAndWords{L, L * 2 * m * head_dim}));
    }
  };
  expect({1, 4, 1, 1}, 2, "x/2");
  expect({1, 4, 2, 2}, 2, "x/2");
  expect({1, 4, 1, 1}, 1, "x");
  expect({1, 2, 1, 2}, 1, "x");
}

// The figures of the specification's prototype, in words: along y, along x, gathers and reduce_scatters along z, and the
// small sums over z (and data).
TEST(LmStepOfAGrid, CommunicatesTheWordsOfThePrototype) {
  auto const words = [](pmm::GridShape const& shape, std::string_view axis, Operation operation) {
    return along(pass_of_small_gpt(shape), axis, operation).words;
  };
  auto const reduce = Operation::all_reduce;
  EXPECT_EQ(words({1, 1, 2, 1}, "y", reduce), 14400);
  EXPECT_EQ(words({1, 2, 1, 1}, "x", reduce), 7824);
  EXPECT_EQ(words({1, 1, 1, 2}, "z", Operation::all_gather), 8576);
  EXPECT_EQ(words({1, 1, 1, 2}, "z", Operation::reduce_scatter), 4480);
  EXPECT_EQ(words({1, 1, 1, 2}, "z", reduce), 482);
  EXPECT_EQ(words({2, 1, 1, 1}, "data", reduce), 4480 + 482);
  EXPECT_EQ(words({1, 2, 2, 2}, "y", reduce), 3840);
  EXPECT_EQ(words({1, 2, 2, 2}, "x", reduce), 1992);
  EXPECT_EQ(words({1, 2, 2, 2}, "z", Operation::all_gather), 2144);
  EXPECT_EQ(words({1, 2, 2, 2}, "z", Operation::reduce_scatter), 1120);
  EXPECT_EQ(words({1, 2, 2, 2}, "z", reduce), 242);
  EXPECT_EQ(words({2, 2, 2, 2}, "y", reduce), 1920);
  EXPECT_EQ(words({2, 2, 2, 2}, "x", reduce), 996);
  EXPECT_EQ(words({2, 2, 2, 2}, "data", reduce), 560 + 242);
  EXPECT_EQ(words({1, 2, 4, 1}, "y", reduce), 7680);
  EXPECT_EQ(words({1, 2, 4, 1}, "x", reduce), 2064);
}

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// Pipelines: the division of blocks, the order of passes, and trainings beside those on one rank and on the grid of a stage, with every other
// axis and with sharded states.
#include "models/lm/plan/pipeline_plan.hpp"

#include "models/lm/formula_batches.hpp"
#include "runtime/comm/backend.hpp"
#include "support/user_messages.hpp"

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>

namespace orthant::testing {
namespace {

using models::PassAction;

std::vector<std::int64_t> num_layers_of(models::TransformerSettings const& settings, int num_stages) {
  std::vector<std::int64_t> counts;
  std::int64_t next = 0;
  for (auto const& layers : models::deal_layers(settings, 6, num_stages)) {
    EXPECT_EQ(layers.begin, next);
    next = layers.end;
    counts.push_back(layers.size());
  }
  EXPECT_EQ(next, settings.num_layers);
  return counts;
}

TEST(DealLayers, GivesTheStageWithTheMostWorkAsLittleAsPossible) {
  using Counts = std::vector<std::int64_t>;
  // A block has 4 H^2 + 2 H F + 2 S H = 2240 multiplications per token, the head V H.
  auto settings = small_gpt().settings;
  settings.num_layers = 8;
  EXPECT_EQ(num_layers_of(settings, 1), (Counts{8}));
  EXPECT_EQ(num_layers_of(settings, 4), (Counts{2, 2, 2, 2})); // a small head
  settings.vocabulary = 280;                                   // as much as two blocks
  EXPECT_EQ(num_layers_of(settings, 2), (Counts{5, 3}));
  EXPECT_EQ(num_layers_of(settings, 4), (Counts{2, 2, 3, 1}));
  EXPECT_EQ(num_layers_of(settings, 8), (Counts{1, 1, 1, 1, 1, 1, 1, 1}));
  settings.num_layers = 3;
  EXPECT_EQ(test::message_of([&] { static_cast<void>(models::deal_layers(settings, 6, 4)); }),
            "--pipeline 4 has more stages than the model has layers: give at most 3");
}

/// Seconds of the parts of a pass on every stage.
struct PassSeconds {
  double forward = 1, input_backward = 1, backward = 1;
};

/// A step in which each pass begins as soon as its stage and its message are ready.
struct TimedStep {
  double seconds = 0;
  std::vector<std::int64_t> most_in_flight; // of each stage
};

TimedStep time_step(std::vector<std::vector<PassAction>> const& order, std::int64_t num_passes,
                    PassSeconds const& of) {
  using Kind = PassAction::Kind;
  auto const stages = order.size();
  auto const never = -1.0;
  std::vector const unknown(stages, std::vector(static_cast<std::size_t>(num_passes), never));
  auto ends_forward = unknown, ends_backward = unknown;
  auto const splits =
      std::ranges::any_of(order.back(), [](auto const& a) { return a.kind == Kind::input_backward; });
  std::vector<std::size_t> next(stages, 0);
  std::vector<double> clock(stages, 0);
  std::vector<std::int64_t> in_flight(stages, 0);
  std::map<std::pair<std::size_t, Kind>, std::int64_t> last;
  TimedStep step{0, std::vector<std::int64_t>(stages, 0)};
  std::size_t num_done = 0;
  for (auto moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < stages; ++s) {
      if (next[s] == order[s].size()) continue;
      auto const [kind, k] = order[s][next[s]];
      auto const pass = static_cast<std::size_t>(k);
      auto const passes_on = kind == (splits ? Kind::input_backward : Kind::backward);
      auto const ready = kind == Kind::forward ? (s == 0 ? 0.0 : ends_forward[s - 1][pass])
                         : passes_on ? (s + 1 == stages ? ends_forward[s][pass] : ends_backward[s + 1][pass])
                                     : ends_backward[s][pass];
      if (ready == never) continue;
      EXPECT_EQ(k, last.try_emplace({s, kind}, -1).first->second + 1) << "out of order";
      last[{s, kind}] = k;
      clock[s] = std::max(clock[s], ready) + (kind == Kind::forward          ? of.forward
                                              : kind == Kind::input_backward ? of.input_backward
                                                                             : of.backward);
      if (kind == Kind::forward) ends_forward[s][pass] = clock[s];
      if (passes_on) ends_backward[s][pass] = clock[s];
      in_flight[s] += kind == Kind::forward ? 1 : kind == Kind::backward ? -1 : 0;
      step.most_in_flight[s] = std::max(step.most_in_flight[s], in_flight[s]);
      ++next[s];
      ++num_done;
      moved = true;
    }
  }
  EXPECT_EQ(num_done, (splits ? 3 : 2) * stages * static_cast<std::size_t>(num_passes))
      << "some passes wait for ever";
  step.seconds = std::ranges::max(clock);
  return step;
}

std::vector<std::vector<PassAction>> orders(int num_stages, std::int64_t num_passes, bool splits) {
  std::vector<std::vector<PassAction>> order;
  for (int s = 0; s < num_stages; ++s)
    order.push_back(splits ? models::schedule_zero_bubble(s, num_stages, num_passes)
                           : models::schedule_1f1b(s, num_stages, num_passes));
  return order;
}

TEST(Schedules, KeepFewPassesAndWaitForAShareOfThem) {
  for (int num_stages = 1; num_stages <= 8; ++num_stages)
    for (std::int64_t num_passes = 1; num_passes <= 17; ++num_passes) {
      SCOPED_TRACE(::testing::Message() << num_stages << " stages, " << num_passes << " passes");
      auto const P = static_cast<double>(num_stages), K = static_cast<double>(num_passes);
      auto const one = time_step(orders(num_stages, num_passes, false), num_passes, {1, 0, 2});
      auto const split = time_step(orders(num_stages, num_passes, true), num_passes, {1, 1, 1});
      EXPECT_EQ(one.seconds, 3 * (K + P - 1));
      EXPECT_EQ(split.seconds, 3 * K + 2 * (P - 1) - std::min(P, K) + 1); // F + B = 2
      EXPECT_LE(split.seconds, one.seconds);
      for (int s = 0; s < num_stages; ++s) {
        EXPECT_EQ(one.most_in_flight[static_cast<std::size_t>(s)],
                  std::min<std::int64_t>(num_stages - s, num_passes));
        EXPECT_LE(split.most_in_flight[static_cast<std::size_t>(s)],
                  std::min<std::int64_t>(num_stages, num_passes));
      }
    }
}

constexpr std::int64_t num_steps = 10;

LmCase case_of(std::string_view name) {
  LmCase the_case;
  the_case.num_sequences = 4;
  the_case.sequence = 8; // which two and four ranks along context can share
  the_case.settings = name.starts_with("gpt") ? models::gpt2_settings(5, 16, 4, 24, the_case.sequence)
                                              : models::llama_settings(4, 16, 4, 2, 24, the_case.sequence);
  the_case.settings.feed_forward = 32;
  the_case.settings.tied_head = name.ends_with("_tied");
  the_case.settings.dropout = 0.1;
  the_case.settings.masks_documents = name.starts_with("llama");
  the_case.settings.checkpoint_every = name.starts_with("llama") ? 1 : 0;
  if (name.starts_with("gpt")) the_case.settings.recomputed = {true, true, true};
  return the_case;
}

template<class Prepare>
LmTraining train(pmm::ProcessGrid const& grid, LmCase const& the_case, std::int64_t num_accumulated,
                 int zero_stage, std::int64_t steps, Prepare const& prepare) {
  models::TrainSettings settings;
  settings.optimizer.zero_stage = zero_stage;
  settings.optimizer.kind = models::OptimizerKind::adamw;
  settings.optimizer.learning_rate = 0.003;
  settings.optimizer.epsilon = 1e-6;
  settings.weight_decay = 0.1;
  settings.clip_norm = 0.5;
  LmTrainer trainer(grid, the_case, steps, num_accumulated, settings);
  prepare(grid);
  return run_to_the_end(trainer);
}
LmTraining train(pmm::ProcessGrid const& grid, LmCase const& the_case, std::int64_t num_accumulated,
                 int zero_stage) {
  return train(grid, the_case, num_accumulated, zero_stage, num_steps, [](auto const&) {});
}

/// The training with whole states on the first ranks of the job, on all ranks.
LmTraining train_on_first(runtime::Communicator const& world, pmm::GridShape const& shape,
                          LmCase const& the_case, std::int64_t num_accumulated) {
  auto const takes_part = world.rank() < shape.num_ranks();
  auto const part = world.split(takes_part ? 0 : 1, world.rank(), "part");
  LmTraining result;
  if (takes_part) {
    pmm::ProcessGrid const grid(part, shape);
    result = train(grid, the_case, num_accumulated, 0);
  } else { // the shapes of the results
    runtime::Communicator const self(MPI_COMM_SELF, "self");
    pmm::ProcessGrid const one(self, {});
    models::Transformer<double> network(one, the_case.settings, the_case.num_sequences, the_case.sequence, 0);
    result.losses.resize(num_steps);
    for (auto const& parameter : network.parameters()) {
      auto const extents =
          parameter.is_vector() ? pmm::Extents{1, parameter.vector.length()} : parameter.matrix.extents();
      result.names.push_back(parameter.name);
      result.parameters.emplace_back(extents.rows, extents.columns);
    }
  }
  runtime::broadcast(runtime::host, world, result.losses, 0);
  for (auto& parameter : result.parameters)
    runtime::broadcast(runtime::host, world, parameter.numbers, 0);
  return result;
}

void expect_equal(LmTraining const& found, LmTraining const& expected, double tolerance) {
  EXPECT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t s = 0; s < found.losses.size(); ++s)
    EXPECT_LE(std::abs(found.losses[s] - expected.losses[s]), tolerance * expected.losses[s]) << "step " << s;
  for (std::size_t p = 0; p < found.names.size(); ++p) {
    auto error = 0.0;
    for (std::size_t k = 0; k < expected.parameters[p].numbers.size(); ++k)
      error = std::max(error, std::abs(found.parameters[p].numbers[k] - expected.parameters[p].numbers[k]));
    EXPECT_LE(error, tolerance * std::max(1.0, norm_of(expected.parameters[p]))) << found.names[p];
  }
}

struct Case {
  pmm::GridShape shape;
  std::string name;
  std::int64_t num_accumulated = 1;
  int zero_stage = 0;
  bool splits_backward = false;
  bool exchanges_heads = false;

  [[nodiscard]] bool is_possible() const {
    auto const num_groups = case_of(name).settings.num_kv_heads;
    if (exchanges_heads && (shape.context == 1 || num_groups % (shape.x * shape.context) != 0)) return false;
    auto const num_batches = shape.data * shape.context;
    auto const shares_table = name.ends_with("_tied") && shape.pipe > 1; // whose states cannot be sharded
    return fits(case_of(name), shape) && (zero_stage == 0 || (num_batches > 1 && !shares_table)) &&
           (shape.pipe > 1 || !splits_backward);
  }
  /// Its choices, each one a number that no other choice has.
  [[nodiscard]] std::vector<int> choices() const {
    std::vector<int> all{shape.pipe,
                         shape.context,
                         shape.data,
                         shape.x,
                         shape.y,
                         shape.z,
                         zero_stage,
                         static_cast<int>(name.size()),
                         splits_backward,
                         exchanges_heads,
                         static_cast<int>(num_accumulated)};
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] += 100 * static_cast<int>(i);
    return all;
  }
};

/// All cases of this number of ranks.
std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (int pipe = 1; pipe <= std::min(4, world_size()); ++pipe)
    for (int const context : {1, 2, 4}) {
      if (world_size() % (pipe * context) != 0) continue;
      for (auto const& [data, x, y, z] : grids_4d(world_size() / (pipe * context)))
        for (auto const* const name : {"gpt", "llama", "gpt_tied", "llama_tied"})
          for (std::int64_t const num_accumulated : {4, 1, 16, 3})
            for (int const zero_stage : {0, 1, 2})
              for (bool const splits : {false, true})
                for (bool const exchanges_heads : {false, true}) {
                  Case const next{{.data = data, .x = x, .y = y, .z = z, .pipe = pipe, .context = context},
                                  name,
                                  num_accumulated,
                                  zero_stage,
                                  splits,
                                  exchanges_heads};
                  if (next.is_possible()) all.push_back(next);
                }
    }
  return all;
}

/// At most `most` of them, each the one with the most pairs of choices that none before it has.
std::vector<Case> covering_cases(std::size_t most) {
  auto const all = all_cases();
  std::vector<Case> taken;
  std::set<std::pair<int, int>> covered;
  auto const pairs_of = [](Case const& one) {
    std::vector<std::pair<int, int>> pairs;
    auto const choices = one.choices();
    for (std::size_t i = 0; i < choices.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        pairs.emplace_back(choices[j], choices[i]);
    return pairs;
  };
  while (taken.size() < most) {
    auto const num_new = [&](Case const& one) {
      return std::ranges::count_if(pairs_of(one), [&](auto const& pair) { return !covered.contains(pair); });
    };
    auto const best = std::ranges::max_element(all, {}, num_new);
    if (best == all.end() || num_new(*best) == 0) break;
    taken.push_back(*best);
    for (auto const& pair : pairs_of(*best))
      covered.insert(pair);
  }
  return taken;
}

std::vector<Case> const& cases() {
  static auto const covering = covering_cases(12);
  return covering;
}

class Pipeline : public ::testing::TestWithParam<std::size_t> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
};

TEST_P(Pipeline, TrainsAsOneRankAndToTheBitAsTheGridOfAStage) {
  auto const& [shape, name, num_accumulated, zero_stage, splits, exchanges_heads] = cases()[GetParam()];
  SCOPED_TRACE(::testing::Message() << name << " on " << shape.to_string() << ", passes " << num_accumulated
                                    << ", ZeRO stage " << zero_stage << (splits ? ", split" : "")
                                    << (exchanges_heads ? ", heads exchanged" : ""));
  auto the_case = case_of(name);
  the_case.settings.context_exchange =
      exchanges_heads ? models::ContextExchange::heads : models::ContextExchange::key_values;
  auto piped = the_case;
  piped.settings.splits_backward = splits;
  if (splits) piped.settings.checkpoint_every = 0;
  pmm::ProcessGrid const grid(world_, shape);

  auto const found = train(grid, piped, num_accumulated, zero_stage);

  EXPECT_GT(std::abs(found.losses.back() - found.losses.front()), 1e-3) << "nothing is trained";
  expect_equal(found, train_on_first(world_, {}, the_case, num_accumulated), 1e-10);
  if (shape.pipe == 1) return;
  auto of_stage = shape;
  of_stage.pipe = 1;
  auto const unpiped = train_on_first(world_, of_stage, the_case, num_accumulated);
  // A tied head adds the gradients of embedding and head in another order, and sharded states the norm's terms. With more than two ranks, MPI
  // may sum an element in an order that depends on its place in a message.
  auto const has_long_axis = std::max({shape.data * shape.context, shape.x, shape.y, shape.z}) > 2;
  if (the_case.settings.tied_head || zero_stage > 0 || has_long_axis)
    expect_equal(found, unpiped, 1e-12);
  else
    expect_equal(found, unpiped, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, Pipeline, ::testing::Range(std::size_t{0}, cases().size()));

/// Sleeps before each message or collective of a communicator, and leaves it to other backends.
class Delays final : public runtime::detail::Backend {
 public:
  explicit Delays(unsigned seed) : random_(seed) {}
  [[nodiscard]] bool takes(runtime::detail::Call const& /*call*/,
                           runtime::detail::Mode /*mode*/) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(length_(random_)));
    return false;
  }
  [[nodiscard]] bool is_ordered_by_stream() const override { return false; }
  [[nodiscard]] std::unique_ptr<runtime::detail::Exchange> begin(runtime::Communicator const& /*comm*/,
                                                                 runtime::detail::Call const& /*call*/,
                                                                 runtime::detail::Mode /*mode*/) override {
    return nullptr;
  }

 private:
  static constexpr int longest_microseconds = 50'000;
  mutable std::mt19937 random_;
  mutable std::uniform_int_distribution<int> length_{0, longest_microseconds};
};

// ORTHANT_PIPELINE_RUNS sets the number of runs.
TEST(PipelineWithDelays, EndsWithTheSameResult) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  auto const num_stages = std::min(world.size(), 4);
  if (world.size() % num_stages != 0) GTEST_SKIP() << "no equal stages";
  pmm::ProcessGrid const grid(world, {.y = world.size() / num_stages, .pipe = num_stages});
  auto the_case = case_of("gpt_tied");
  auto const* const runs = std::getenv("ORTHANT_PIPELINE_RUNS");
  auto const num_runs = runs != nullptr ? std::stoi(runs) : num_stages == 4 ? 20 : 2;
  constexpr std::int64_t num_accumulated = 6;
  auto const run = [&](auto const& prepare) { return train(grid, the_case, num_accumulated, 0, 1, prepare); };
  auto const expected = run([](auto const&) {});
  auto seed = static_cast<unsigned>(world.rank());
  for (int r = 0; r < num_runs; ++r) {
    the_case.settings.splits_backward = r % 2 == 1;
    pmm::ProcessGrid const delayed(world, grid.shape());
    auto const found = train(delayed, the_case, num_accumulated, 0, 1, [&](pmm::ProcessGrid const& with) {
      with.over(pmm::Axis::pipe).use_backend(std::make_unique<Delays>(seed += 1000));
    });
    expect_equal(found, expected, 0);
  }
}

} // namespace
} // namespace orthant::testing

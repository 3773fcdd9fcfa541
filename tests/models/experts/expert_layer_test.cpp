// SPDX-License-Identifier: Apache-2.0
//
// A layer of experts on every grid and expert degree beside one rank's loops: what it adds to the stream, every gradient, who is
// dropped, and what it communicates.
#include "models/lm/experts/expert_layer.hpp"

#include "models/experts/expert_reference.hpp"
#include "models/formula_parameters.hpp"
#include "models/lm/plan/transformer_plan.hpp"
#include "models/lm/transformer/transformer_parameters.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::models;
using pmm::Axis;

enum class Taste { mixed, ties, one_expert, empty_experts };

struct ExpertCase {
  std::string name;
  ExpertSettings settings;
  FeedForward activation = FeedForward::gelu;
  Taste taste = Taste::mixed;
};

std::vector<ExpertCase> expert_cases(std::int64_t num_experts) {
  auto const settings = [&](std::int64_t top_k, std::optional<double> capacity) {
    ExpertSettings s;
    s.num_experts = num_experts;
    s.top_k = top_k;
    s.capacity = capacity;
    s.balance_loss = 0.7;
    s.z_loss = 0.3;
    return s;
  };
  auto const per_rank = [](ExpertSettings s) {
    s.capacity_group = CapacityGroup::rank;
    return s;
  };
  return {{"top-1", settings(1, std::nullopt)},
          {"top-2 of SwiGLU", settings(2, std::nullopt), FeedForward::swiglu},
          {"top-1, capacity below 1", settings(1, 0.6)},
          {"top-2, capacity below 1", settings(2, 0.5)},
          {"top-3, capacity above 1", settings(3, 1.25), FeedForward::swiglu},
          {"top-2, capacity of each rank along data", per_rank(settings(2, 0.7))},
          {"capacity that nobody reaches", settings(2, 1e9)},
          {"ties", settings(2, 0.8), FeedForward::gelu, Taste::ties},
          {"all tokens to one expert", settings(1, std::nullopt), FeedForward::gelu, Taste::one_expert},
          {"all tokens to one expert of limited capacity", settings(1, 1.0), FeedForward::gelu,
           Taste::one_expert},
          {"empty experts", settings(2, std::nullopt), FeedForward::gelu, Taste::empty_experts}};
}

constexpr std::int64_t hidden = 16, width = 9, num_sequences = 17, sequence = 3;
constexpr std::int64_t num_tokens = num_sequences * sequence;

/// Tokens have a last column of ones, to which the router can add what it likes about an expert.
Dense tokens_of(Taste taste) {
  return make_dense(num_tokens, hidden, [&](auto i, auto j) {
    if (j == hidden - 1) return 1.0;
    return taste == Taste::ties ? small_integer(3, i, j) / 4 : small_real(3, i, j);
  });
}

ExpertWeights weights_of(ExpertCase const& the_case) {
  auto const num_experts = the_case.settings.num_experts;
  auto const expanded = the_case.activation == FeedForward::swiglu ? 2 * width : width;
  ExpertWeights weights{
      make_dense(hidden, num_experts,
                 [&](std::int64_t j, std::int64_t e) {
                   switch (the_case.taste) {
                   case Taste::ties: // exact sums; experts 2 n and 2 n + 1 are liked equally
                     return small_integer(5, j, e / 2) / 8;
                   case Taste::one_expert:
                     return j == hidden - 1 ? (e == num_experts - 1 ? 50.0 : 0.0) : 0.1 * small_real(5, j, e);
                   case Taste::empty_experts:
                     return j == hidden - 1 ? (e % 4 >= 2 ? 0.0 : -50.0) : small_real(5, j, e);
                   case Taste::mixed:
                     break;
                   }
                   return small_real(5, j, e);
                 }),
      {},
      {}};
  for (std::int64_t e = 0; e < num_experts; ++e) {
    auto const seed = 20 + static_cast<std::uint64_t>(e);
    weights.up.push_back(
        make_dense(hidden, expanded, [&](auto i, auto j) { return small_real(seed, i, j); }));
    weights.down.push_back(make_dense(width, hidden, [&](auto i, auto j) { return small_real(seed, j, i); }));
  }
  return weights;
}

Dense rows_of(Dense const& whole, std::int64_t begin, std::int64_t count) {
  return make_dense(count, whole.columns, [&](auto i, auto j) { return whole(begin + i, j); });
}

double largest(Dense const& a) {
  auto result = 0.0;
  for (auto const number : a.numbers)
    result = std::max(result, std::abs(number));
  return result;
}

/// data, expert, x, y, z.
class ExpertLayerOnGrid : public ::testing::TestWithParam<std::array<int, 5>> {
 protected:
  ExpertLayerOnGrid()
      : grid_(world_, {.data = GetParam()[0],
                       .x = GetParam()[2],
                       .y = GetParam()[3],
                       .z = GetParam()[4],
                       .expert = GetParam()[1]}) {}

  void SetUp() override {
    if (hidden % grid_.size(Axis::x) != 0) GTEST_SKIP() << "heads of the block cannot be cut";
  }

  [[nodiscard]] std::int64_t num_experts() const {
    auto const num_owners = grid_.size(Axis::expert);
    return (8 + num_owners - 1) / num_owners * num_owners;
  }
  /// Tokens of each rank along data and expert, if it has slots of its own.
  [[nodiscard]] std::vector<std::int64_t> capacity_groups(ExpertSettings const& settings) const {
    if (settings.capacity_group == CapacityGroup::step) return {};
    auto const num_batches = grid_.size(Axis::data) * grid_.size(Axis::expert);
    std::vector<std::int64_t> sizes;
    for (int batch = 0; batch < num_batches; ++batch)
      sizes.push_back(runtime::balanced_range(num_sequences, num_batches, batch).size() * sequence);
    return sizes;
  }
  [[nodiscard]] TransformerPlan plan_of(ExpertCase const& the_case) const {
    auto settings = gpt2_settings(1, hidden, hidden, 2, sequence);
    settings.feed_forward = width;
    settings.activation = the_case.activation;
    settings.experts = the_case.settings;
    return plan_transformer(grid_.shape(), grid_.coordinates(), settings, num_sequences, sequence);
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_;
  runtime::DefaultExec exec_;
};

/// A layer with the weights of a case, and what it makes of the case's tokens.
struct RunningLayer {
  RunningLayer(pmm::ProcessGrid const& grid, TransformerPlan const& plan, ExpertWeights const& weights)
      : parameters(grid, plan, 1),
        scratch(grid, plan.experts),
        memory(std::make_shared<ExpertMemory<double>>(grid, plan.experts, scratch)),
        layer(grid, plan.experts, parameters.block(0).experts, 0, memory, scratch),
        normed(grid, plan.stream, "orthant::testing::normed"),
        branch(stained<double>(grid, plan.stream)),
        branch_gradient(grid, plan.stream, "orthant::testing::branch_gradient"),
        normed_gradient(stained<double>(grid, plan.stream)) {
    for (auto& parameter : parameters.list())
      if (auto const* const values = matrix_of(weights, parameter.name))
        Kokkos::deep_copy(parameter.value(), piece(parameter, *values));
  }

  /// The matrix with that name, or null.
  static Dense const* matrix_of(ExpertWeights const& weights, std::string const& name) {
    if (name == "h.0.mlp.router.weight") return &weights.router;
    for (std::size_t e = 0; e < weights.up.size(); ++e) {
      auto const prefix = "h.0.mlp.experts." + std::to_string(e);
      if (name == prefix + ".c_fc.weight") return &weights.up[e];
      if (name == prefix + ".c_proj.weight") return &weights.down[e];
    }
    return nullptr;
  }
  static runtime::Vector<double> piece(Parameter<double> const& parameter, Dense const& whole) {
    std::vector<double> numbers(parameter.value().extent(0));
    for_each_element(parameter, [&](auto i, auto j, std::size_t place) { numbers[place] = whole(i, j); });
    return device_copy(numbers);
  }

  TransformerParameters<double> parameters;
  ExpertScratch<double> scratch;
  std::shared_ptr<ExpertMemory<double>> memory;
  ExpertLayer<double> layer;
  pmm::DistMatrix<double> normed, branch, branch_gradient, normed_gradient;
};

TEST_P(ExpertLayerOnGrid, AddsAndHasTheGradientsOfOneRank) {
  for (auto const& the_case : expert_cases(num_experts())) {
    SCOPED_TRACE(the_case.name);
    auto const plan = plan_of(the_case);
    auto const weights = weights_of(the_case);
    auto const h = tokens_of(the_case.taste);
    auto const g = make_dense(num_tokens, hidden, [](auto i, auto j) { return small_real(8, i, j); });
    auto const expected =
        expert_reference(h, g, weights, the_case.settings, the_case.activation == FeedForward::swiglu,
                         capacity_groups(the_case.settings));
    RunningLayer run(grid_, plan, weights);
    auto const batch = part_of(grid_.shape(), grid_.coordinates(), batch_axes(grid_.shape()), num_sequences);
    auto const of_batch = [&](Dense const& whole) {
      return rows_of(whole, batch.begin * sequence, batch.size() * sequence);
    };
    Kokkos::deep_copy(run.normed.storage(), distributed<double>(grid_, plan.stream, of_batch(h)).storage());
    Kokkos::deep_copy(run.branch_gradient.storage(),
                      distributed<double>(grid_, plan.stream, of_batch(g)).storage());

    run.layer.start(exec_, {.trains = true}, run.normed);
    run.layer.compute(exec_);
    run.layer.combine(exec_, run.branch);
    run.layer.start_backward(exec_, run.branch_gradient);
    run.layer.backward(exec_, run.normed, run.normed_gradient);
    Kokkos::fence();

    EXPECT_LE(largest_error(run.branch, of_batch(expected.branch)), 1e-12 * largest(expected.branch));
    EXPECT_LE(largest_error(run.normed_gradient, of_batch(expected.input_gradient)),
              1e-12 * largest(expected.input_gradient));
    EXPECT_EQ(run.layer.load().chosen, expected.chosen);
    std::int64_t num_dropped = 0;
    for (std::size_t e = 0; e < expected.chosen.size(); ++e)
      num_dropped += expected.chosen[e] - expected.kept[e];
    EXPECT_EQ(run.layer.load().num_dropped, num_dropped);
    for (auto const& parameter : run.parameters.list()) {
      auto const* const gradient = RunningLayer::matrix_of(expected.gradients, parameter.name);
      if (gradient == nullptr) continue;
      auto const host = host_copy(parameter.gradient());
      std::vector<double> sums(host.data(), host.data() + host.extent(0));
      runtime::all_reduce(runtime::host,
                          grid_.over(parameter.is_of_expert ? Axis::data : plan.experts.token_axes), sums);
      auto error = 0.0;
      for_each_element(parameter, [&](auto i, auto j, std::size_t place) {
        error = std::max(error, std::abs(sums[place] - (*gradient)(i, j)));
      });
      EXPECT_LE(error, 1e-12 * largest(*gradient)) << parameter.name;
    }
  }
}

// What all ranks of a group of x and y choose from is the same to the bit, and so is what they add to the stream.
TEST_P(ExpertLayerOnGrid, RoutesAlikeOnAllRanksOfATensorGroup) {
  auto const the_case = expert_cases(num_experts())[3];
  auto const plan = plan_of(the_case);
  RunningLayer run(grid_, plan, weights_of(the_case));
  auto const batch = part_of(grid_.shape(), grid_.coordinates(), batch_axes(grid_.shape()), num_sequences);
  auto const h = rows_of(tokens_of(Taste::mixed), batch.begin * sequence, batch.size() * sequence);
  Kokkos::deep_copy(run.normed.storage(), distributed<double>(grid_, plan.stream, h).storage());
  run.layer.start(exec_, {.trains = true}, run.normed);
  run.layer.compute(exec_);
  run.layer.combine(exec_, run.branch);
  Kokkos::fence();
  auto const expect_alike = [&](pmm::AxisSet axes, double const* numbers, std::size_t count) {
    std::vector<double> low(numbers, numbers + count), high(low);
    runtime::all_reduce(runtime::host, grid_.over(axes), low, runtime::Reduction::min);
    runtime::all_reduce(runtime::host, grid_.over(axes), high, runtime::Reduction::max);
    EXPECT_EQ(low, high);
  };
  auto const p = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), run.memory->routing.probabilities);
  expect_alike({Axis::x, Axis::y}, p.data(), p.size());
  auto const branch = host_copy(run.branch.storage());
  expect_alike(Axis::x, branch.data(), branch.size());
}

TEST_P(ExpertLayerOnGrid, DoesWhatIsListed) {
  for (auto const& the_case : expert_cases(num_experts())) {
    SCOPED_TRACE(the_case.name);
    auto plan = plan_of(the_case);
    RunningLayer run(grid_, plan, weights_of(the_case));
    auto const batch = part_of(grid_.shape(), grid_.coordinates(), batch_axes(grid_.shape()), num_sequences);
    auto const h = rows_of(tokens_of(the_case.taste), batch.begin * sequence, batch.size() * sequence);
    Kokkos::deep_copy(run.normed.storage(), distributed<double>(grid_, plan.stream, h).storage());
    clear_ledgers(grid_);
    CountedPasses const passes(grid_);
    run.layer.start(exec_, {.trains = true}, run.normed);
    run.layer.compute(exec_);
    run.layer.combine(exec_, run.branch);
    run.layer.start_backward(exec_, run.branch);
    run.layer.backward(exec_, run.normed, run.normed_gradient);
    Kokkos::fence();

    plan.experts.loads = {run.layer.sizes()};
    auto list = step_of<double>(grid_);
    plan_start_experts(list, plan.experts, 0, true);
    plan_compute_experts(list, plan.experts, 0, true);
    plan_combine_experts(list, plan.experts, 0);
    plan_start_expert_layer_backward(list, plan.experts, 0);
    plan_expert_layer_backward(list, plan.experts, 0);
    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
    EXPECT_EQ(passes.list(), passes_of(list));
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, ExpertLayerOnGrid, ::testing::ValuesIn(factorisations<5>(world_size())),
                         GridName());

// (L(w + h d) - L(w - h d)) / 2 h = dL/dw . d of the reference itself.
TEST(ExpertReference, GradientsAreFiniteDifferences) {
  for (auto const& the_case : expert_cases(8)) {
    if (the_case.taste == Taste::ties) continue; // a step breaks them
    SCOPED_TRACE(the_case.name);
    auto const is_swiglu = the_case.activation == FeedForward::swiglu;
    auto weights = weights_of(the_case);
    auto h = tokens_of(the_case.taste);
    auto const g = make_dense(num_tokens, hidden, [](auto i, auto j) { return small_real(8, i, j); });
    auto const at = expert_reference(h, g, weights, the_case.settings, is_swiglu);
    auto const expect_slope = [&](Dense& matrix, Dense const& gradient, char const* what) {
      constexpr auto step = 1e-6;
      auto const start = matrix;
      auto slope = 0.0, scale = 0.0;
      for (std::size_t k = 0; k < gradient.numbers.size(); ++k) {
        slope += gradient.numbers[k] * small_real(60, static_cast<std::int64_t>(k), 0);
        scale += std::abs(gradient.numbers[k]);
      }
      auto const loss_at = [&](double size) {
        for (std::size_t k = 0; k < start.numbers.size(); ++k)
          matrix.numbers[k] = start.numbers[k] + size * small_real(60, static_cast<std::int64_t>(k), 0);
        return expert_reference(h, g, weights, the_case.settings, is_swiglu).loss;
      };
      auto const difference = (loss_at(step) - loss_at(-step)) / (2 * step);
      matrix = start;
      EXPECT_NEAR(difference, slope, 1e-6 * scale + 1e-9) << what;
    };
    expect_slope(h, at.input_gradient, "input");
    expect_slope(weights.router, at.gradients.router, "router");
    for (std::size_t e = 0; e < weights.up.size(); ++e) {
      expect_slope(weights.up[e], at.gradients.up[e], "up");
      expect_slope(weights.down[e], at.gradients.down[e], "down");
    }
  }
}

TEST(ExpertReference, CapacityThatNobodyReachesIsNone) {
  auto the_case = expert_cases(8)[1];
  auto const weights = weights_of(the_case);
  auto const h = tokens_of(Taste::mixed);
  auto const none = expert_reference(h, h, weights, the_case.settings, true);
  the_case.settings.capacity = 1e9;
  EXPECT_EQ(expert_reference(h, h, weights, the_case.settings, true).branch.numbers, none.branch.numbers);
}

TEST(ExpertLoad, TellsImbalanceAndEntropy) {
  ExpertLoad const even{0, {5, 5, 5, 5}}, one{0, {0, 12, 0, 0}};
  EXPECT_EQ(even.imbalance(), 1);
  EXPECT_NEAR(even.entropy(), std::log(4.0), 1e-15);
  EXPECT_EQ(one.imbalance(), 4);
  EXPECT_EQ(one.entropy(), 0);
}

TEST(ExpertSettings, RefusesContradictions) {
  auto const refused = [](auto const& change) {
    ExpertSettings settings;
    settings.num_experts = 8;
    change(settings);
    EXPECT_THROW(require_valid(settings, 4), runtime::UserError);
  };
  refused([](auto& s) { s.top_k = 9; });
  refused([](auto& s) { s.top_k = 0; });
  refused([](auto& s) { s.capacity = 0; });
  refused([](auto& s) { s.capacity = -1; });
  refused([](auto& s) { s.every = 5; });
  refused([](auto& s) { s.balance_loss = -1; });
  refused([](auto& s) { s.num_experts = -1; });
  refused([](auto& s) { s.num_shared = -1; });
  EXPECT_THROW(static_cast<void>(own_experts({.expert = 3}, {}, {.num_experts = 8})), runtime::UserError);
}

} // namespace
} // namespace orthant::testing

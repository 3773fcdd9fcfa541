// SPDX-License-Identifier: Apache-2.0
//
// The second half of a block with shared experts, on every grid and expert degree beside one rank's loops: each shared expert by
// itself, added to what the router's choices give.
#include "models/experts/expert_reference.hpp"
#include "models/formula_parameters.hpp"
#include "models/lm/transformer/feed_forward_half.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::models;
using pmm::Axis;

constexpr std::int64_t hidden = 16, width = 5, num_sequences = 17, sequence = 3;
constexpr std::int64_t num_tokens = num_sequences * sequence;

struct SharedCase {
  std::string name;
  std::int64_t num_shared = 1;
  FeedForward activation = FeedForward::gelu;
  std::optional<double> capacity = std::nullopt;
};

std::vector<SharedCase> shared_cases() {
  return {{"one, GELU"},
          {"three, SwiGLU", 3, FeedForward::swiglu},
          {"two beside a limited capacity", 2, FeedForward::swiglu, 0.5}};
}

TransformerSettings settings_of(SharedCase const& the_case, std::int64_t num_experts) {
  auto settings = gpt2_settings(1, hidden, hidden, 2, sequence);
  settings.feed_forward = width;
  settings.norm = NormKind::rms;
  settings.activation = the_case.activation; // with biases, of which experts have none
  settings.experts.num_experts = num_experts;
  settings.experts.top_k = 2;
  settings.experts.num_shared = the_case.num_shared;
  settings.experts.capacity = the_case.capacity;
  settings.experts.balance_loss = 0.7;
  settings.experts.z_loss = 0.3;
  return settings;
}

Dense reals(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [&](auto i, auto j) { return small_real(seed, i, j); });
}

/// Of the experts that are chosen and of the shared ones, whose routers are not asked for.
struct HalfWeights {
  ExpertWeights chosen;
  std::vector<ExpertWeights> shared;
};

HalfWeights weights_of(TransformerSettings const& settings) {
  auto const expanded = settings.activation == FeedForward::swiglu ? 2 * width : width;
  HalfWeights weights{{reals(5, hidden, settings.experts.num_experts), {}, {}}, {}};
  std::uint64_t seed = 20;
  for (std::int64_t e = 0; e < settings.experts.num_experts; ++e) {
    weights.chosen.up.push_back(reals(seed++, hidden, expanded));
    weights.chosen.down.push_back(reals(seed++, width, hidden));
  }
  for (std::int64_t s = 0; s < settings.experts.num_shared; ++s) {
    auto const up = reals(seed++, hidden, expanded), down = reals(seed++, width, hidden);
    weights.shared.push_back({Dense(hidden, 1), {up}, {down}});
  }
  return weights;
}

/// Matrices side by side, or one below the other.
Dense joined(std::vector<ExpertWeights> const& all, bool of_up) {
  auto const& first = of_up ? all.front().up.front() : all.front().down.front();
  auto const count = static_cast<std::int64_t>(all.size());
  return make_dense(of_up ? first.rows : count * first.rows, of_up ? count * first.columns : first.columns,
                    [&](std::int64_t i, std::int64_t j) {
                      auto const place = of_up ? j / first.columns : i / first.rows;
                      auto const& expert = all[static_cast<std::size_t>(place)];
                      return of_up ? expert.up.front()(i, j % first.columns)
                                   : expert.down.front()(i % first.rows, j);
                    });
}

struct HalfReference {
  Dense branch, input_gradient;
  HalfWeights gradients;
};

/// Through x_i / sqrt(mean of x_i^2 + epsilon), whose scales are 1.
HalfReference half_reference(Dense const& x, Dense const& g, HalfWeights const& weights,
                             TransformerSettings const& settings) {
  std::vector<double> scale;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    auto sum = 0.0;
    for (std::int64_t j = 0; j < hidden; ++j)
      sum += x(i, j) * x(i, j) / hidden;
    scale.push_back(1 / std::sqrt(sum + settings.norm_epsilon));
  }
  auto const scale_of = [&](std::int64_t i) { return scale[static_cast<std::size_t>(i)]; };
  auto const h = make_dense(x.rows, hidden, [&](auto i, auto j) { return x(i, j) * scale_of(i); });
  auto const is_swiglu = settings.activation == FeedForward::swiglu;
  auto const chosen = expert_reference(h, g, weights.chosen, settings.experts, is_swiglu);
  HalfReference result{chosen.branch, chosen.input_gradient, {chosen.gradients, {}}};
  for (auto const& expert : weights.shared) {
    // The only one of a router: its weight is 1.
    auto const one = expert_reference(h, g, expert, {.num_experts = 1}, is_swiglu);
    result.gradients.shared.push_back(one.gradients);
    for (std::size_t k = 0; k < one.branch.numbers.size(); ++k) {
      result.branch.numbers[k] += one.branch.numbers[k];
      result.input_gradient.numbers[k] += one.input_gradient.numbers[k];
    }
  }
  auto const dh = result.input_gradient;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    auto mean = 0.0;
    for (std::int64_t j = 0; j < hidden; ++j)
      mean += dh(i, j) * h(i, j) / hidden;
    for (std::int64_t j = 0; j < hidden; ++j)
      result.input_gradient(i, j) = scale_of(i) * (dh(i, j) - h(i, j) * mean);
  }
  return result;
}

double largest(Dense const& a) {
  auto result = 0.0;
  for (auto const number : a.numbers)
    result = std::max(result, std::abs(number));
  return result;
}

/// The matrix with that name, or nothing.
std::optional<Dense> matrix_of(HalfWeights const& weights, std::string const& name) {
  if (name == "h.0.mlp.router.weight") return weights.chosen.router;
  if (name == "h.0.mlp.shared.c_fc.weight") return joined(weights.shared, true);
  if (name == "h.0.mlp.shared.c_proj.weight") return joined(weights.shared, false);
  for (std::size_t e = 0; e < weights.chosen.up.size(); ++e) {
    auto const prefix = "h.0.mlp.experts." + std::to_string(e);
    if (name == prefix + ".c_fc.weight") return weights.chosen.up[e];
    if (name == prefix + ".c_proj.weight") return weights.chosen.down[e];
  }
  return std::nullopt;
}

/// data, expert, x, y, z.
class SharedExperts : public ::testing::TestWithParam<std::array<int, 5>> {
 protected:
  void SetUp() override {
    if (hidden % grid_.size(Axis::x) != 0) GTEST_SKIP() << "heads of the block cannot be cut";
  }
  [[nodiscard]] std::int64_t num_experts() const {
    auto const num_owners = grid_.size(Axis::expert);
    return (8 + num_owners - 1) / num_owners * num_owners;
  }
  [[nodiscard]] Dense of_batch(Dense const& whole) const {
    auto const batch = part_of(grid_.shape(), grid_.coordinates(), batch_axes(grid_.shape()), num_sequences);
    return make_dense(batch.size() * sequence, whole.columns,
                      [&](auto i, auto j) { return whole(batch.begin * sequence + i, j); });
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_,
                         {.data = GetParam()[0],
                          .x = GetParam()[2],
                          .y = GetParam()[3],
                          .z = GetParam()[4],
                          .expert = GetParam()[1]}};
  runtime::DefaultExec exec_;
};

/// The half of a block with the weights of a case.
struct RunningHalf {
  RunningHalf(pmm::ProcessGrid const& grid, TransformerPlan const& plan, HalfWeights const& weights)
      : parameters(grid, plan, 1),
        scratch(grid, plan),
        memory(grid, plan, 0, scratch),
        half(grid, plan, parameters.block(0), 0, memory.feed_forward, scratch) {
    for (auto& parameter : parameters.list())
      if (auto const values = matrix_of(weights, parameter.name)) {
        std::vector<double> numbers(parameter.value().extent(0));
        for_each_element(parameter,
                         [&](auto i, auto j, std::size_t place) { numbers[place] = (*values)(i, j); });
        Kokkos::deep_copy(parameter.value(), device_copy(numbers));
      }
    for (auto* const linear : half.linears())
      forward_uses.push_back({linear, Direction::forward});
    for (auto use = forward_uses.rbegin(); use != forward_uses.rend(); ++use)
      backward_uses.push_back({use->linear, Direction::backward});
  }

  void run(runtime::DefaultExec const& exec, pmm::DistMatrix<double> const& x,
           pmm::DistMatrix<double> const& branch, pmm::DistMatrix<double> const& branch_gradient,
           pmm::DistMatrix<double> const& dx) {
    scratch.work.begin_pass(forward_uses);
    half.compute(exec, {.trains = true}, x);
    half.combine(exec, branch);
    scratch.work.begin_pass(backward_uses);
    half.backward(exec, x, branch_gradient, dx);
    scratch.work.finish_all();
    Kokkos::fence();
  }

  TransformerParameters<double> parameters;
  TransformerScratch<double> scratch;
  BlockMemory<double> memory;
  FeedForwardHalf<double> half;
  std::vector<WeightUse<double>> forward_uses, backward_uses;
};

TEST_P(SharedExperts, AreAddedWithTheGradientsOfOneRank) {
  for (auto const& the_case : shared_cases()) {
    SCOPED_TRACE(the_case.name);
    auto const settings = settings_of(the_case, num_experts());
    auto const weights = weights_of(settings);
    auto const x = reals(3, num_tokens, hidden), g = reals(8, num_tokens, hidden),
               before = reals(9, num_tokens, hidden);
    auto const expected = half_reference(x, g, weights, settings);
    auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), settings, num_sequences, sequence);
    RunningHalf run(grid_, plan, weights);
    auto const branch = stained<double>(grid_, plan.stream);
    auto const dx = distributed<double>(grid_, plan.stream, of_batch(before));

    run.run(exec_, distributed<double>(grid_, plan.stream, of_batch(x)), branch,
            distributed<double>(grid_, plan.stream, of_batch(g)), dx);

    EXPECT_LE(largest_error(branch, of_batch(expected.branch)), 1e-12 * largest(expected.branch));
    auto const sum = make_dense(num_tokens, hidden,
                                [&](auto i, auto j) { return before(i, j) + expected.input_gradient(i, j); });
    EXPECT_LE(largest_error(dx, of_batch(sum)), 1e-12 * largest(sum));
    auto num_checked = 0;
    for (auto const& parameter : run.parameters.list()) {
      auto const gradient = matrix_of(expected.gradients, parameter.name);
      if (!gradient) continue;
      ++num_checked;
      auto const host = host_copy(parameter.gradient());
      std::vector<double> sums(host.data(), host.data() + host.extent(0));
      auto const is_router = parameter.name.ends_with("router.weight"); // summed over z with the small ones
      runtime::all_reduce(runtime::host,
                          grid_.over(parameter.is_of_expert ? pmm::AxisSet{Axis::data}
                                     : is_router            ? plan.experts.token_axes
                                                            : batch_axes(grid_.shape())),
                          sums);
      auto error = 0.0;
      for_each_element(parameter, [&](auto i, auto j, std::size_t place) {
        error = std::max(error, std::abs(sums[place] - (*gradient)(i, j)));
      });
      EXPECT_LE(error, 1e-12 * largest(*gradient)) << parameter.name;
    }
    EXPECT_EQ(num_checked, 3 + 2 * num_experts());
  }
}

TEST_P(SharedExperts, DoWhatIsListed) {
  for (auto const& the_case : shared_cases()) {
    SCOPED_TRACE(the_case.name);
    auto const settings = settings_of(the_case, num_experts());
    auto plan = plan_transformer(grid_.shape(), grid_.coordinates(), settings, num_sequences, sequence);
    RunningHalf run(grid_, plan, weights_of(settings));
    auto const x = distributed<double>(grid_, plan.stream, of_batch(reals(3, num_tokens, hidden)));
    auto const branch = stained<double>(grid_, plan.stream), dx = stained<double>(grid_, plan.stream);
    clear_ledgers(grid_);
    CountedPasses const passes(grid_);
    run.run(exec_, x, branch, x, dx);

    plan.experts.loads = {run.half.experts()->sizes()};
    auto list = step_of<double>(grid_);
    plan_compute_feed_forward(list, plan, 0, true);
    plan_combine_feed_forward(list, plan, 0);
    plan_feed_forward_half_backward(list, plan, 0);
    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
    EXPECT_EQ(passes.list(), passes_of(list));
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, SharedExperts, ::testing::ValuesIn(factorisations<5>(world_size())),
                         GridName());

} // namespace
} // namespace orthant::testing

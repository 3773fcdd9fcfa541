// SPDX-License-Identifier: Apache-2.0
//
// The router beside loops over its definition, finite differences of its losses, and who has a slot on any number of ranks.
#include "pmm/experts/routing.hpp"

#include "support/dist_checks.hpp"

#include <array>
#include <cmath>
#include <complex>
#include <gmock/gmock.h>
#include <numeric>
#include <span>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using ::testing::ElementsAre;

runtime::Matrix<double> device_matrix(Dense const& from) {
  runtime::Matrix<double> to("orthant::testing::matrix", static_cast<std::size_t>(from.rows),
                             static_cast<std::size_t>(from.columns));
  auto const host = Kokkos::create_mirror_view(to);
  for (std::int64_t i = 0; i < from.rows; ++i)
    for (std::int64_t j = 0; j < from.columns; ++j)
      host(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) = from(i, j);
  Kokkos::deep_copy(to, host);
  return to;
}

template<class T>
std::vector<T> on_host(runtime::Vector<T> const& view) {
  auto const host = host_copy(view);
  return {host.data(), host.data() + host.extent(0)};
}

Dense some_logits(std::int64_t rows, std::int64_t experts) {
  return make_dense(rows, experts, [](auto i, auto e) { return 2 * small_real(5, i, e); });
}

class Router : public ::testing::Test {
 protected:
  /// Experts of these logits.
  Routing<double> choose(Dense const& logits, std::int64_t num_choices, RouterNoise const& noise = {},
                         bool normalizes = true) {
    Routing<double> routing("orthant::testing::routing", logits.rows, logits.columns, num_choices,
                            normalizes);
    choose_experts(exec_, passes_, device_matrix(logits), noise, routing);
    Kokkos::fence();
    return routing;
  }
  std::vector<double> weights(Routing<double> const& routing) {
    weigh_experts(exec_, passes_, routing);
    Kokkos::fence();
    return on_host(routing.weights);
  }

  DefaultExec exec_;
  runtime::PassLedger passes_;
};

TEST_F(Router, TakesTheLargestInOrderAndTheLowerNumberOfEqualOnes) {
  Dense logits(4, 4);
  logits.numbers = {0, 3, 1, 2, /* equal: */ 1, 1, 1, 1, /* two pairs: */ 2, 5, 5, 2, -1, -2, -1, -3};
  EXPECT_THAT(on_host(choose(logits, 1).experts), ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(on_host(choose(logits, 2).experts), ElementsAre(1, 3, 0, 1, 1, 2, 0, 2));
  EXPECT_THAT(on_host(choose(logits, 4).experts),
              ElementsAre(1, 3, 2, 0, 0, 1, 2, 3, 1, 2, 0, 3, 0, 2, 1, 3));
}

TEST_F(Router, ChoosesAnExpertEvenOfNoNumbers) {
  Dense logits(2, 3);
  logits.numbers = {NAN, NAN, NAN, 0, NAN, 1};
  for (auto const expert : on_host(choose(logits, 2).experts))
    EXPECT_TRUE(expert >= 0 && expert < 3) << expert;
}

/// Expects the derivatives of `loss`, which reads `logits`, to be `found`, by central differences.
void expect_derivative(Dense& logits, auto const& loss, auto const& found) {
  constexpr auto h = 1e-5;
  for (std::int64_t i = 0; i < logits.rows; ++i)
    for (std::int64_t e = 0; e < logits.columns; ++e) {
      auto const start = logits(i, e);
      logits(i, e) = start + h;
      auto const above = loss();
      logits(i, e) = start - h;
      auto const below = loss();
      logits(i, e) = start;
      EXPECT_NEAR(found(static_cast<std::size_t>(i), static_cast<std::size_t>(e)), (above - below) / (2 * h),
                  1e-9);
    }
}

/// Numbers of choices, each with weights that are normalized and with those that are not.
constexpr std::array kinds_of_weights{std::pair(1, true),  std::pair(2, true),  std::pair(3, true),
                                      std::pair(1, false), std::pair(2, false), std::pair(3, false)};

TEST_F(Router, WeightsAreProbabilitiesOfOneChoiceAndSharesOfSeveral) {
  auto const logits = some_logits(6, 5);
  for (auto const& kind : kinds_of_weights) {
    std::int64_t const num_choices = kind.first;
    auto const normalizes = kind.second;
    auto const routing = choose(logits, num_choices, {}, normalizes);
    auto experts = on_host(routing.experts);
    experts[0] = -1; // dropped
    Kokkos::deep_copy(routing.experts, device_copy(experts));
    auto const found = weights(routing);
    for (std::int64_t i = 0; i < 6; ++i) {
      auto sum = 0.0;
      for (std::int64_t e = 0; e < 5; ++e)
        sum += std::exp(logits(i, e));
      auto const log_sum = host_copy(routing.log_sum_exp)(static_cast<std::size_t>(i));
      EXPECT_NEAR(log_sum, std::log(sum), 1e-15 * 10);
      auto kept = 0.0;
      auto const expert = [&](std::int64_t k) {
        return experts[static_cast<std::size_t>(i * num_choices + k)];
      };
      for (std::int64_t k = 0; k < num_choices; ++k)
        if (expert(k) >= 0) kept += std::exp(logits(i, expert(k))) / sum;
      for (std::int64_t k = 0; k < num_choices; ++k) {
        auto const p = expert(k) < 0 ? 0.0 : std::exp(logits(i, expert(k))) / sum;
        EXPECT_NEAR(found[static_cast<std::size_t>(i * num_choices + k)],
                    num_choices == 1 || !normalizes ? p : p / kept, 1e-15 * 4);
      }
    }
  }
}

// sum_ik a_ik w_ik + C_b E sum_e f_e mean_i p_ie + C_z mean_i lse_i^2, with experts and shares held fixed.
TEST_F(Router, GradientsAreFiniteDifferences) {
  constexpr std::int64_t rows = 5, num_experts = 4;
  constexpr auto balance = 0.3, z = 0.2, num_tokens = 11.0;
  for (auto const& kind : kinds_of_weights) {
    std::int64_t const num_choices = kind.first;
    auto const normalizes = kind.second;
    auto logits = some_logits(rows, num_experts);
    auto const routing = choose(logits, num_choices, {}, normalizes);
    auto experts = on_host(routing.experts);
    experts[1] = -1;
    Kokkos::deep_copy(routing.experts, device_copy(experts));
    weights(routing);
    std::vector<double> const shares{0.4, 0.1, 0.3, 0.2};
    std::vector<double> slopes;
    for (std::int64_t choice = 0; choice < rows * num_choices; ++choice)
      slopes.push_back(small_real(77, choice, 0));
    runtime::Matrix<double> const gradient("orthant::testing::gradient", rows, num_experts);
    router_backward<double>(exec_, passes_, routing, device_copy(slopes),
                            {balance, z, num_tokens, device_copy(shares)}, gradient);
    Kokkos::fence();
    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), gradient);

    auto const loss = [&] {
      auto total = 0.0;
      for (std::int64_t i = 0; i < rows; ++i) {
        auto sum = 0.0, kept = 0.0;
        for (std::int64_t e = 0; e < num_experts; ++e)
          sum += std::exp(logits(i, e));
        for (std::int64_t e = 0; e < num_experts; ++e)
          total += balance * num_experts * shares[static_cast<std::size_t>(e)] *
                   (std::exp(logits(i, e)) / sum) / num_tokens;
        total += z * std::log(sum) * std::log(sum) / num_tokens;
        for (std::int64_t k = 0; k < num_choices; ++k)
          if (auto const e = experts[static_cast<std::size_t>(i * num_choices + k)]; e >= 0)
            kept += std::exp(logits(i, e)) / sum;
        for (std::int64_t k = 0; k < num_choices; ++k) {
          auto const choice = static_cast<std::size_t>(i * num_choices + k);
          if (experts[choice] < 0) continue;
          auto const p = std::exp(logits(i, experts[choice])) / sum;
          total += slopes[choice] * (num_choices == 1 || !normalizes ? p : p / kept);
        }
      }
      return total;
    };
    expect_derivative(logits, loss, found);
  }
}

// Gates are sigmoids; biases move the choice, and neither the weights nor their gradients.
TEST_F(Router, BiasesMoveTheChoiceAlone) {
  constexpr std::int64_t rows = 5, num_experts = 4;
  std::vector<double> const biases{0.3, -0.2, 0.05, 0};
  auto const sigmoid = [](double logit) { return 1 / (1 + std::exp(-logit)); };
  for (auto const& kind : kinds_of_weights) {
    std::int64_t const num_choices = kind.first;
    auto const normalizes = kind.second && num_choices > 1;
    auto logits = some_logits(rows, num_experts);
    Routing<double> routing("orthant::testing::routing", rows, num_experts, num_choices, normalizes);
    routing.biases = device_copy(biases);
    choose_experts(exec_, passes_, device_matrix(logits), {}, routing);
    Kokkos::fence();
    auto experts = on_host(routing.experts);
    for (std::int64_t i = 0; i < rows; ++i) {
      std::vector<std::pair<double, std::int32_t>> order;
      for (std::int32_t e = 0; e < num_experts; ++e)
        order.emplace_back(-sigmoid(logits(i, e)) - biases[static_cast<std::size_t>(e)], e);
      std::ranges::sort(order);
      for (std::int64_t k = 0; k < num_choices; ++k)
        EXPECT_EQ(experts[static_cast<std::size_t>(i * num_choices + k)],
                  order[static_cast<std::size_t>(k)].second);
    }
    experts[1] = -1; // dropped
    Kokkos::deep_copy(routing.experts, device_copy(experts));
    auto const found_weights = weights(routing);
    std::vector<double> slopes;
    for (std::int64_t choice = 0; choice < rows * num_choices; ++choice)
      slopes.push_back(small_real(77, choice, 0));
    runtime::Matrix<double> const gradient("orthant::testing::gradient", rows, num_experts);
    router_backward<double>(exec_, passes_, routing, device_copy(slopes),
                            {0, 0, 1, device_copy(std::vector<double>(num_experts, 0.25))}, gradient);
    Kokkos::fence();
    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), gradient);

    auto const weight = [&](std::int64_t i, std::int64_t k) {
      auto const of = [&](std::int64_t j) {
        auto const e = experts[static_cast<std::size_t>(i * num_choices + j)];
        return e < 0 ? 0.0 : sigmoid(logits(i, e));
      };
      auto sum = 0.0;
      for (std::int64_t j = 0; j < num_choices; ++j)
        sum += of(j);
      return normalizes && sum > 0 ? of(k) / sum : of(k);
    };
    auto const loss = [&] {
      auto total = 0.0;
      for (std::int64_t choice = 0; choice < rows * num_choices; ++choice)
        total +=
            slopes[static_cast<std::size_t>(choice)] * weight(choice / num_choices, choice % num_choices);
      return total;
    };
    for (std::int64_t choice = 0; choice < rows * num_choices; ++choice)
      EXPECT_NEAR(found_weights[static_cast<std::size_t>(choice)],
                  weight(choice / num_choices, choice % num_choices), 1e-15);
    expect_derivative(logits, loss, found);
  }
}

/// sum_e f_e P_e of a sequence. A small imaginary step of a logit causes an imaginary part, the derivative; f is of the real parts.
std::complex<double> balance_of(std::span<std::complex<double> const> logits, std::size_t count,
                                std::size_t num_choices) {
  auto const num_tokens = logits.size() / count;
  std::vector<std::complex<double>> means(count), gates(count);
  std::vector<double> shares(count);
  std::vector<std::pair<double, std::size_t>> order(count);
  for (; !logits.empty(); logits = logits.subspan(count)) {
    for (std::size_t e = 0; e < count; ++e) {
      gates[e] = 1.0 / (1.0 + std::exp(-logits[e]));
      order[e] = {-gates[e].real(), e};
    }
    std::ranges::sort(order);
    for (std::size_t k = 0; k < num_choices; ++k)
      shares[order[k].second] += static_cast<double>(count) / static_cast<double>(num_choices * num_tokens);
    for (std::size_t e = 0; e < count; ++e)
      means[e] += gates[e] / std::reduce(gates.begin(), gates.end()) / static_cast<double>(num_tokens);
  }
  return std::inner_product(shares.begin(), shares.end(), means.begin(), std::complex<double>());
}

TEST_F(Router, BalancesEachSequenceByItsGates) {
  constexpr std::int64_t num_experts = 5, sequence = 4, num_sequences = 3, rows = sequence * num_sequences;
  for (std::int64_t const num_choices : {1, 2, 5}) {
    auto logits = some_logits(rows, num_experts);
    logits(3, 1) = logits(3, 4); // of equal gates the lower number counts
    Routing<double> routing("orthant::testing::routing", rows, num_experts, num_choices);
    routing.biases = device_copy(std::vector{1.0, -1.0, 0.0, 0.5, 0.0});
    choose_experts(exec_, passes_, device_matrix(logits), {}, routing);
    weights(routing);
    auto const slopes = device_copy(std::vector<double>(rows * static_cast<std::size_t>(num_choices)));
    auto const counts = device_copy(std::vector<std::int32_t>(num_sequences * num_experts, 7));
    RouterLosses<double> const losses{0, 0, rows, slopes, 0.7, sequence, counts};
    runtime::Matrix<double> const gradient("orthant::testing::gradient", rows, num_experts);
    router_backward<double>(exec_, passes_, routing, slopes, losses, gradient);
    Kokkos::fence();

    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), gradient);
    for (std::size_t at = 0; at < logits.numbers.size(); ++at) {
      std::vector<std::complex<double>> moved(logits.numbers.begin(), logits.numbers.end());
      moved[at] += std::complex(0.0, 1e-100);
      auto const its = std::span(moved).subspan(at / (sequence * num_experts) * (sequence * num_experts),
                                                sequence * num_experts);
      auto const expected = 0.7 * balance_of(its, num_experts, static_cast<std::size_t>(num_choices)).imag() /
                            1e-100 / num_sequences;
      EXPECT_NEAR(found.data()[at], expected, 1e-14) << num_choices << " choices, " << at;
    }
  }
}

TEST_F(Router, BiasesMoveAgainstTheLoad) {
  runtime::Vector<double> const targets("orthant::testing::targets", 4);
  move_biases(exec_, passes_, device_copy(std::vector{0.5, 0.25, 0.0, -1.0}),
              device_copy(std::vector{0.25, 0.4, 0.1, 0.25}), 0.125, 0.5, targets);
  Kokkos::fence();
  EXPECT_THAT(on_host(targets), ElementsAre(0.25, 0.0625, 0.0625, -0.5));
}

// The first choice is dropped, and the second has no probability that a double holds.
TEST_F(Router, AChoiceWithoutProbabilityHasNoGradient) {
  Dense logits(1, 3);
  logits.numbers = {2000, 0, -1};
  auto const routing = choose(logits, 2);
  Kokkos::deep_copy(routing.experts, device_copy(std::vector<std::int32_t>{-1, 1}));
  EXPECT_THAT(weights(routing), ElementsAre(0, 0));
  runtime::Matrix<double> const gradient("orthant::testing::gradient", 1, 3);
  router_backward<double>(exec_, passes_, routing, device_copy(std::vector{1.0, 2.0}),
                          {0, 0, 1, device_copy(std::vector{0.5, 0.5, 0.0})}, gradient);
  Kokkos::fence();
  auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), gradient);
  for (std::size_t e = 0; e < 3; ++e)
    EXPECT_EQ(found(0, e), 0) << e;
}

// Noise moves the choice alone, and is that of a token whatever rank has it.
TEST_F(Router, NoiseIsOfTheToken) {
  auto const logits = make_dense(40, 6, [](auto, auto e) { return 0.1 * static_cast<double>(e); });
  RouterNoise noise{.deviation = 1, .stream = {9, runtime::Purpose::routing, 3, 1}, .first_token = 0};
  auto const whole = choose(logits, 1, noise);
  auto const experts = on_host(whole.experts);
  EXPECT_NE(experts, on_host(choose(logits, 1).experts));
  auto const p = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), whole.probabilities);
  auto const without = choose(logits, 1);
  auto const q = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), without.probabilities);
  for (std::size_t i = 0; i < p.size(); ++i)
    EXPECT_EQ(p.data()[i], q.data()[i]);
  noise.first_token = 13;
  auto const part = on_host(
      choose(make_dense(27, 6, [](auto, auto e) { return 0.1 * static_cast<double>(e); }), 1, noise).experts);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), experts.begin() + 13));
}

TEST_F(Router, PassesWhatIsListed) {
  std::vector<runtime::LocalPass> passes;
  passes_.list = &passes;
  auto const logits = some_logits(6, 5);
  auto const routing = choose(logits, 2);
  weights(routing);
  router_backward<double>(exec_, passes_, routing, routing.weights,
                          {0, 0, 1, runtime::Vector<double>("orthant::testing::shares", 5)},
                          device_matrix(logits));
  Kokkos::fence();
  StepPlan list({}, {}, sizeof(double));
  plan_choose_experts(list, 6, 5, 2);
  plan_weigh_experts(list, 6, 2);
  plan_router_backward(list, 6, 5, 2);
  EXPECT_EQ(passes, passes_of(list));
}

TEST(Capacity, IsAShareOfAllChoicesRoundedUp) {
  EXPECT_EQ(capacity_of(1.0, 12, 1, 4), 3);
  EXPECT_EQ(capacity_of(1.0, 13, 1, 4), 4);
  EXPECT_EQ(capacity_of(1.25, 16, 2, 8), 5);
  EXPECT_EQ(capacity_of(0.01, 12, 1, 4), 1);
  EXPECT_EQ(capacity_of(1.1, 400, 1, 8), 55); // 1.1 * 50 is a little more than 55 in binary
  EXPECT_EQ(capacity_of(1e9, 12, 2, 4), 12);  // nobody is chosen more often than there are tokens
}

// All tokens on one rank or dealt to the ranks unevenly: the same are dropped. Beside the definition: first choices of all
// tokens, then second ones, until an expert is full.
TEST(Capacity, DropsTheSameOnAnyNumberOfRanks) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  constexpr std::int64_t num_tokens = 50, num_experts = 6, num_choices = 2;
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    auto const first = static_cast<std::int32_t>(mixed(1, i) % 3 + mixed(2, i) % 3);
    all.push_back(first);
    all.push_back((first + 1 + static_cast<std::int32_t>(mixed(3, i) % 4)) % num_experts);
  }
  // Rank r has tokens from the r-th cut on; rank 1 has none.
  auto const cut = [&](int rank) {
    if (rank == 0) return std::int64_t{0};
    return rank == world.size() ? num_tokens : num_tokens * std::max(rank, 2) / (world.size() + 1);
  };
  Range const own{cut(world.rank()), cut(world.rank() + 1)};
  for (std::int64_t const capacity : {1, 5, 9, 50}) {
    auto expected = all;
    std::vector<std::int64_t> taken(num_experts);
    for (std::int64_t k = 0; k < num_choices; ++k)
      for (std::int64_t i = 0; i < num_tokens; ++i) {
        auto& expert = expected[static_cast<std::size_t>(i * num_choices + k)];
        if (++taken[static_cast<std::size_t>(expert)] > capacity) expert = -1;
      }
    std::vector<std::int32_t> found(all.begin() + own.begin * num_choices,
                                    all.begin() + own.end * num_choices);
    auto const counts = count_choices(world, found, num_choices, num_experts, true);
    auto const num_dropped = drop_beyond(capacity, counts, found, num_choices);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin() + own.begin * num_choices))
        << capacity;
    EXPECT_EQ(num_dropped, std::count(found.begin(), found.end(), -1));
    std::int64_t chosen = 0;
    for (std::int64_t e = 0; e < num_experts; ++e)
      chosen += counts.chosen(e);
    EXPECT_EQ(chosen, num_tokens * num_choices);
    if (capacity == num_tokens) {
      EXPECT_EQ(num_dropped, 0);
    }
  }
}

} // namespace
} // namespace orthant::testing

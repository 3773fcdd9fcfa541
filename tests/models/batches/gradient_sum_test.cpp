// SPDX-License-Identifier: Apache-2.0
//
// Sums of gradients over batches and data groups, in buckets of any size, early or at the end of the pass.
#include "models/training/gradient_sum.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orthant::testing {
namespace {

using models::GradientSumSettings, runtime::Operation;

class GradientSums : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  GradientSums()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {
    using pmm::Axis;
    add({{Axis::y, Axis::x}, {7, 5}});
    add({{Axis::y, Axis::x}, {13, 11}});
    add({{Axis::y, Axis::x}, {2, 3}});
  }
  void add(pmm::Placement placement) {
    placement.layout.storage = pmm::Storage::flat_sharded;
    auto& parameter = parameters_.emplace_back();
    parameter.matrix_gradient = stained<double>(grid_, placement);
  }

  /// The gradients of batch k of a group: of parameter p, places of this rank's piece.
  template<class Number>
  void set_gradients(Number const& number, int group, std::int64_t k) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      auto const numbers = host_copy(parameters_[p].gradient());
      for (std::size_t i = 0; i < numbers.extent(0); ++i)
        numbers(i) = number(static_cast<std::uint64_t>(p), static_cast<std::int64_t>(i), 10 * group + k);
      Kokkos::deep_copy(parameters_[p].gradient(), numbers);
    }
  }
  [[nodiscard]] std::vector<double> gradients() const {
    std::vector<double> all;
    for (auto const& parameter : parameters_) {
      auto const numbers = host_copy(parameter.gradient());
      all.insert(all.end(), numbers.data(), numbers.data() + numbers.extent(0));
    }
    return all;
  }

  /// The gradients of a step, summed; those of the last batch are told of one after the other if sums start early.
  template<class Number>
  std::vector<double> summed(Number const& number, std::int64_t num_accumulated,
                             GradientSumSettings const& settings) {
    runtime::DefaultExec const exec;
    models::GradientSum<double> sum(grid_, parameters_, order_, num_accumulated, settings);
    for (std::int64_t k = 0; k < num_accumulated; ++k) {
      set_gradients(number, grid_.coordinate(pmm::Axis::data), k);
      for (std::size_t n = 1; sum.starts_early(k) && n < parameters_.size(); ++n)
        sum.add_early(exec, k, n);
      sum.add(exec, k);
    }
    sum.finish(exec);
    return gradients();
  }

  /// Sums of `work` of all batches of all groups, on this rank alone.
  template<class Number, class Work>
  std::vector<double> sums_of(Number const& number, std::int64_t num_accumulated, Work const& work) {
    std::vector<double> sums;
    for (int group = 0; group < grid_.size(pmm::Axis::data); ++group)
      for (std::int64_t k = 0; k < num_accumulated; ++k) {
        set_gradients(number, group, k);
        auto const addends = gradients();
        sums.resize(addends.size());
        for (std::size_t i = 0; i < sums.size(); ++i)
          sums[i] += work(addends[i]);
      }
    return sums;
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
  std::vector<models::Parameter<double>> parameters_;
  std::vector<std::size_t> order_{2, 0, 1};
};

/// One bucket, several numbers, and one number per bucket; in the pass and behind it.
std::vector<GradientSumSettings> all_settings() {
  std::vector<GradientSumSettings> all;
  for (std::int64_t const bytes : {models::default_bucket_bytes, std::int64_t{100}, std::int64_t{8}})
    for (bool const starts_early : {false, true})
      all.push_back({bytes, starts_early});
  return all;
}

// Sums of small integers have one result, whatever their order.
TEST_P(GradientSums, OfIntegersAreExact) {
  for (std::int64_t const num_accumulated : {1, 3}) {
    auto const expected = sums_of(small_integer, num_accumulated, [](double x) { return x; });
    for (auto const& settings : all_settings())
      EXPECT_EQ(summed(small_integer, num_accumulated, settings), expected) << settings.bucket_bytes;
  }
}

// Two numbers have one sum. An all_reduce of G > 2 adds the numbers of the groups in an order of its own, which may follow
// from the place in the message, so two of its sums differ by at most 2 (G - 1) u sum_g |x_g|.
TEST_P(GradientSums, OfTwoGroupsAreTheSameBitsInBucketsOfAnySize) {
  constexpr auto u = std::numeric_limits<double>::epsilon() / 2;
  auto const num_groups = grid_.size(pmm::Axis::data);
  for (std::int64_t const num_accumulated : {1, 2}) {
    auto const magnitude = sums_of(small_real, num_accumulated, [](double x) { return std::abs(x); });
    auto const expected = summed(small_real, num_accumulated, {models::default_bucket_bytes, false});
    for (auto const& settings : all_settings()) {
      SCOPED_TRACE(settings.bucket_bytes);
      auto const found = summed(small_real, num_accumulated, settings);
      if (num_groups <= 2) {
        EXPECT_EQ(found, expected);
      } else {
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(found[i], expected[i], 2.02 * (num_groups - 1) * u * magnitude[i]);
      }
    }
  }
}

TEST_P(GradientSums, AreTheSameBitsOnAllGroups) {
  for (auto const& settings : all_settings()) {
    auto const own = summed(small_real, 1, settings);
    auto least = own, largest = own;
    runtime::all_reduce(runtime::host, grid_.over(pmm::Axis::data), least, runtime::Reduction::min);
    runtime::all_reduce(runtime::host, grid_.over(pmm::Axis::data), largest, runtime::Reduction::max);
    EXPECT_EQ(least, largest);
  }
}

TEST_P(GradientSums, MakeTheCallsThatAreListed) {
  models::SummedElements summed_here;
  for (auto const& parameter : parameters_)
    summed_here.num_of_all += static_cast<std::int64_t>(parameter.gradient().extent(0));
  for (auto const& settings : all_settings()) {
    SCOPED_TRACE(settings.bucket_bytes);
    pmm::StepPlan list(grid_.shape(), grid_.coordinates(), sizeof(double));
    models::plan_add_gradients(list, summed_here, 0, 1);
    models::plan_gradient_sum(list, summed_here, 1, settings.bucket_bytes);
    clear_ledgers(grid_);
    CountedPasses const passes(grid_);

    static_cast<void>(summed(small_real, 1, settings));

    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
    EXPECT_EQ(passes.list(), passes_of(list));
  }
}

// Between the processors of a node nothing is hidden.
TEST_P(GradientSums, WaitForThePassWhereNothingCanBeHidden) {
  models::GradientSum<double> const by_itself(grid_, parameters_, order_, 2);
  models::GradientSum<double> const early(grid_, parameters_, order_, 2, {8, true});
  auto const has_groups = grid_.size(pmm::Axis::data) > 1;
  EXPECT_EQ(by_itself.starts_early(1), has_groups && !pmm::runs_on_host);
  EXPECT_EQ(early.starts_early(1), has_groups);
  EXPECT_FALSE(early.starts_early(0)) << "only the last batch's gradients are summed over groups";
}

INSTANTIATE_TEST_SUITE_P(AllGrids, GradientSums, ::testing::ValuesIn(grids_4d(world_size())), GridName());

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// Sums of gradients in encoded messages: errors that do not add up, equal bits on all groups and on ranks with copies, the planned calls and
// arrays.
#include "models/training/gradient_sum.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::testing::encoded_gradients {
namespace {

using models::GradientSumSettings, runtime::Wire;

class EncodedGradients : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  EncodedGradients()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {
    add_vector(pmm::Axis::x, 13);
    for (auto const& extents : {pmm::Extents{31, 17}, pmm::Extents{13, 40}}) {
      pmm::Placement placement{{pmm::Axis::y, pmm::Axis::x}, extents};
      placement.layout.storage = pmm::Storage::flat_sharded;
      parameters_.emplace_back().matrix_gradient = stained<float>(grid_, placement);
      add_vector(pmm::Axis::y, 171);
    }
    parameters_.emplace_back().matrix_gradient =
        stained<float>(grid_, pmm::Placement{{pmm::Axis::z, pmm::AxisSet()}, {7, 3}});
    add_vector(pmm::Axis::x, 13);
    parameters_.back().role = models::ParameterRole::statistic;
    order_.resize(parameters_.size());
    std::iota(order_.rbegin(), order_.rend(), std::size_t{0});
  }
  void add_vector(pmm::AxisSet axes, std::int64_t length) {
    auto& parameter = parameters_.emplace_back();
    parameter.role = models::ParameterRole::bias;
    parameter.vector_gradient = pmm::DistVector<float>(grid_, axes, length, "orthant::testing::vector");
  }
  /// Axes of the group along which ranks have copies.
  [[nodiscard]] static pmm::AxisSet copies_of(models::Parameter<float> const& parameter) {
    if (parameter.is_vector()) return pmm::group_axes.without(parameter.vector_gradient.axes());
    auto const& layout = parameter.matrix_gradient.layout();
    return layout.storage == pmm::Storage::replicated ? layout.third() : pmm::AxisSet();
  }

  /// Numbers of this rank's pieces, the same on ranks with copies. `group` and `step` choose other numbers, and the magnitude depends on the
  /// piece.
  void set_gradients(int group, std::int64_t step) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      auto const piece = grid_.coordinate(pmm::group_axes.without(copies_of(parameters_[p])));
      auto const magnitude = static_cast<double>(1 + (static_cast<int>(p) + piece) % 5);
      auto const numbers = host_copy(parameters_[p].gradient());
      for (std::size_t i = 0; i < numbers.extent(0); ++i)
        numbers(i) = static_cast<float>(
            magnitude * small_real(static_cast<std::uint64_t>(100 * p) + static_cast<std::uint64_t>(piece),
                                   static_cast<std::int64_t>(i), 100 * group + step));
      Kokkos::deep_copy(parameters_[p].gradient(), numbers);
    }
  }
  [[nodiscard]] std::vector<float> gradients() const {
    std::vector<float> all;
    for (auto const& parameter : parameters_) {
      auto const numbers = host_copy(parameter.gradient());
      all.insert(all.end(), numbers.data(), numbers.data() + numbers.extent(0));
    }
    return all;
  }
  void sum(models::GradientSum<float>& sums, std::int64_t step) {
    runtime::DefaultExec const exec;
    set_gradients(grid_.coordinate(pmm::Axis::data), step);
    if (sums.starts_early(0)) sums.add_early(exec, 0, 3);
    sums.add(exec, 0);
    sums.finish(exec);
  }

  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
  std::vector<models::Parameter<float>> parameters_;
  std::vector<std::size_t> order_;
};

std::vector<GradientSumSettings> all_settings() {
  std::vector<GradientSumSettings> all;
  for (auto const wire : {Wire::bf16, Wire::fp8, Wire::int8})
    for (std::int64_t const bytes : {models::default_bucket_bytes, std::int64_t{400}})
      for (bool const starts_early : {false, true})
        all.push_back({bytes, starts_early, wire});
  return all;
}

// What a step loses arrives with later ones: after any number of steps, less than the loss of one step is missing.
TEST_P(EncodedGradients, ErrorsDoNotAddUp) {
  auto const num_groups = grid_.size(pmm::Axis::data);
  for (auto const& settings : all_settings()) {
    models::GradientSum<float> sums(grid_, parameters_, order_, 1, settings);
    std::vector<double> missing(gradients().size(), 0);
    auto largest = 0.0;
    for (std::int64_t step = 0; step < 30; ++step) {
      for (int group = 0; group < num_groups; ++group) {
        set_gradients(group, step);
        auto const given = gradients();
        for (std::size_t i = 0; i < given.size(); ++i) {
          missing[i] += static_cast<double>(given[i]);
          largest = std::max(largest, std::abs(static_cast<double>(given[i])));
        }
      }
      sum(sums, step);
      auto const arrived = gradients();
      for (std::size_t i = 0; i < arrived.size(); ++i)
        missing[i] -= static_cast<double>(arrived[i]);
    }
    // Of each group's numbers and of their sum, at most 1/16 is rounded away (fp8), of numbers that residuals raise by as much.
    auto const bound = 2 * num_groups * largest / 16 * 1.2;
    for (auto const number : missing)
      ASSERT_LE(std::abs(number), num_groups == 1 ? 0 : bound);
  }
}

// A rounded variance might be negative.
TEST_P(EncodedGradients, DoNotRoundStatistics) {
  auto const& statistic = parameters_.back();
  for (auto settings : all_settings()) {
    models::GradientSum<float> sums(grid_, parameters_, order_, 1, settings);
    settings.wire = Wire::native;
    models::GradientSum<float> exact_sums(grid_, parameters_, order_, 1, settings);
    for (std::int64_t step = 0; step < 3; ++step) {
      sum(exact_sums, step);
      auto const expected = host_copy(statistic.gradient());
      sum(sums, step);
      auto const found = host_copy(statistic.gradient());
      for (std::size_t i = 0; i < expected.extent(0); ++i)
        EXPECT_NEAR(found(i), expected(i), 1e-5) << "more than another order of the sum";
    }
  }
}

TEST_P(EncodedGradients, AreTheSameBitsOnAllGroups) {
  for (auto const& settings : all_settings()) {
    models::GradientSum<float> sums(grid_, parameters_, order_, 1, settings);
    for (std::int64_t step = 0; step < 3; ++step)
      sum(sums, step);
    auto const own = gradients();
    auto least = own, largest = own;
    runtime::all_reduce(runtime::host, grid_.over(pmm::Axis::data), least, runtime::Reduction::min);
    runtime::all_reduce(runtime::host, grid_.over(pmm::Axis::data), largest, runtime::Reduction::max);
    EXPECT_EQ(least, largest);
  }
}

// Ranks whose other pieces differ in length and in magnitude round copies equally, also what is left of earlier steps.
TEST_P(EncodedGradients, AreTheSameBitsOnRanksWithCopies) {
  for (auto const& settings : all_settings()) {
    models::GradientSum<float> sums(grid_, parameters_, order_, 1, settings);
    for (std::int64_t step = 0; step < 20; ++step) {
      sum(sums, step);
      for (auto const& parameter : parameters_) {
        auto const numbers = host_copy(parameter.gradient());
        std::vector<float> least(numbers.data(), numbers.data() + numbers.extent(0));
        auto largest = least;
        auto const& copies = grid_.over(copies_of(parameter).with(pmm::Axis::data));
        runtime::all_reduce(runtime::host, copies, least, runtime::Reduction::min);
        runtime::all_reduce(runtime::host, copies, largest, runtime::Reduction::max);
        EXPECT_EQ(least, largest) << "step " << step;
      }
    }
  }
}

TEST_P(EncodedGradients, MakeTheCallsAndArraysThatAreListed) {
  for (auto const& settings : all_settings()) {
    SCOPED_TRACE(settings.bucket_bytes);
    models::SummedElements summed{settings.wire};
    for (auto const& parameter : parameters_)
      summed.add(parameter.role, false, static_cast<std::int64_t>(parameter.gradient().extent(0)),
                 parameter.reserved_length(settings.wire));
    pmm::StepPlan list(grid_.shape(), grid_.coordinates(), sizeof(float));
    models::plan_gradient_sum_array(list, summed, 1);
    models::plan_add_gradients(list, summed, 0, 1);
    models::plan_gradient_sum(list, summed, 1, settings.bucket_bytes);
    models::GradientSum<float> sums(grid_, parameters_, order_, 1, settings);
    clear_ledgers(grid_);

    sum(sums, 0);

    EXPECT_EQ(counted_calls(grid_), planned_calls(list));
    auto const num_arrays = grid_.size(pmm::Axis::data) > 1 ? 2U : 0U; // the sum and the residuals
    EXPECT_EQ(list.arrays().size(), num_arrays);
  }
}

TEST_P(EncodedGradients, RefuseFp16) {
  EXPECT_THROW(models::GradientSum<float>(grid_, parameters_, order_, 1,
                                          GradientSumSettings{models::default_bucket_bytes, {}, Wire::fp16}),
               runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(AllGrids, EncodedGradients, ::testing::ValuesIn(grids_4d(world_size())), GridName());

} // namespace
} // namespace orthant::testing::encoded_gradients

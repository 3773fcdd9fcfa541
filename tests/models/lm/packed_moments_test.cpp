// SPDX-License-Identifier: Apache-2.0
//
// Moments in bf16 and in 8 bits: a step beside a serial one, what rounding does to numbers, checkpoints, memory, and a training.
#include "models/training/packed_moments.hpp"

#include "models/lm/checkpointed_training.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/plan/step_cases.hpp"
#include "support/live_arrays.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <array>
#include <cmath>
#include <tuple>

namespace orthant::testing {
namespace {

using models::MomentFormat, models::OptimizerKind;
constexpr auto packed_formats = {MomentFormat::bf16, MomentFormat::int8};

/// The neighbors of a number among those that can be stored, by search in all codes.
std::pair<double, double> neighbors(MomentFormat format, bool is_positive, double number, double scale) {
  std::pair<double, double> found{-INFINITY, INFINITY};
  auto const add = [&](double candidate) {
    if (candidate <= number) found.first = std::max(found.first, candidate);
    if (candidate >= number) found.second = std::min(found.second, candidate);
  };
  if (format == MomentFormat::bf16) {
    for (std::uint32_t code = 0; code < 0x10000U; ++code)
      if (auto const value = runtime::decode_bf16(static_cast<std::uint16_t>(code)); std::isfinite(value))
        add(value);
    return found;
  }
  for (int k = is_positive ? 0 : -127; k <= (is_positive ? 255 : 127); ++k)
    add(is_positive ? scale * std::pow(k / 255.0, 4) : scale * std::copysign(std::pow(k / 127.0, 2), k));
  return found;
}

/// Gradients of one parameter of three blocks, of which the last is not full, and of one of less than a block.
constexpr std::array<std::size_t, 2> lengths{600, 7};

struct OneParameter {
  runtime::Vector<float> value, gradient;
};

class PackedSteps {
 public:
  PackedSteps(OptimizerKind kind, MomentFormat format) {
    settings_.kind = kind;
    settings_.moments = format;
    settings_.learning_rate = 0.01;
    std::vector<models::ParameterShard<float>> shards;
    for (auto const length : lengths) {
      parameters_.push_back(
          {runtime::Vector<float>("value", length), runtime::Vector<float>("gradient", length)});
      shards.push_back({parameters_.back().value, parameters_.back().gradient, 0.1});
    }
    optimizer_.emplace(settings_, shards);
    Kokkos::deep_copy(scale_, 0.5);
  }
  [[nodiscard]] models::OptimizerSettings const& settings() const { return settings_; }
  [[nodiscard]] std::vector<double> value(std::size_t p) const { return host(parameters_[p].value); }
  [[nodiscard]] std::vector<std::vector<double>> moments(std::size_t p) const {
    std::vector<std::vector<double>> all;
    for (auto const& array : optimizer_->arrays(p))
      array.packed.read(all.emplace_back());
    return all;
  }
  [[nodiscard]] models::Optimizer<float>& optimizer() { return *optimizer_; }
  [[nodiscard]] static double gradient(std::size_t p, std::int64_t step, std::size_t i) {
    auto const random = runtime::RandomStream(3, runtime::Purpose::weights, static_cast<std::uint64_t>(step),
                                              static_cast<std::uint32_t>(p))
                            .normal<float>(i);
    return i % 50 == 3 ? 0.0F : random * std::pow(10.0F, static_cast<float>(i % 5) - 4.0F);
  }
  void step(std::int64_t t) {
    for (std::size_t p = 0; p < lengths.size(); ++p) {
      auto const gradients = Kokkos::create_mirror_view(parameters_[p].gradient);
      for (std::size_t i = 0; i < lengths[p]; ++i)
        gradients(i) = static_cast<float>(gradient(p, t, i));
      Kokkos::deep_copy(parameters_[p].gradient, gradients);
    }
    optimizer_->step({}, passes_, runtime::number_at(numbers_, 0), runtime::number_at(numbers_, 1));
    Kokkos::fence();
  }

 private:
  static std::vector<double> host(runtime::Vector<float> const& from) {
    auto const copy = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), from);
    return {copy.data(), copy.data() + copy.extent(0)};
  }
  models::OptimizerSettings settings_;
  std::vector<OneParameter> parameters_;
  std::optional<models::Optimizer<float>> optimizer_;
  runtime::PassLedger passes_;
  runtime::Vector<double> numbers_{"numbers", 2};
  runtime::Vector<double> scale_ = Kokkos::subview(numbers_, std::pair<std::size_t, std::size_t>(0, 1));
};

/// What the serial formulas make of a parameter.
struct SerialStep {
  std::vector<double> value, first, second;
};
SerialStep serial_step(PackedSteps const& steps, std::size_t p, std::int64_t t) {
  auto const& settings = steps.settings();
  auto const is_lion = settings.kind == OptimizerKind::lion;
  auto const moments = steps.moments(p);
  SerialStep next{steps.value(p), moments[0], is_lion ? std::vector<double>(lengths[p]) : moments[1]};
  auto const [b1, b2, rate] = std::tuple(settings.beta1, settings.beta2, settings.learning_rate);
  for (std::size_t i = 0; i < lengths[p]; ++i) {
    auto const g = 0.5 * PackedSteps::gradient(p, t, i);
    auto& w = next.value[i];
    auto& m = next.first[i];
    if (is_lion) {
      auto const direction = b1 * m + (1 - b1) * g;
      w -= rate * ((direction > 0) - (direction < 0) + 0.1 * w);
      m = b2 * m + (1 - b2) * g;
      continue;
    }
    m = b1 * m + (1 - b1) * g;
    auto& v = next.second[i] = b2 * next.second[i] + (1 - b2) * g * g;
    auto const [c1, c2] = std::pair(1 - std::pow(b1, t), 1 - std::pow(b2, t));
    w = w * (1 - rate * 0.1) - rate * m / c1 / (std::sqrt(v / c2) + settings.epsilon);
  }
  return next;
}

void expect_neighbors(MomentFormat format, bool is_positive, std::vector<double> const& found,
                      std::vector<double> const& exact) {
  constexpr std::size_t block = 256;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    auto const begin = i / block * block;
    auto scale = 0.0;
    for (auto k = begin; k < std::min(begin + block, exact.size()); ++k)
      scale = std::max(scale, std::abs(exact[k]));
    auto const [below, above] = neighbors(format, is_positive, exact[i], scale);
    auto const rounding = 4e-5 * std::abs(exact[i]) + 1e-40; // 1 - 0.999 in fp32
    auto const is_neighbor = std::abs(found[i] - below) <= rounding ||
                             std::abs(found[i] - above) <= rounding ||
                             (found[i] >= below - rounding && found[i] <= above + rounding);
    EXPECT_TRUE(is_neighbor) << i << ": " << found[i] << " for " << exact[i] << " in " << below << ", "
                             << above;
    if (is_positive && exact[i] > 0) {
      EXPECT_GT(found[i], 0) << i;
    }
  }
}

TEST(PackedMoments, StepAsSerialOnesFromTheNumbersThatAreStored) {
  for (auto const kind : {OptimizerKind::adamw, OptimizerKind::lion})
    for (auto const format : packed_formats) {
      PackedSteps steps(kind, format);
      for (std::int64_t t = 1; t <= 10; ++t) {
        SCOPED_TRACE(::testing::Message() << (kind == OptimizerKind::lion ? "lion" : "adamw") << ", format "
                                          << static_cast<int>(format) << ", step " << t);
        std::array const expected{serial_step(steps, 0, t), serial_step(steps, 1, t)};
        steps.step(t);
        for (std::size_t p = 0; p < lengths.size(); ++p) {
          auto const value = steps.value(p);
          auto const moments = steps.moments(p);
          for (std::size_t i = 0; i < value.size(); ++i)
            EXPECT_NEAR(value[i], expected[p].value[i], 1e-5 * std::abs(expected[p].value[i]) + 1e-7) << i;
          if (format == MomentFormat::bf16 && t > 1) continue; // the search in all codes takes long
          expect_neighbors(format, false, moments[0], expected[p].first);
          if (kind == OptimizerKind::adamw) expect_neighbors(format, true, moments[1], expected[p].second);
        }
      }
    }
}

// A number between two codes becomes either, and the mean is the number: n draws of a difference d deviate by d / sqrt(4 n) at most.
TEST(PackedMoments, RoundToTheNumberOnAverage) {
  constexpr int num_draws = 100'000;
  for (auto const is_positive : {false, true})
    for (float const number : {0.37F, 0.011F, 0.9991F}) {
      auto sum_of_codes = 0.0, sum_of_halves = 0.0;
      for (int k = 0; k < num_draws; ++k) {
        auto const bits = models::detail::random_bits(7, static_cast<std::uint64_t>(k));
        auto const draw = static_cast<float>(bits & 0xffffffU) * 0x1p-24F;
        sum_of_codes +=
            models::detail::value_of_code(is_positive, models::detail::code_of(is_positive, number, 1, draw));
        sum_of_halves +=
            runtime::decode_bf16(models::detail::half_of(number, static_cast<std::uint32_t>(bits & 0xffffU)));
      }
      auto const check = [&](MomentFormat format, double sum) {
        auto const [below, above] = neighbors(format, is_positive, number, 1);
        EXPECT_NEAR(sum / num_draws, number, 5 * (above - below) / std::sqrt(4.0 * num_draws) + 1e-7);
      };
      check(MomentFormat::int8, sum_of_codes);
      check(MomentFormat::bf16, sum_of_halves);
    }
}

TEST(PackedMoments, StayTheSameIfTheyAreReadAndWritten) {
  for (auto const format : packed_formats) {
    PackedSteps steps(OptimizerKind::adamw, format);
    for (std::int64_t t = 1; t <= 4; ++t)
      steps.step(t);
    for (std::size_t p = 0; p < lengths.size(); ++p) {
      auto const before = steps.moments(p);
      for (std::size_t m = 0; auto const& array : steps.optimizer().arrays(p))
        array.packed.write(before[m++]);
      EXPECT_EQ(steps.moments(p), before);
    }
  }
}

TEST(PackedMoments, NamesAreKnown) {
  EXPECT_EQ(models::parse_moments("fp32"), MomentFormat::native);
  EXPECT_EQ(models::parse_moments("int8"), MomentFormat::int8);
  EXPECT_EQ(test::message_of([] { static_cast<void>(models::parse_moments("int4")); }),
            "--moments is fp32, bf16 or int8, not 'int4'");
}

class PackedTraining : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  PackedTraining()
      : world_(MPI_COMM_WORLD, "world"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}
  [[nodiscard]] static models::TrainSettings settings(MomentFormat format, int stage = 0) {
    models::TrainSettings settings;
    settings.optimizer.kind = OptimizerKind::adamw;
    settings.optimizer.learning_rate = 0.003;
    settings.optimizer.moments = format;
    settings.optimizer.zero_stage = stage;
    settings.clip_norm = 1;
    return settings;
  }
  runtime::Communicator world_;
  pmm::ProcessGrid grid_;
};

TEST_P(PackedTraining, LearnsAsWithWholeMoments) {
  auto const the_case = small_gpt();
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  auto const last_loss = [&](MomentFormat format) {
    LmTrainer training(grid_, the_case, 1, 1, settings(format)); // every run has the same batch
    std::vector<double> losses;
    for (int step = 0; step < 100; ++step) {
      training.trainer().run([](auto const&) {});
      losses.push_back(training.trainer().step_losses().front());
    }
    EXPECT_LT(losses.back(), losses.front() - 0.5);
    return losses.back();
  };
  auto const expected = last_loss(MomentFormat::native);
  for (auto const format : packed_formats)
    EXPECT_NEAR(last_loss(format), expected, 0.02 * expected);
}

/// Ranks along x and z have the same norms, whose random bits do not depend on what the ranks have besides: blocks of 65 rows that x
/// splits are unequal.
TEST_P(PackedTraining, KeepsCopiesEqual) {
  auto the_case = small_gpt();
  the_case.settings = models::gpt2_settings(1, 128, 4, 65, 6);
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  for (auto const format : packed_formats)
    for (auto const stage : {0, 1}) {
      LmTrainer training(grid_, the_case, 1, 1, settings(format, stage));
      for (int step = 0; step < 5; ++step)
        training.trainer().run([](auto const&) {});
      for (auto const& parameter : training.network().parameters()) {
        if (parameter.name.find("ln_") == std::string::npos) continue;
        auto const values = host_copy(parameter.value());
        std::vector<double> most(values.data(), values.data() + values.extent(0));
        auto least = most;
        auto const& copies = grid_.over({pmm::Axis::x, pmm::Axis::z});
        runtime::all_reduce(runtime::host, copies, std::span(most), runtime::Reduction::max);
        runtime::all_reduce(runtime::host, copies, std::span(least), runtime::Reduction::min);
        EXPECT_EQ(most, least) << parameter.name;
      }
    }
}

TEST_P(PackedTraining, HoldsAndDoesWhatIsListed) {
  auto const the_case = small_gpt();
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  for (auto const format : packed_formats)
    for (int const stage : {0, 1}) {
      auto const how = settings(format, stage);
      auto const plan = plan_transformer(grid_.shape(), grid_.coordinates(), the_case.settings,
                                         the_case.num_sequences, the_case.sequence);
      auto list = step_of<double>(grid_);
      plan_language_model_step(list, plan, {}, how.optimizer);
      auto arrays = step_of<double>(grid_);
      plan_language_model_arrays(arrays, plan, {}, how.optimizer);
      LiveArrays const live;
      LmTrainer trainer(grid_, the_case, 2, 1, how);
      auto const found = live.by_label(), planned = live.planned(arrays, {pmm::Lifetime::training});
      models::TrainProgress progress;
      trainer.trainer().train_epoch(progress, [](auto const&) { return true; });
      CountedWork const counted(grid_);
      trainer.trainer().train_epoch(progress, {});
      EXPECT_EQ(counted.passes(), passes_of(list));
      if (!pmm::runs_on_host) continue;
      for (auto const* const label :
           {"first_moment", "second_moment", "first_moment/scales", "second_moment/scales"}) {
        auto const of = [&](ArraysByLabel const& all) {
          auto const place = all.find(std::string("orthant::models::") + label);
          return place == all.end() ? std::multiset<std::int64_t>() : place->second;
        };
        EXPECT_EQ(of(found), of(planned)) << label;
      }
    }
}

// The same grid and stage, so that blocks are the same: to the bit.
TEST_P(PackedTraining, ContinuesFromACheckpointToTheBit) {
  auto const the_case = small_gpt();
  if (!fits(the_case, grid_.shape())) GTEST_SKIP() << "cannot be cut";
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  for (auto const format : packed_formats) {
    auto const path = folder.file("after-3-" + std::to_string(static_cast<int>(format)) + ".h5");
    LmTrainer training(grid_, the_case, 6, 1, settings(format, 1));
    auto const progress = train_to_checkpoint(world_, grid_, training, 3, path);
    training.trainer().run([](auto const&) {}, progress);

    LmTrainer again(grid_, the_case, 6, 1, settings(format, 1));
    EXPECT_EQ(train_from_checkpoint(grid_, again, path), training.trainer().step_losses());
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, PackedTraining, ::testing::ValuesIn(grids_4d(world_size())), GridName());

} // namespace
} // namespace orthant::testing

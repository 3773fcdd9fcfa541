// SPDX-License-Identifier: Apache-2.0
//
// Pruned training (SAMO) on every grid, with experts and in pipelines: beside a serial training with masked gradients, and beside dense training to
// the bit; which entries are kept.
#include "models/lm/pruned_cases.hpp"
#include "models/training/pruning/pruned_weights.hpp"

namespace orthant::testing {
namespace {

/// Training on one rank, with dense gradients that are masked, and AdamW by its formulas.
class SerialTraining {
 public:
  SerialTraining(pmm::ProcessGrid const& one, LmCase const& the_case, models::TrainSettings settings,
                 std::int64_t num_accumulated)
      : case_(the_case),
        settings_(std::move(settings)),
        num_accumulated_(num_accumulated),
        network_(one, the_case.settings, the_case.num_sequences, the_case.sequence, lm_seed),
        loss_(one, network_.logits_placement(), pmm::LossKind::softmax),
        batches_(the_case, network_, loss_, 1, num_accumulated) {
    set_formula_parameters(network_.parameters());
    for (auto const& parameter : network_.parameters())
      for (auto* const moment : {&first_, &second_})
        moment->emplace_back(parameter.value().extent(0), 0.0);
  }

  LmTraining run(std::int64_t num_steps) {
    LmTraining result;
    for (std::int64_t step = 0; step < num_steps; ++step) {
      if (step == settings_.optimizer.pruning.num_steps) prune();
      result.losses.push_back(train_step(step + 1));
    }
    for (auto const& parameter : network_.parameters())
      result.parameters.push_back(whole_of(parameter, parameter.value(), false));
    return result;
  }

 private:
  using Numbers = std::vector<std::vector<double>>; // of each parameter

  void prune() {
    std::vector<double> all;
    for (auto const& parameter : network_.parameters()) {
      auto const values = host_copy(parameter.value());
      if (parameter.is_prunable) all.insert(all.end(), values.data(), values.data() + values.extent(0));
    }
    auto const threshold = threshold_of(all, settings_.optimizer.pruning.share);
    for (auto const& parameter : network_.parameters()) {
      auto const values = host_copy(parameter.value());
      auto& mask = masks_.emplace_back(values.extent(0), 1.0);
      for (std::size_t i = 0; i < mask.size(); ++i)
        if (parameter.is_prunable && !is_kept(values(i), threshold)) values(i) = mask[i] = 0;
      Kokkos::deep_copy(parameter.value(), values);
    }
  }

  /// The sum of the gradients of the passes, masked; adds the loss of each pass.
  Numbers gradients(std::int64_t step, double& loss) {
    runtime::DefaultExec const exec;
    runtime::PhaseTimes phases;
    std::int64_t count = 0;
    for (std::int64_t k = 0; k < num_accumulated_; ++k)
      count += LmBatch(case_, {0, case_.num_sequences}, (step - 1) * num_accumulated_ + k).num_kept();
    Numbers sums;
    for (std::int64_t k = 0; k < num_accumulated_; ++k) {
      auto const key = batches_.next(0, phases);
      auto const& logits = network_.forward(exec, models::Pass::training, key, phases);
      loss += loss_.loss_and_gradient(exec, logits, network_.logits_gradient(), count);
      network_.backward(exec, phases);
      Kokkos::fence();
      for (std::size_t p = 0; p < network_.parameters().size(); ++p) {
        auto const gradient = host_copy(network_.parameters()[p].gradient());
        if (k == 0) sums.emplace_back(gradient.extent(0), 0.0);
        for (std::size_t i = 0; i < gradient.extent(0); ++i)
          sums[p][i] += gradient(i) * (masks_.empty() ? 1 : masks_[p][i]);
      }
    }
    return sums;
  }

  double train_step(std::int64_t t) {
    auto loss = 0.0;
    auto const sums = gradients(t, loss);
    auto squares = 0.0;
    for (auto const& gradient : sums)
      for (auto const g : gradient)
        squares += g * g;
    auto const scale =
        settings_.clip_norm ? std::min(1.0, *settings_.clip_norm / (std::sqrt(squares) + 1e-6)) : 1.0;
    auto const& [b1, b2, rate] =
        std::tuple(settings_.optimizer.beta1, settings_.optimizer.beta2, settings_.optimizer.learning_rate);
    for (std::size_t p = 0; p < sums.size(); ++p) {
      auto const& parameter = network_.parameters()[p];
      auto const values = host_copy(parameter.value());
      auto const decay = parameter.role == models::ParameterRole::weight ? settings_.weight_decay : 0;
      for (std::size_t i = 0; i < sums[p].size(); ++i) {
        auto const g = scale * sums[p][i];
        auto const m = first_[p][i] = b1 * first_[p][i] + (1 - b1) * g;
        auto const v = second_[p][i] = b2 * second_[p][i] + (1 - b2) * g * g;
        auto const of_moments =
            m / (1 - std::pow(b1, t)) / (std::sqrt(v / (1 - std::pow(b2, t))) + settings_.optimizer.epsilon);
        auto const mask = masks_.empty() ? 1 : masks_[p][i]; // old moments of other entries are 0
        values(i) = mask * (values(i) * (1 - rate * decay) - rate * of_moments);
      }
      Kokkos::deep_copy(parameter.value(), values);
    }
    return loss;
  }

  LmCase case_;
  models::TrainSettings settings_;
  std::int64_t num_accumulated_;
  models::Transformer<double> network_;
  pmm::RowLoss<double> loss_;
  FormulaBatches<double> batches_;
  Numbers first_, second_, masks_; // masks: empty before the weights are pruned
};

TEST_P(PrunedTraining, IsThatOfOneRankWithMaskedGradients) {
  struct Run {
    PruneSettings pruning;
    std::int64_t num_accumulated;
    std::optional<double> clip_norm;
  };
  for (auto const& [name, the_case] : pruned_cases()) {
    if (!can_train(the_case)) continue;
    for (auto const& [pruning, num_accumulated, clip_norm] :
         {Run{{0.8, 0}, 1, {}}, Run{{0.8, 3}, 2, 0.5}, Run{{0.35, 0}, 2, 0.5}}) {
      SCOPED_TRACE(::testing::Message() << name << ", " << pruning.share << " after " << pruning.num_steps);
      auto const settings = settings_of(pruning, OptimizerKind::adamw, clip_norm);
      auto const expected = SerialTraining(one_, the_case, settings, num_accumulated).run(8);
      auto of_grid =
          the_case; // gradients that share memory are taken in whatever order a pass completes them
      of_grid.settings.splits_backward =
          grid_.size(Axis::pipe) > 1 && num_accumulated > 1 && !the_case.settings.experts.is_on();
      of_grid.settings.checkpoint_every = of_grid.settings.splits_backward ? 0 : 1;
      auto const found = train(grid_, of_grid, settings, num_accumulated);
      ASSERT_EQ(found.losses.size(), expected.losses.size());
      for (std::size_t s = 0; s < expected.losses.size(); ++s)
        EXPECT_NEAR(found.losses[s], expected.losses[s], 1e-10 * expected.losses[s]) << "step " << s;
      // Adam divides gradients that are zero but for rounding by its epsilon, such as that of a key's bias.
      auto largest = 0.0;
      for (std::size_t p = 0; p < expected.parameters.size(); ++p)
        for (std::size_t k = 0; k < expected.parameters[p].numbers.size(); ++k) {
          auto const here = found.parameters[p].numbers[k], there = expected.parameters[p].numbers[k];
          largest = std::max(largest, (here == 0) == (there == 0) ? std::abs(here - there) : INFINITY);
        }
      EXPECT_LT(largest, 1e-8);
    }
  }
}

/// This rank's numbers of each prunable weight := 0 if its magnitude at first was below the threshold.
class Projection {
 public:
  Projection(std::vector<Parameter<double>> const& parameters, double share) {
    std::vector<double> all;
    for (auto const& parameter : parameters) {
      if (!parameter.is_prunable) continue;
      auto const whole = whole_of(parameter, parameter.value(), false);
      all.insert(all.end(), whole.numbers.begin(), whole.numbers.end());
    }
    auto const threshold = threshold_of(all, share);
    for (auto const& parameter : parameters) {
      auto const values = host_copy(parameter.value());
      auto& mask = masks_.emplace_back();
      for (std::size_t i = 0; i < values.extent(0); ++i)
        mask.push_back(!parameter.is_prunable || is_kept(values(i), threshold));
    }
  }
  void apply(std::vector<Parameter<double>> const& parameters) const {
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      auto const values = host_copy(parameters[p].value());
      for (std::size_t i = 0; i < values.extent(0); ++i)
        if (!masks_[p][i]) values(i) = 0;
      Kokkos::deep_copy(parameters[p].value(), values);
    }
  }

 private:
  std::vector<std::vector<bool>> masks_;
};

// Without clipping an entry is updated by its own gradient, so dense training whose pruned weights are set to 0 before each step has the
// gradients of pruned training. Sums of more than two numbers have an order, which depends on where they are in a message.
TEST_P(PrunedTraining, IsDenseTrainingWithAMaskToTheBit) {
  if (num_batch_ranks() > 2) GTEST_SKIP() << "equal to rounding";
  for (auto const& [name, the_case] : pruned_cases())
    for (auto const kind : {OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::sgd})
      for (std::int64_t const num_accumulated : {1, 2}) {
        if (!can_train(the_case)) continue;
        SCOPED_TRACE(::testing::Message() << name << ", " << static_cast<int>(kind));
        auto const found = train(grid_, the_case, settings_of({0.8, 0}, kind), num_accumulated);
        LmTrainer dense(grid_, the_case, 8, num_accumulated, settings_of({}, kind));
        auto const& parameters = dense.network().parameters();
        Projection const projection(parameters, 0.8);
        std::vector<double> losses;
        models::TrainProgress progress;
        projection.apply(parameters);
        for (auto is_last = false; !is_last; projection.apply(parameters)) {
          is_last = dense.trainer().train_epoch(progress, [](auto const&) { return true; }).has_value();
          losses.push_back(dense.trainer().step_losses().front());
        }
        EXPECT_EQ(found.losses, losses);
        for (std::size_t p = 0; p < parameters.size(); ++p)
          EXPECT_EQ(found.parameters[p].numbers,
                    whole_of(parameters[p], parameters[p].value(), false).numbers)
              << parameters[p].name;
      }
}

/// Small integers, so that many have the magnitude of the threshold.
float tied_number(std::size_t p, std::int64_t i, std::int64_t j) {
  return static_cast<float>((static_cast<std::int64_t>(p) + 7 * i * i + 3 * j + i * j) % 11 - 5);
}

TEST_P(PrunedTraining, KeepsEntriesThatEqualTheThresholdAndNoZeros) {
  for (auto const& [name, the_case] : pruned_cases()) {
    if (!can_train(the_case)) continue;
    models::Transformer<float> network(grid_, the_case.settings, the_case.num_sequences, the_case.sequence,
                                       1);
    auto const& parameters = network.parameters();
    std::vector<double> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].is_prunable) continue;
      for (std::int64_t i = 0; i < parameters[p].matrix.extents().rows; ++i)
        for (std::int64_t j = 0; j < parameters[p].matrix.extents().columns; ++j)
          all.push_back(tied_number(p, i, j));
    }
    for (double const share : {0.05, 0.5, 0.99999}) {
      SCOPED_TRACE(::testing::Message() << name << ", " << share);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (!parameters[p].is_prunable) continue;
        auto const values = host_copy(parameters[p].value());
        for_each_element(parameters[p], [&](std::int64_t i, std::int64_t j, std::size_t place) {
          values(place) = tied_number(p, i, j);
        });
        Kokkos::deep_copy(parameters[p].value(), values);
      }
      models::PrunedWeights<float> pruned(grid_, parameters, {share, 0});
      pruned.choose({});
      auto const threshold = threshold_of(all, share);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (!parameters[p].is_prunable) continue;
        auto const values = host_copy(parameters[p].value());
        std::vector<std::int32_t> places;
        for_each_element(parameters[p], [&](std::int64_t i, std::int64_t j, std::size_t place) {
          auto const expected = is_kept(tied_number(p, i, j), threshold) ? tied_number(p, i, j) : 0.0F;
          EXPECT_EQ(values(place), expected) << parameters[p].name << ", " << i << ", " << j;
          if (expected != 0) places.push_back(static_cast<std::int32_t>(place));
        });
        auto const kept = host_copy(*pruned.kept(p));
        std::ranges::sort(places);
        EXPECT_EQ(std::vector<std::int32_t>(kept.data(), kept.data() + kept.extent(0)), places);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, PrunedTraining, ::testing::ValuesIn(pruning_grids()), GridName());

TEST(PruneSettings, KeepWhatIsNotPrunedAndAtLeastOneEntry) {
  PruneSettings const most{0.8, 5};
  EXPECT_EQ(most.num_kept(1000), 200);
  EXPECT_EQ(most.num_kept(7), 2); // floor(5.6) are pruned
  EXPECT_EQ(most.num_kept(0), 0);
  EXPECT_EQ((PruneSettings{0.9999, 0}.num_kept(100)), 1);
  EXPECT_TRUE(most.is_pruned_after(6));
  EXPECT_FALSE(most.is_pruned_after(5));
  EXPECT_FALSE(PruneSettings().is_pruned_after(5));
}

} // namespace
} // namespace orthant::testing

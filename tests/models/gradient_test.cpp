// SPDX-License-Identifier: Apache-2.0
//
// Every gradient against central differences of the loss, and the optimisers against their formulas.
#include "models/parameters/device_copy.hpp"
#include "models_fixture.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace orthant::testing {
namespace {

/// loss(parameter + h) and loss(parameter - h) for every entry, on one rank.
void expect_gradients_match(models::NetworkSettings const& settings) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  auto store = store_of_dataset(self, "sbm:vertices=31,edges=90,features=5,classes=3");
  auto with_operator = settings;
  models::use_operator(store, with_operator);
  models::GraphNetwork<double> model(grid, store, settings);
  for (auto const& parameter : model.parameters()) {
    if (!parameter.is_vector()) continue;
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    for (std::size_t j = 0; j < numbers.extent(0); ++j)
      // Biases of 0 and scales of 1 would hide mistakes, and a bias of 0 can be a kink of the ReLU behind it.
      numbers(j) += 0.15 * (static_cast<double>(j) + 0.3);
    Kokkos::deep_copy(parameter.value(), numbers);
  }
  auto loss = models::make_vertex_loss<double>(grid, store, model.plan().logits());
  runtime::PhaseTimes phases;
  runtime::DefaultExec const exec;
  auto const loss_now = [&] {
    auto const& logits = model.forward(exec, models::Pass::training, 1, phases);
    return loss.loss_and_gradient(exec, logits, model.logits_gradient());
  };
  static_cast<void>(loss_now());
  model.backward(exec, phases);

  constexpr auto h = 1e-6;
  for (auto const& parameter : model.parameters()) {
    if (!parameter.is_trained()) continue;
    auto const value = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    auto const derivatives = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.gradient());
    std::vector<double> const gradient(derivatives.data(), derivatives.data() + value.extent(0));
    auto const loss_at = [&](std::size_t i, double number) {
      value(i) = number;
      Kokkos::deep_copy(parameter.value(), value);
      return loss_now();
    };
    for (std::size_t i = 0; i < value.extent(0); ++i) {
      auto const kept = value(i);
      auto const above = loss_at(i, kept + h);
      auto const below = loss_at(i, kept - h);
      value(i) = kept;
      // Truncation h^2 and cancellation 1e-16 / h are both below 1e-9; a kink of the ReLU within h would
      // show.
      EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-7) << parameter.name << " entry " << i;
    }
    Kokkos::deep_copy(parameter.value(), value);
  }
}

TEST(NetworkGradient, MatchesFiniteDifferences) {
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first}) {
    models::NetworkSettings settings;
    settings.set_layers(3, 4);
    settings.dropout = 0.3;
    settings.order = order;
    settings.trains_features = true;
    settings.seed = 4;
    expect_gradients_match(settings);
  }
}

TEST(NetworkGradient, MatchesFiniteDifferencesWithEveryPart) {
  for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
    for (auto const parts : {1, 2, 4, 8, 15}) {
      models::NetworkSettings settings;
      settings.norm = (parts & 1) != 0 ? models::Norm::rms : models::Norm::none;
      settings.has_residuals = (parts & 2) != 0;
      settings.projected_width = (parts & 4) != 0 ? 4 : 0;
      settings.has_head = (parts & 8) != 0;
      settings.set_layers(3, 4);
      settings.dropout = 0.3;
      settings.order = order;
      settings.trains_features = true;
      settings.seed = 4;
      expect_gradients_match(settings);
    }
}

TEST(NetworkGradient, MatchesFiniteDifferencesWithOtherActivations) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const activation : {models::Activation::elu, models::Activation::gelu, models::Activation::silu,
                                  models::Activation::leaky_relu, models::Activation::tanh})
      for (auto const has_residuals : {false, true}) {
        models::NetworkSettings settings;
        settings.activation = activation;
        settings.has_residuals = has_residuals;
        settings.set_layers(3, 4);
        settings.dropout = 0.3;
        settings.schedule = schedule;
        settings.seed = 4;
        expect_gradients_match(settings);
      }
}

TEST(NormGradient, MatchesFiniteDifferences) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const norm : {models::Norm::rms, models::Norm::layer, models::Norm::batch})
      for (auto const activation : {models::Activation::relu, models::Activation::gelu})
        for (auto const has_residuals : {false, true}) {
          models::NetworkSettings settings;
          settings.norm = norm;
          settings.activation = activation;
          settings.has_residuals = has_residuals;
          settings.set_layers(3, 4);
          settings.dropout = 0.3;
          settings.schedule = schedule;
          settings.seed = 4;
          expect_gradients_match(settings);
        }
}

TEST(PropagationGradient, MatchesFiniteDifferences) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const model : {models::Model::sgc, models::Model::appnp, models::Model::gcnii})
      for (auto const has_parts : {false, true}) {
        models::NetworkSettings settings;
        set_model(settings, model);
        settings.set_layers(model == models::Model::sgc ? 1 : 3, 4);
        settings.num_propagations = has_parts ? 4 : 3;
        settings.trains_features = true;
        settings.norm = has_parts && model != models::Model::sgc ? models::Norm::rms : models::Norm::none;
        settings.dropout = 0.3;
        settings.schedule = schedule;
        settings.seed = 4;
        expect_gradients_match(settings);
      }
}

TEST(GinGradient, MatchesFiniteDifferences) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
      for (auto const has_parts : {false, true}) {
        models::NetworkSettings settings;
        set_model(settings, models::Model::gin);
        settings.norm = has_parts ? models::Norm::rms : models::Norm::none;
        settings.trains_features = true;
        settings.projected_width = has_parts ? 4 : 0;
        settings.set_layers(3, 4);
        settings.dropout = 0.3;
        settings.order = order;
        settings.schedule = schedule;
        settings.seed = 4;
        expect_gradients_match(settings);
      }
}

TEST(SageMaximumGradient, MatchesFiniteDifferences) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const has_parts : {false, true}) {
      models::NetworkSettings settings;
      settings.norm = has_parts ? models::Norm::layer : models::Norm::none;
      settings.has_residuals = settings.has_head = has_parts;
      settings.trains_features = true;
      settings.projected_width = has_parts ? 4 : 0;
      set_model(settings, models::Model::sage, models::Aggregator::max);
      settings.set_layers(3, 4);
      settings.dropout = 0.3;
      settings.schedule = schedule;
      settings.seed = 4;
      expect_gradients_match(settings);
    }
}

TEST(GatGradient, MatchesFiniteDifferences) {
  for (auto const model : {models::Model::gat, models::Model::gatv2, models::Model::transformer})
    for (auto const has_parts : {false, true}) {
      models::NetworkSettings settings;
      set_model(settings, model);
      settings.num_heads = 2;
      settings.num_output_heads = has_parts ? 1 : 2;
      settings.activation = has_parts ? models::Activation::relu : models::Activation::elu;
      settings.norm = has_parts ? models::Norm::rms : models::Norm::none;
      settings.has_residuals = has_parts;
      settings.trains_features = true;
      settings.projected_width = has_parts ? 4 : 0;
      settings.set_layers(3, 4);
      settings.dropout = settings.attention_dropout = 0.3;
      settings.seed = 4;
      expect_gradients_match(settings);
    }
}

TEST(PowersGradient, MatchesFiniteDifferences) {
  for (auto const has_parts : {false, true}) {
    models::NetworkSettings settings;
    settings.norm = has_parts ? models::Norm::layer : models::Norm::none;
    settings.has_residuals = settings.has_head = has_parts;
    settings.projected_width = has_parts ? 4 : 0;
    settings.trains_features = has_parts;
    set_model(settings, models::Model::tag);
    settings.num_propagations = has_parts ? 3 : 2;
    settings.set_layers(3, 4);
    settings.dropout = 0.3;
    settings.seed = 4;
    expect_gradients_match(settings);
  }
}

TEST(SageGradient, MatchesFiniteDifferences) {
  for (auto const schedule : {models::Schedule::pmm3d, models::Schedule::rows})
    for (auto const order : {models::ProductOrder::aggregate_first, models::ProductOrder::transform_first})
      for (auto const has_parts : {false, true}) {
        models::NetworkSettings settings;
        settings.norm = has_parts ? models::Norm::rms : models::Norm::none;
        settings.has_residuals = settings.has_head = has_parts;
        settings.trains_features = true;
        settings.projected_width = has_parts ? 4 : 0;
        settings.set_layers(3, 4);
        settings.dropout = 0.3;
        settings.order = order;
        settings.schedule = schedule;
        settings.seed = 4;
        set_model(settings, models::Model::sage,
                  has_parts ? models::Aggregator::sum : models::Aggregator::mean);
        expect_gradients_match(settings);
      }
}

/// Two parameters, one of which has no number on this rank, and `num_steps` steps with gradients that are halved.
/// Returns the values 1 and -2 of the other.
template<class Gradient>
std::vector<double> steps(models::OptimizerSettings const& settings, double weight_decay, int num_steps,
                          Gradient const& gradient_of) {
  runtime::DefaultExec const exec;
  auto const value = models::to_vector<double>("value", std::vector{1.0, -2.0});
  runtime::Vector<double> const gradient("gradient", 2);
  runtime::Vector<double> const none("none", 0);
  auto const scale = models::to_vector<double>("scale", std::vector{0.5});
  runtime::Vector<double> const rate("rate", 1);
  runtime::PassLedger passes;
  models::Optimizer<double> optimizer(settings, {{none, none, 0}, {value, gradient, weight_decay}});
  for (int t = 0; t < num_steps; ++t) {
    Kokkos::deep_copy(gradient, models::to_vector<double>("gradient", gradient_of(t)));
    optimizer.step(exec, passes, runtime::number_at(scale, 0), runtime::number_at(rate, 0));
    exec.fence();
  }
  auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), value);
  return {found(0), found(1)};
}

TEST(Optimizer, LionFollowsItsPaper) {
  models::OptimizerSettings settings;
  settings.kind = models::OptimizerKind::lion;
  settings.learning_rate = 0.1;
  settings.beta2 = 0.99;
  // Algorithm 2 of arXiv 2302.06675 as a serial program in Python, ten steps; both parameters change direction.
  auto const found = steps(settings, 0.2, 10, [](int t) { return std::vector{std::cos(t), 0.3 - 0.1 * t}; });
  EXPECT_NEAR(found[0], 0.8300145835074255, 1e-12);
  EXPECT_NEAR(found[1], -1.4072053879773596, 1e-12);
}

TEST(Optimizer, FollowsTheFormulas) {
  for (auto const kind :
       {models::OptimizerKind::sgd, models::OptimizerKind::adam, models::OptimizerKind::adamw})
    for (bool const decays : {false, true}) {
      models::OptimizerSettings settings;
      settings.kind = kind;
      settings.learning_rate = 0.1;
      if (decays) settings.schedule = {models::RateDecay::linear, 2, 0.02, 3};
      auto const rates = decays ? std::array{0.05, 0.1, 0.02} : std::array{0.1, 0.1, 0.1};
      auto const found = steps(settings, 0.2, 3, [](int t) { return std::vector{0.5 + t, -1.0}; });

      for (std::size_t i = 0; i < 2; ++i) {
        auto w = i == 0 ? 1.0 : -2.0;
        auto m = 0.0;
        auto v = 0.0;
        for (int t = 1; t <= 3; ++t) {
          auto const rate = rates[static_cast<std::size_t>(t - 1)];
          auto g = 0.5 * (i == 0 ? 0.5 + (t - 1) : -1.0);
          if (kind == models::OptimizerKind::adamw)
            w -= rate * 0.2 * w;
          else
            g += 0.2 * w;
          if (kind == models::OptimizerKind::sgd) {
            m = 0.9 * m + g;
            w -= rate * m;
            continue;
          }
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          w -= rate * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
        }
        EXPECT_NEAR(found[i], w, 1e-12);
      }
    }
}

TEST(Training, EndsWithEpochAndLayerWhereTheLossIsNotFinite) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  pmm::ProcessGrid const grid(world, pmm::near_cubic(world.size()));
  auto const store = store_of_dataset(world, "karate");
  models::NetworkSettings settings;
  settings.set_layers(2, 16);
  models::GraphNetwork<float> model(grid, store, settings);
  Kokkos::deep_copy(model.parameters().back().value(),
                    std::numeric_limits<float>::quiet_NaN()); // the last bias
  auto loss = models::make_vertex_loss<float>(grid, store, model.plan().logits());
  models::Trainer<float> trainer(grid, model, loss, {});

  try {
    trainer.run([](auto const&) {});
    ADD_FAILURE() << "a NaN went unnoticed";
  } catch (runtime::Error const& error) {
    EXPECT_EQ(error.exit_status(), runtime::exit_internal);
    EXPECT_NE(std::string(error.what()).find("epoch 1: the loss is nan; the output of layer 1"),
              std::string::npos)
        << error.what();
  }
}

} // namespace
} // namespace orthant::testing

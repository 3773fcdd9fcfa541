#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A graph with held-out edges, losses of links on outputs that are no network's, and networks that train to predict links.

#include "models/formula_parameters.hpp"
#include "models/gnn/links/link_loss.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "models/models_fixture.hpp"
#include "models/plan/graph_recipe.hpp"
#include "models/reference/reference_network.hpp"
#include "models/training/trainer.hpp"
#include "support/reference.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {

// Numbers of size 1; 20 steps of Adam amplify roundings to about 1e-13.
inline constexpr auto tolerance = 1e-10;

inline GraphRecipe recipe_of(graph::PermutationKind permutation = graph::PermutationKind::twofold) {
  GraphRecipe recipe{.num_vertices = 61, .num_edges = 260, .num_features = 11};
  recipe.permutation = permutation;
  recipe.edge_split = graph::EdgeSplit{0.1, 0.15, 3};
  return recipe;
}

inline models::NetworkSettings settings_of(std::int64_t width) {
  models::NetworkSettings settings;
  settings.schedule = models::Schedule::rows;
  settings.embedding_width = width;
  settings.dropout = 0;
  settings.seed = 5;
  settings.set_layers(2, 7);
  return settings;
}

class LinkTraining : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  LinkTraining()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}),
        one_(self_, {1, 1, 1, 1}) {}

  /// A loss on outputs that are no network's.
  struct Fixed {
    Fixed(pmm::ProcessGrid const& grid, graph::GraphStore const& store, std::int64_t width)
        : plan(models::plan_network(store, settings_of(width))),
          loss(grid, store, plan.layers.front().owners.value().roles, plan.logits(), 5),
          outputs(grid, plan.logits(), "outputs"),
          gradient(grid, plan.logits(), "gradient"),
          ids(store.read_original_ids(graph::Order::p1, outputs.block().rows)) {}

    /// Outputs by original id.
    void set(Dense const& h) {
      auto const mirror = Kokkos::create_mirror_view(outputs.storage());
      for_each([&](std::int64_t id, std::int64_t c, std::size_t place) { mirror(place) = h(id, c); });
      Kokkos::deep_copy(outputs.storage(), mirror);
    }
    double find() {
      runtime::Vector<double> const result("loss", 1);
      loss.loss_and_gradient(runtime::DefaultExec(), outputs, gradient, loss.num_terms(), result, 1);
      runtime::compat::fence(runtime::DefaultExec(), "orthant::testing::Fixed/the loss is read");
      return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), result)(0);
    }
    template<class Work>
    void for_each(Work const& work) const {
      auto const width = outputs.extents().columns;
      for (std::size_t i = 0; i < ids.size(); ++i)
        for (std::int64_t c = 0; c < width; ++c)
          work(ids[i], c, i * static_cast<std::size_t>(width) + static_cast<std::size_t>(c));
    }

    models::NetworkPlan plan;
    models::LinkLoss<double> loss;
    pmm::DistMatrix<double> outputs, gradient;
    std::vector<std::int64_t> ids;
  };

  static Dense outputs_of(std::int64_t num_vertices, std::int64_t width) {
    return make_dense(num_vertices, width,
                      [](std::int64_t i, std::int64_t c) { return small_real(11, i, c); });
  }

  runtime::Communicator world_, self_;
  pmm::ProcessGrid grid_, one_;
};

/// A network that trains to predict links.
struct Trained {
  Trained(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
          models::NetworkSettings const& settings, models::TrainSettings const& training)
      : model(grid, store, settings),
        loss(grid, store, model.plan().layers.front().owners.value().roles, model.plan().logits(),
             settings.seed),
        batches(loss),
        trainer(grid, model, loss, batches, training) {
    if (settings.decoder_width > 0) loss.use_decoder(model.shared_parameters()->decoder());
  }

  models::GraphNetwork<double> model;
  models::LinkLoss<double> loss;
  models::LinkBatches<double> batches;
  models::Trainer<double> trainer;
};

/// Parameters on one rank, by name; a vector is a row.
inline NamedMatrices matrices_of(std::vector<models::Parameter<double>> const& parameters) {
  NamedMatrices matrices;
  for (auto const& parameter : parameters) {
    Dense values(parameter.is_vector() ? 1 : parameter.matrix.extents().rows,
                 parameter.is_vector() ? parameter.vector.length() : parameter.matrix.extents().columns);
    auto const numbers = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
    for_each_element(
        parameter, [&](std::int64_t i, std::int64_t j, std::size_t place) { values(i, j) = numbers(place); });
    matrices.emplace(parameter.name, values);
  }
  return matrices;
}

inline models::TrainSettings training() {
  models::TrainSettings settings;
  settings.optimizer.learning_rate = 0.01;
  settings.weight_decay = 1e-3;
  return settings;
}

} // namespace orthant::testing

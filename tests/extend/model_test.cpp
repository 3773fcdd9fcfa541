// SPDX-License-Identifier: Apache-2.0
//
// The models of docs/extend/model.md: one that settings describe, and one of the library's layers.
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "models/gnn/network/graph_network.hpp"
#include "models/training/trainer.hpp"
#include "pmm/product/product.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {

// [docs:settings]
/// A graph convolutional network of four layers with RMSNorm, residuals, an input projection and a head, trained with AdamW.
models::TrainProgress train_gcn(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                std::int64_t num_epochs) {
  models::NetworkSettings network_settings;
  network_settings.model = models::Model::gcn;
  network_settings.has_head = true;
  network_settings.projected_width = 16;
  network_settings.set_layers(4, 16);
  network_settings.norm = models::Norm::rms;
  network_settings.has_residuals = true;
  network_settings.dropout = 0.2;
  models::TrainSettings settings;
  settings.optimizer.kind = models::OptimizerKind::adamw;
  settings.weight_decay = 0.01;
  settings.num_epochs = num_epochs;

  models::GraphNetwork<double> network(grid, store, network_settings);
  auto loss = models::make_vertex_loss<double>(grid, store, network.plan().logits());
  models::Trainer<double> trainer(grid, network, loss, settings);
  return trainer.run([](runtime::EpochRecord const&) {}).progress;
}
// [docs:end]

// [docs:perceptron]
/// A perceptron on the features of the vertices, which shows what the edges of a graph add:
///
///   H[a,c] := dropout(relu(sum_b X[a,b] W[b,c] + 1 b^T))        Z[a,b] := sum_c H[a,c] V[c,b] + 1 d^T
template<class T>
class Perceptron final : public models::Network<T> {
 public:
  using Matrix = pmm::DistMatrix<T>;
  using Axis = pmm::Axis;

  /// Collective over the grid's group. The store must have dense features.
  Perceptron(pmm::ProcessGrid const& grid, graph::GraphStore const& store, std::int64_t width, double dropout)
      : grid_(grid),
        dropout_(dropout) {
    auto const& facts = store.facts();
    auto const sharded = pmm::Storage::flat_sharded; // over the axis of the rows, a
    auto const rows = models::order_p2;
    auto const n = facts.num_vertices;
    pmm::Placement const x{{Axis::x, Axis::y, pmm::Storage::replicated, rows}, {n, facts.num_features}};
    pmm::Placement const w{{Axis::y, Axis::z, sharded}, {facts.num_features, width}};
    pmm::Placement const h{{Axis::x, Axis::z, pmm::Storage::replicated, rows}, {n, width}};
    pmm::Placement const v{{Axis::z, Axis::y, sharded}, {width, facts.num_classes}};
    pmm::Placement const z{{Axis::x, Axis::y, pmm::Storage::replicated, rows}, {n, facts.num_classes}};
    x_ = models::read_dense_features<T>(grid, store, x, models::FeatureNorm::none);
    keys_ = models::read_block_keys(grid, store, h); // original ids, which dropout is keyed by
    h_ = Matrix(grid, h, "extend::hidden");
    dh_ = Matrix(grid, h, "extend::hidden_gradient");
    z_ = Matrix(grid, z, "extend::logits");
    dz_ = Matrix(grid, z, "extend::logits_gradient");
    add_layer(0, w);
    add_layer(1, v);
    auto const block = h_.block();
    pmm::reserve_column_sums(*work_, std::max(block.rows.size(), z_.block().rows.size()),
                             std::max(block.columns.size(), z_.block().columns.size()));
  }

  Matrix const& forward(runtime::DefaultExec const& exec, models::Pass pass, std::uint64_t step,
                        runtime::PhaseTimes& /*phases*/) override {
    models::Dropout const dropout{pass == models::Pass::training ? dropout_ : 0,
                                  runtime::RandomStream(1, runtime::Purpose::dropout, step)};
    multiply(exec, pmm::Form::product, x_, weight(0).matrix, h_);
    models::bias_relu_dropout<T>(exec, grid_.passes(), h_.local(), bias(0).vector.local(), dropout, keys_);
    multiply(exec, pmm::Form::product, h_, weight(1).matrix, z_);
    pmm::add_bias(exec, z_, bias(1).vector);
    return z_;
  }
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& /*phases*/) override {
    pmm::sum_rows(exec, dz_, bias(1).vector_gradient, *work_);                 // dd := dZ^T 1
    multiply(exec, pmm::Form::right_grad, h_, dz_, weight(1).matrix_gradient); // dV := H^T dZ
    multiply(exec, pmm::Form::left_grad, dz_, weight(1).matrix, dh_);          // dH := dZ V^T
    models::relu_dropout_backward<T>(exec, grid_.passes(), h_.local(), dropout_, dh_.local());
    pmm::sum_rows(exec, dh_, bias(0).vector_gradient, *work_);                 // db := dH^T 1
    multiply(exec, pmm::Form::right_grad, x_, dh_, weight(0).matrix_gradient); // dW := X^T dH
  }
  [[nodiscard]] Matrix const& logits_gradient() const override { return dz_; }
  [[nodiscard]] std::vector<models::Parameter<T>>& parameters() override { return parameters_; }

 private:
  void add_layer(std::int64_t layer, pmm::Placement const& placement);
  void multiply(runtime::DefaultExec const& exec, pmm::Form form, Matrix const& left, Matrix const& right,
                Matrix const& result) { // plans anew in each pass; larger models keep their products
    pmm::Product<T>(grid_, form, left.placement(), right.placement(), result.placement(), {}, work_)
        .run(exec, left, right, result);
  }
  [[nodiscard]] models::Parameter<T> const& weight(std::size_t layer) const { return parameters_[2 * layer]; }
  [[nodiscard]] models::Parameter<T> const& bias(std::size_t layer) const {
    return parameters_[2 * layer + 1];
  }

  pmm::ProcessGrid const& grid_;
  double dropout_;
  models::BlockKeys keys_;
  Matrix x_, h_, dh_, z_, dz_;
  std::vector<models::Parameter<T>> parameters_;
  std::shared_ptr<pmm::Workspace<T>> work_ = std::make_shared<pmm::Workspace<T>>();
};
// [docs:end]

// [docs:parameters]
/// Numbers follow from global indices, so every grid has the same weights.
template<class T>
void draw_weight(pmm::DistMatrix<T> const& weight, std::uint32_t layer) {
  runtime::RandomStream const stream(1, runtime::Purpose::weights, 0, layer);
  auto const scale = 1 / std::sqrt(static_cast<double>(weight.extents().rows));
  pmm::fill(
      runtime::DefaultExec(), weight, KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        return static_cast<T>(
            scale * stream.normal<double>(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j)));
      });
}

template<class T>
void Perceptron<T>::add_layer(std::int64_t layer, pmm::Placement const& placement) {
  auto const name = "layer" + std::to_string(layer);
  models::Parameter<T> weight;
  weight.name = name + ".weight";
  weight.layer = layer;
  weight.matrix = Matrix(grid_, placement, weight.name);
  weight.matrix_gradient = Matrix(grid_, placement, weight.name + ".gradient");
  draw_weight(weight.matrix, static_cast<std::uint32_t>(layer));
  models::Parameter<T> bias; // zero, split as the columns of the weight are
  bias.name = name + ".bias";
  bias.role = models::ParameterRole::bias;
  bias.layer = layer;
  auto const [axes, length] = std::pair(placement.layout.columns, placement.extents.columns);
  bias.vector = pmm::DistVector<T>(grid_, axes, length, bias.name);
  bias.vector_gradient = pmm::DistVector<T>(grid_, axes, length, bias.name + ".gradient");
  parameters_.push_back(weight);
  parameters_.push_back(bias);
}
// [docs:end]

namespace {

graph::GraphStore make_store(runtime::Communicator const& comm) {
  return graph::partition_in_memory(
      comm,
      [](auto const& self) { return graph::open_dataset(self, "sbm:vertices=200,features=8,classes=4"); },
      {});
}

models::TrainProgress train_perceptron(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                       std::int64_t num_epochs) {
  Perceptron<double> network(grid, store, 16, 0.2);
  auto loss = models::make_vertex_loss<double>(grid, store, network.logits_gradient().placement());
  models::TrainSettings settings;
  settings.num_epochs = num_epochs;
  return models::Trainer<double>(grid, network, loss, settings).run([](auto const&) {}).progress;
}

TEST(ModelsOfOnesOwn, LearnAlikeOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  for (auto const train : {train_gcn, train_perceptron}) {
    pmm::ProcessGrid const alone(self, {1, 1, 1, 1});
    EXPECT_GT(train(alone, make_store(self), 30).last->at(0).accuracy(), 0.6);
    auto const expected = train(alone, make_store(self), 4);
    for (auto const& shape : pmm::all_shapes(world.size())) {
      auto const found = train(pmm::ProcessGrid(world, shape), make_store(world), 4);
      EXPECT_NEAR(found.last_loss, expected.last_loss, 1e-9) << shape.to_string();
    }
  }
}

/// loss(w + h) and loss(w - h) for every number of every parameter, on one rank.
TEST(PerceptronGradient, MatchesFiniteDifferences) {
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  pmm::ProcessGrid const grid(self, {1, 1, 1, 1});
  auto const store = make_store(self);
  Perceptron<double> network(grid, store, 3, 0.2);
  auto loss = models::make_vertex_loss<double>(grid, store, network.logits_gradient().placement());
  runtime::DefaultExec const exec;
  runtime::PhaseTimes phases;
  auto const loss_now = [&] {
    auto const& logits = network.forward(exec, models::Pass::training, 1, phases);
    return loss.loss_and_gradient(exec, logits, network.logits_gradient());
  };
  static_cast<void>(loss_now());
  network.backward(exec, phases);
  for (auto const& parameter : network.parameters()) {
    auto const gradient = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.gradient());
    for (std::size_t i = 0; i < gradient.extent(0); ++i) {
      auto const number = Kokkos::subview(parameter.value(), i);
      auto const loss_at = [&](double step) {
        auto kept = 0.0;
        Kokkos::deep_copy(kept, number);
        Kokkos::deep_copy(number, kept + step);
        auto const found = loss_now();
        Kokkos::deep_copy(number, kept);
        return found;
      };
      constexpr auto h = 1e-6; // truncation h^2 and cancellation 1e-16 / h are both below 1e-9
      EXPECT_NEAR(gradient(i), (loss_at(h) - loss_at(-h)) / (2 * h), 1e-7)
          << parameter.name << " entry " << i;
    }
  }
}

} // namespace
} // namespace orthant::testing

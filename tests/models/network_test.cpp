// SPDX-License-Identifier: Apache-2.0
//
// A network of another kind, a perceptron of two layers, trains through the same loop as the GCN.
#include "models/layers/activation.hpp"
#include "models/training/trainer.hpp"
#include "pmm/product/product.hpp"
#include "support/dist_checks.hpp"

namespace orthant::testing {
using Matrix = pmm::DistMatrix<double>;
using pmm::Axis, pmm::Form, runtime::DefaultExec, runtime::PhaseTimes;

/// Z[x,y] := H[x,z] V[z,y] with H[x,z] := max(X[x,y] W[y,z], 0)
struct Perceptron final : models::Network<double> {
  explicit Perceptron(pmm::ProcessGrid const& on) : grid(on) {}
  Matrix const& forward(DefaultExec const& exec, models::Pass, std::uint64_t, PhaseTimes&) override {
    multiply(exec, Form::product, x, w, h);
    models::relu_dropout<double>(exec, grid.passes(), h.local(), {}, {});
    return multiply(exec, Form::product, h, v, z);
  }
  void backward(DefaultExec const& exec, PhaseTimes&) override {
    multiply(exec, Form::right_grad, h, dz, dv); // dV := H^T dZ
    multiply(exec, Form::left_grad, dz, v, dh);  // dH := dZ V^T
    models::relu_dropout_backward<double>(exec, grid.passes(), h.local(), 0, dh.local());
    multiply(exec, Form::right_grad, x, dh, dw); // dW := X^T dH
  }
  Matrix const& logits_gradient() const override { return dz; }
  std::vector<models::Parameter<double>>& parameters() override { return list; }
  Matrix const& multiply(DefaultExec const& exec, Form form, Matrix const& a, Matrix const& b, Matrix& c) {
    pmm::Product<double>(grid, form, a.placement(), b.placement(), c.placement()).run(exec, a, b, c);
    return c;
  }
  pmm::ProcessGrid const& grid;
  Matrix x = drawn<double>(grid, {{Axis::x, Axis::y}, {60, 6}}, 1);
  Matrix w = drawn<double>(grid, {{Axis::y, Axis::z}, {6, 8}}, 2), dw = stained<double>(grid, w.placement());
  Matrix v = drawn<double>(grid, {{Axis::z, Axis::y}, {8, 3}}, 3), dv = stained<double>(grid, v.placement());
  Matrix h = stained<double>(grid, {{Axis::x, Axis::z}, {60, 8}}), dh = stained<double>(grid, h.placement());
  Matrix z = stained<double>(grid, {{Axis::x, Axis::y}, {60, 3}}), dz = stained<double>(grid, z.placement());
  // {} is the role of a weight.
  std::vector<models::Parameter<double>> list{{"w", {}, 0, w, dw, {}, {}}, {"v", {}, 1, v, dv, {}, {}}};
};

double last_loss_on(pmm::ProcessGrid const& grid) {
  Perceptron network(grid);
  std::vector<std::int32_t> classes;
  for (auto i = network.z.block().rows.begin; i < network.z.block().rows.end; ++i)
    classes.push_back(small_real(1, i, 0) + small_real(1, i, 1) > 0 ? 1 : 0);
  pmm::RowLoss<double> loss(grid, network.z.placement(), pmm::LossKind::softmax);
  loss.set_targets({device_copy(std::vector<std::int8_t>(classes.size(), 0)), device_copy(classes), {}});
  auto const progress = models::Trainer<double>(grid, network, loss, {}).run([](auto const&) {}).progress;
  EXPECT_GT(progress.last->at(0).accuracy(), 0.9);
  EXPECT_EQ(progress.last->at(1).num_counted, 0) << "a loss with a mask has one group of rows";
  return progress.last_loss;
}

TEST(Network, OfAnotherKindLearnsThroughTheSameLoopOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  auto const expected = last_loss_on(pmm::ProcessGrid(self, {1, 1, 1, 1}));
  EXPECT_LT(expected, 0.3); // a guess costs log 2 = 0.69
  for (auto const& shape : pmm::all_shapes(world.size()))
    EXPECT_NEAR(last_loss_on({world, shape}), expected, 1e-10) << shape.to_string();
}
} // namespace orthant::testing

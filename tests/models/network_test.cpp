// SPDX-License-Identifier: Apache-2.0
//
// A network of another kind, a perceptron of two layers, trains through the same loop as the GCN.
#include "models/training/trainer.hpp"
#include "pmm/product/pmm.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

namespace orthant::testing {
namespace {

using Matrix = pmm::DistMatrix<double>;
using pmm::Axis, pmm::Form, runtime::DefaultExec, runtime::PhaseTimes;

/// Z[x,y] := H[x,z] V[z,y] with H := Y^2 and Y[x,z] := X[x,y] W[y,z]
struct Perceptron final : models::Network<double> {
  explicit Perceptron(pmm::ProcessGrid const& on) : grid(on) {}

  Matrix const& forward(DefaultExec const& exec, models::Pass, std::uint64_t, PhaseTimes&) override {
    multiply(exec, Form::product, x, w, y);
    multiply_entries(exec, 1, y, y, h);
    multiply(exec, Form::product, h, v, z);
    return z;
  }
  void backward(DefaultExec const& exec, PhaseTimes&) override {
    multiply(exec, Form::right_grad, h, dz, dv); // dV := H^T dZ
    multiply(exec, Form::left_grad, dz, v, dh);  // dH := dZ V^T
    multiply_entries(exec, 2, y, dh, dh);        // dY := 2 Y dH
    multiply(exec, Form::right_grad, x, dh, dw); // dW := X^T dY
  }
  Matrix const& logits_gradient() const override { return dz; }
  std::vector<models::Parameter<double>>& parameters() override { return list; }

  void multiply(DefaultExec const& exec, Form form, Matrix const& a, Matrix const& b, Matrix const& c) const {
    pmm::Product<double>(grid, form, a.placement(), b.placement(), c.placement()).run(exec, a, b, c);
  }
  static void multiply_entries(DefaultExec const& exec, double factor, Matrix const& a, Matrix const& b,
                               Matrix const& c) {
    auto const p = a.storage(), q = b.storage(), r = c.storage();
    Kokkos::parallel_for(
        "orthant::testing::multiply_entries", Kokkos::RangePolicy<DefaultExec>(exec, 0, r.extent(0)),
        KOKKOS_LAMBDA(std::size_t i) { r(i) = factor * p(i) * q(i); });
  }

  pmm::ProcessGrid const& grid;
  Matrix x = drawn<double>(grid, {{Axis::x, Axis::y}, {60, 6}}, 1);
  pmm::Placement first{{Axis::y, Axis::z}, {6, 8}}, second{{Axis::z, Axis::y}, {8, 3}};
  Matrix w = drawn<double>(grid, first, 2), dw = stained<double>(grid, first);
  Matrix v = drawn<double>(grid, second, 3), dv = stained<double>(grid, second);
  pmm::Placement hidden{{Axis::x, Axis::z}, {60, 8}}, logits{{Axis::x, Axis::y}, {60, 3}};
  Matrix y = stained<double>(grid, hidden), h = stained<double>(grid, hidden),
         dh = stained<double>(grid, hidden);
  Matrix z = stained<double>(grid, logits), dz = stained<double>(grid, logits);
  std::vector<models::Parameter<double>> list{{"w", models::ParameterRole::weight, 0, w, dw, {}, {}},
                                              {"v", models::ParameterRole::weight, 1, v, dv, {}, {}}};
};

std::vector<double> losses_on(pmm::ProcessGrid const& grid) {
  Perceptron network(grid);
  pmm::RowLoss<double> loss(grid, network.z.placement(), pmm::LossKind::softmax);
  std::vector<std::int32_t> classes;
  for (auto i = network.z.block().rows.begin; i < network.z.block().rows.end; ++i)
    classes.push_back(small_real(1, i, 0) * small_real(1, i, 1) > 0 ? 1 : 0);
  loss.set_targets({device_copy(std::vector<std::int8_t>(classes.size(), 0)), device_copy(classes), {}});
  std::vector<double> losses;
  models::Trainer<double>(grid, network, loss, {}).run([&](auto const& record) {
    losses.push_back(record.loss);
  });
  return losses;
}

TEST(Network, OfAnotherKindLearnsThroughTheSameLoopOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  auto const expected = losses_on(pmm::ProcessGrid(self, {1, 1, 1, 1}));
  EXPECT_LT(expected.back(), 0.5 * expected.front());
  for (auto const& shape : pmm::all_shapes(world.size())) {
    auto const losses = losses_on(pmm::ProcessGrid(world, shape));
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t e = 0; e < losses.size(); ++e)
      EXPECT_NEAR(losses[e], expected[e], 1e-10) << shape.to_string() << ", epoch " << e + 1;
  }
}

} // namespace
} // namespace orthant::testing

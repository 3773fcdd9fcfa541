// SPDX-License-Identifier: Apache-2.0
//
// A network of another kind, a perceptron of two layers, trains through the same loop as the GCN.

#include "models/full_graph.hpp"
#include "pmm/pmm.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

namespace orthant::testing {
namespace {

using pmm::Axis, pmm::Form, pmm::Placement;

/// Z[x,y] := max(X[x,y] W[y,z], 0) V[z,y], on 60 rows of 6 features, 8 hidden and 3 classes.
class Perceptron final : public models::Network<double> {
 public:
  explicit Perceptron(pmm::ProcessGrid const& grid) : grid_(grid) {
    for (auto const& [name, weight, gradient] : {std::tuple("w", w_, dw_), std::tuple("v", v_, dv_)})
      parameters_.push_back({name, models::ParameterRole::weight, 0, weight, gradient, {}, {}});
  }
  pmm::DistMatrix<double> const& forward(runtime::DefaultExec const& exec, models::Pass /*pass*/,
                                         std::uint64_t /*step*/, runtime::PhaseTimes& /*phases*/) override {
    product(exec, Form::product, x_, w_, h_);
    clear_where_not_positive(exec, h_, h_);
    product(exec, Form::product, h_, v_, z_);
    return z_;
  }
  void backward(runtime::DefaultExec const& exec, runtime::PhaseTimes& /*phases*/) override {
    product(exec, Form::right_grad, h_, dz_, dv_);
    product(exec, Form::left_grad, dz_, v_, dh_);
    clear_where_not_positive(exec, h_, dh_);
    product(exec, Form::right_grad, x_, dh_, dw_);
  }
  pmm::DistMatrix<double> const& logits_gradient() const override { return dz_; }
  std::vector<models::Parameter<double>>& parameters() override { return parameters_; }

  static constexpr std::int64_t num_rows = 60;
  Placement const logits{{Axis::x, Axis::y}, {num_rows, 3}};

 private:
  void product(runtime::DefaultExec const& exec, Form form, pmm::DistMatrix<double> const& left,
               pmm::DistMatrix<double> const& right, pmm::DistMatrix<double> const& result) {
    pmm::Product<double>(grid_, form, left.placement(), right.placement(), result.placement())
        .run(exec, left, right, result);
  }
  static void clear_where_not_positive(runtime::DefaultExec const& exec, pmm::DistMatrix<double> const& sign,
                                       pmm::DistMatrix<double> const& numbers) {
    auto const s = sign.storage(), n = numbers.storage();
    Kokkos::parallel_for(
        "orthant::testing::clear", Kokkos::RangePolicy<runtime::DefaultExec>(exec, 0, n.extent(0)),
        KOKKOS_LAMBDA(std::size_t i) { n(i) = s(i) > 0 ? n(i) : 0; });
  }
  [[nodiscard]] pmm::DistMatrix<double> filled(Placement const& placement, std::uint64_t seed) const {
    return distributed<double>(grid_, placement,
                               make_dense(placement.extents.rows, placement.extents.columns,
                                          [&](auto i, auto j) { return small_real(seed, i, j); }));
  }

  pmm::ProcessGrid const& grid_;
  Placement const hidden_{{Axis::x, Axis::z}, {num_rows, 8}};
  Placement const first_{{Axis::y, Axis::z, pmm::Storage::flat_sharded}, {6, 8}};
  Placement const second_{{Axis::z, Axis::y, pmm::Storage::flat_sharded}, {8, 3}};
  pmm::DistMatrix<double> x_ = filled({{Axis::x, Axis::y}, {num_rows, 6}}, 1);
  pmm::DistMatrix<double> w_ = filled(first_, 2), dw_ = filled(first_, 0);
  pmm::DistMatrix<double> v_ = filled(second_, 3), dv_ = filled(second_, 0);
  pmm::DistMatrix<double> h_ = filled(hidden_, 0), dh_ = filled(hidden_, 0);
  pmm::DistMatrix<double> z_ = filled(logits, 0), dz_ = filled(logits, 0);
  std::vector<models::Parameter<double>> parameters_;
};

/// The losses of 30 epochs; the class of a row is the sign of its first feature, as far as it is not 2.
std::vector<double> losses_on(pmm::ProcessGrid const& grid) {
  Perceptron network(grid);
  pmm::RowLoss<double> loss(grid, network.logits, pmm::LossKind::softmax);
  auto const rows = pmm::block_of(grid, network.logits).rows;
  std::vector<std::int32_t> classes;
  for (auto i = rows.begin; i < rows.end; ++i)
    classes.push_back(i % 7 == 0 ? 2 : small_real(1, i, 0) > 0 ? 1 : 0);
  loss.set_targets({device_copy(std::vector<std::int8_t>(classes.size(), 0)), device_copy(classes), {}});
  models::TrainSettings settings;
  settings.num_epochs = 30;
  std::vector<double> losses;
  models::FullGraphTrainer<double>(grid, network, loss, settings)
      .run([&](runtime::EpochRecord const& record) { losses.push_back(record.loss); });
  return losses;
}

class AnotherNetwork : public ::testing::TestWithParam<std::array<int, 3>> {};

TEST_P(AnotherNetwork, LearnsThroughTheSameLoopOnEveryGrid) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world"), self(MPI_COMM_SELF, "self");
  auto const [x, y, z] = GetParam();

  auto const losses = losses_on(pmm::ProcessGrid(world, {1, x, y, z}));

  auto const expected = losses_on(pmm::ProcessGrid(self, {1, 1, 1, 1}));
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t e = 0; e < losses.size(); ++e)
    EXPECT_NEAR(losses[e], expected[e], 1e-12);
  EXPECT_LT(losses.back(), 0.8 * losses.front());
}

int num_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

INSTANTIATE_TEST_SUITE_P(AllGrids, AnotherNetwork, ::testing::ValuesIn(grids_3d(num_ranks())), GridName());

} // namespace
} // namespace orthant::testing

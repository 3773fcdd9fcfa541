// SPDX-License-Identifier: Apache-2.0
//
// Matrices whose rows are a sample of a larger matrix's: blocks are unequal, some of them empty, and each
// rank knows its own only. Products, biases, losses and relayouts against serial ones, on every grid.
#include "pmm/matrix/relayout.hpp"
#include "pmm/product/product.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/rows/norms.hpp"
#include "pmm/rows/row_loss.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

/// Vertices drawn from n, and where they lie in two orders. Sampled vertices are numbered by their position
/// in an order, so that own ranges are unequal parts of [0, size()).
class Sample {
 public:
  Sample(std::uint64_t seed, std::int64_t n, std::int64_t one_in)
      : n_(n),
        p1_of_(static_cast<std::size_t>(n)) {
    std::vector<std::int64_t> p2_of_p1(p1_of_.size());
    std::iota(p2_of_p1.begin(), p2_of_p1.end(), 0);
    std::ranges::sort(p2_of_p1, {}, [&](auto i) { return mixed(seed, i, 1); });
    for (std::size_t i = 0; i < p2_of_p1.size(); ++i)
      p1_of_[static_cast<std::size_t>(p2_of_p1[i])] = static_cast<std::int64_t>(i);
    for (std::int64_t v = 0; v < n; ++v)
      if (mixed(seed, v, 2) % static_cast<std::uint64_t>(one_in) == 0) in_p2_.push_back(v);
    in_p1_ = in_p2_;
    std::ranges::sort(in_p1_, {}, [&](auto v) { return position(p1, v); });
  }

  [[nodiscard]] std::int64_t size() const { return std::ssize(in_p2_); }
  [[nodiscard]] std::int64_t num_positions() const { return n_; }
  /// Sampled vertices in that order; a vertex is named by its position in p2.
  [[nodiscard]] std::vector<std::int64_t> const& vertices(IndexOrder order) const {
    return order == p1 ? in_p1_ : in_p2_;
  }
  [[nodiscard]] std::int64_t position(IndexOrder order, std::int64_t vertex) const {
    return order == p1 ? p1_of_[static_cast<std::size_t>(vertex)] : vertex;
  }
  [[nodiscard]] OwnRange own(ProcessGrid const& grid, AxisSet axis, IndexOrder order) const {
    auto const part = part_of(grid.shape(), grid.coordinates(), axis, n_);
    auto const count_below = [&](std::int64_t end) {
      return std::ranges::count_if(vertices(order), [&](auto v) { return position(order, v) < end; });
    };
    return {grid.coordinate(axis), {count_below(part.begin), count_below(part.end)}};
  }
  /// Positions in order `of` of the sampled vertices `range`, numbered in order `in`.
  [[nodiscard]] std::vector<std::int64_t> positions(IndexOrder in, runtime::Range range,
                                                    IndexOrder of) const {
    std::vector<std::int64_t> result;
    for (auto i = range.begin; i < range.end; ++i)
      result.push_back(position(of, vertices(in)[static_cast<std::size_t>(i)]));
    return result;
  }

 private:
  std::int64_t n_;
  std::vector<std::int64_t> p1_of_;
  std::vector<std::int64_t> in_p2_, in_p1_;
};

/// Many rows; a few, which leave blocks empty; one.
std::vector<Sample> samples() {
  return {Sample(1, 61, 2), Sample(2, 40, 9), Sample(6, 17, 20)};
}

class SampledRowsTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  /// A matrix with a sampled vertex a row.
  Placement rows_of(Sample const& sample, Layout layout, std::int64_t num_columns) const {
    return {layout, {sample.size(), num_columns}, sample.own(grid_, layout.rows, layout.row_order)};
  }

  template<class Left>
  void expect_product(Form form, Left const& left, DistMatrix<double> const& right, Placement const& result,
                      Dense const& expected) {
    ProductPlan const plan{"C = A B", form, left.placement(), right.placement(), result, {}};
    Product<double> product(grid_, plan);
    auto const matrix = stained<double>(grid_, result);
    clear_ledgers(grid_);

    product.run(exec_, left, right, matrix);

    auto const what = "left " + left.placement().to_string() + ", result " + result.to_string();
    EXPECT_EQ(largest_error(matrix, expected), 0) << what;
    auto step = step_of<double>(grid_);
    plan_product(step, plan, num_nonzeros_of(left));
    EXPECT_EQ(counted_calls(grid_), planned_calls(step)) << what;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  DefaultExec exec_;
};

TEST_P(SampledRowsTest, AggregationAndItsAdjointEqualSerialOnes) {
  for (auto const& sample : samples())
    for (auto const& [r, k] : axis_pairs())
      for (auto const storage : all_storages) {
        auto const n = sample.size();
        auto const c = Layout{r, k}.third();
        SparseRecipe const recipe{3, false, true};
        auto const a = make_dense(n, n, recipe);
        auto const f = make_dense(n, 7, [](auto i, auto j) { return small_integer(4, i, j); });
        Placement const pa{
            {r, k, Storage::replicated, p1, p2}, {n, n}, sample.own(grid_, r, p1), sample.own(grid_, k, p2)};
        auto const pf = rows_of(sample, {k, c, storage, p2}, 7);
        auto const ph = rows_of(sample, {r, c, storage, p1}, 7);
        auto const block = block_of(grid_, pa);
        DistSparse<double> const adjacency(grid_, pa, sparse_block<double>(recipe, block.rows, block.columns),
                                           Adjoint::kept);

        expect_product(Form::product, adjacency, distributed<double>(grid_, pf, f), ph, product(a, f));
        expect_product(Form::right_grad, adjacency, distributed<double>(grid_, ph, f), pf,
                       product(transposed(a), f));
      }
}

TEST_P(SampledRowsTest, TransformationAndItsAdjointsEqualSerialOnes) {
  for (auto const& sample : samples())
    for (auto const& [r, k] : axis_pairs())
      for (auto const storage : all_storages) {
        auto const c = Layout{r, k}.third();
        auto const h = make_dense(sample.size(), 5, [](auto i, auto j) { return small_integer(5, i, j); });
        auto const w = make_dense(5, 7, [](auto i, auto j) { return small_integer(6, i, j); });
        auto const q = make_dense(sample.size(), 7, [](auto i, auto j) { return small_integer(7, i, j); });
        auto const ph = rows_of(sample, {r, k, storage, p1}, 5);
        Placement const pw{{k, c, Storage::flat_sharded}, {5, 7}};
        auto const pq = rows_of(sample, {r, c, storage, p1}, 7);
        auto const dh = distributed<double>(grid_, ph, h);
        auto const dw = distributed<double>(grid_, pw, w);
        auto const dq = distributed<double>(grid_, pq, q);

        expect_product(Form::product, dh, dw, pq, product(h, w));
        expect_product(Form::left_grad, dq, dw, ph, product(q, transposed(w)));
        expect_product(Form::right_grad, dh, dq, pw, product(transposed(h), q));
      }
}

TEST_P(SampledRowsTest, BiasGradientsAndNormsSumEveryRowOnce) {
  for (auto const& sample : samples())
    for (auto const& [r, k] : axis_pairs())
      for (auto const storage : {Storage::replicated, Storage::row_sharded}) {
        auto const q = make_dense(sample.size(), 7, [](auto i, auto j) { return small_integer(7, i, j); });
        auto const dq = distributed<double>(grid_, rows_of(sample, {r, k, storage, p2}, 7), q);
        DistVector<double> const db(grid_, k, 7, "orthant::testing::db");
        Workspace<double> work;
        reserve_column_sums(work, dq.block().stored_rows.size(), dq.block().columns.size());

        sum_rows(exec_, dq, db, work);
        Vector<double> const squares("orthant::testing::squares", 1);
        local_squared_norm(exec_, dq, squares, 0);
        sum_over_group(exec_, grid_, squares);

        auto const sums = host_copy(db.local());
        for (auto j = db.range().begin; j < db.range().end; ++j) {
          auto expected = 0.0;
          for (std::int64_t i = 0; i < q.rows; ++i)
            expected += q(i, j);
          EXPECT_EQ(sums(static_cast<std::size_t>(j - db.range().begin)), expected);
        }
        auto expected = 0.0;
        for (auto const number : q.numbers)
          expected += number * number;
        EXPECT_EQ(host_copy(squares)(0), expected);
      }
}

TEST_P(SampledRowsTest, TheLossIsThatOfAllRows) {
  for (auto const& [r, k] : axis_pairs()) {
    RowLoss<double> loss(grid_, {{r, k}, {3, 5}}, LossKind::softmax); // one for all samples, as they come
    for (auto const& sample : samples()) {
      auto const z = make_dense(sample.size(), 5, [](auto i, auto j) { return small_real(8, i, j); });
      auto const label = [](std::int64_t i) { return static_cast<std::int32_t>(mixed(9, i) % 5); };
      auto const carries_loss = [](std::int64_t i) { return mixed(10, i) % 3 != 0; };
      auto const logits = distributed<double>(grid_, rows_of(sample, {r, k, Storage::replicated, p1}, 5), z);
      std::vector<std::int8_t> groups;
      std::vector<std::int32_t> classes;
      for (auto i = logits.block().rows.begin; i < logits.block().rows.end; ++i) {
        groups.push_back(carries_loss(i) ? 0 : no_row_group);
        classes.push_back(label(i));
      }
      loss.rebind(logits.placement());
      loss.set_targets({device_copy(groups), device_copy(classes), {}});
      auto const gradient = stained<double>(grid_, logits.placement());

      auto const value = loss.loss_and_gradient(exec_, logits, gradient);

      auto sum = 0.0;
      auto count = 0;
      for (std::int64_t i = 0; i < z.rows; ++i)
        if (carries_loss(i)) {
          sum += softmax_loss(z, i, label(i));
          ++count;
        }
      EXPECT_EQ(loss.num_rows(0), count);
      EXPECT_NEAR(value, count == 0 ? 0 : sum / count, 1e-14 * 61); // a rounding a row
      auto const whole = gathered(gradient);
      for (std::int64_t i = 0; i < z.rows; ++i) // probabilities sum to 1
        EXPECT_NEAR(std::accumulate(&whole.numbers[static_cast<std::size_t>(5 * i)],
                                    &whole.numbers[static_cast<std::size_t>(5 * i)] + 5, 0.0),
                    0, 1e-14);
    }
  }
}

TEST_P(SampledRowsTest, RowsFollowTheirVerticesBetweenPlacementsAndOrders) {
  for (auto const& sample : samples())
    for (auto const& [r, k] : axis_pairs())
      for (auto const& [to_r, to_k] : axis_pairs())
        for (auto const& [from_order, to_order] : {std::pair(p2, p1), std::pair(p1, p1)}) {
          auto const value = [](std::int64_t vertex, std::int64_t j) {
            return static_cast<double>(100 * vertex + j);
          };
          auto const in_order = [&](IndexOrder order) {
            return make_dense(sample.size(), 5, [&](auto i, auto j) {
              return value(sample.vertices(order)[static_cast<std::size_t>(i)], j);
            });
          };
          auto const from = rows_of(sample, {r, k, Storage::replicated, from_order}, 5);
          auto const to = rows_of(sample, {to_r, to_k, Storage::replicated, to_order}, 5);
          auto const from_in_target = sample.positions(from_order, from.own_rows->range, to_order);
          auto const to_in_target = sample.positions(to_order, to.own_rows->range, to_order);
          auto const to_in_source = sample.positions(to_order, to.own_rows->range, from_order);
          auto const source = distributed<double>(grid_, from, in_order(from_order));
          auto const target = stained<double>(grid_, to);
          clear_ledgers(grid_);

          Relayout<double> const relayout(
              grid_, from, to, {sample.num_positions(), from_in_target, to_in_target, to_in_source});
          EXPECT_TRUE(counted_calls(grid_).empty()) << "building it communicates";
          relayout.run(exec_, source, target);

          EXPECT_EQ(largest_error(target, in_order(to_order)), 0)
              << from.to_string() << " to " << to.to_string();
          EXPECT_EQ(counted_calls(grid_), planned_calls(relayout.calls()));
          if (from == to) {
            EXPECT_TRUE(relayout.calls().empty()) << from.to_string();
          }
        }
}

TEST_P(SampledRowsTest, WhatOnlyOtherRanksKnowIsRefused) {
  auto const sample = samples().front();
  auto const here = rows_of(sample, {Axis::x, Axis::y, Storage::replicated, p1}, 5);
  auto elsewhere = grid_.coordinates();
  elsewhere.x = (elsewhere.x + 1) % grid_.size(Axis::x);
  if (grid_.size(Axis::x) > 1) {
    EXPECT_THROW((void)block_of(grid_.shape(), elsewhere, here), runtime::Error);
  }
  EXPECT_THROW(Relayout<double>(grid_, here, here), runtime::Error); // positions are not given

  auto balanced = here;
  balanced.own_rows.reset();
  Placement const w{{Axis::y, Axis::z, Storage::flat_sharded}, {5, 3}};
  auto result = here;
  result.layout.columns = Axis::z;
  result.extents.columns = 3;
  EXPECT_NO_THROW(Product<double>(grid_, Form::product, here, w, result));
  EXPECT_THROW(Product<double>(grid_, Form::product, balanced, w, result), runtime::Error);

  auto const own = sample.positions(p1, here.own_rows->range, p1);
  std::vector<std::int64_t> const too_many(own.size() + 1);
  EXPECT_NO_THROW(Relayout<double>(grid_, here, here, {sample.num_positions(), own, own, own}));
  EXPECT_THROW(Relayout<double>(grid_, here, here, {sample.num_positions(), too_many, own, own}),
               runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, SampledRowsTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing

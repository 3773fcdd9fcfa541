// SPDX-License-Identifier: Apache-2.0
//
// The primitive and its adjoints on every grid: all ways to deal the axes, storages, dense and sparse operands,
// extents that divide nothing, against serial loops; and the ledgers against the listed calls.
#include "pmm/product/product.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <algorithm>
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Operation;

/// The axes that r, k and c of one product stand for, and its extents.
struct Frame {
  AxisSet r;
  AxisSet k;
  AxisSet c;
  std::int64_t num_rows;
  std::int64_t num_inner;
  std::int64_t num_columns;
  std::int64_t granule_of_rows = 1;
  std::int64_t granule_of_inner = 1;
};

/// Every way to deal the three axes to r, k and c, none or several to one; extents differ, divide nothing, and are below the axis sizes now and then.
std::vector<Frame> frames(std::uint64_t seed) {
  constexpr std::array<std::int64_t, 8> extents{1, 2, 3, 5, 7, 13, 19, 31};
  std::vector<Frame> all;
  for (auto const& [r, c] : axis_set_pairs()) {
    auto const k = Layout{r, c}.third();
    auto const n = std::ssize(all);
    all.push_back({r, k, c, extents[mixed(seed, n, 0) % 8], extents[mixed(seed, n, 1) % 8],
                   extents[mixed(seed, n, 2) % 8]});
  }
  all.push_back({Axis::x, Axis::y, Axis::z, 12, 20, 7, 3, 5});
  return all;
}

struct Operands {
  Placement a;
  Placement b;
  Placement c;
};

Operands placements(Frame const& f, Storage a, Storage b, Storage c) {
  Operands p{{{f.r, f.k, a}, {f.num_rows, f.num_inner}},
             {{f.k, f.c, b}, {f.num_inner, f.num_columns}},
             {{f.r, f.c, c}, {f.num_rows, f.num_columns}}};
  p.a.layout.row_granule = p.c.layout.row_granule = f.granule_of_rows;
  p.a.layout.column_granule = p.b.layout.row_granule = f.granule_of_inner;
  return p;
}

/// Every grid of one data group, and one of two groups.
std::vector<std::array<int, 4>> product_grids(int num_ranks) {
  std::vector<std::array<int, 4>> grids;
  for (auto const& [x, y, z] : grids_3d(num_ranks))
    grids.push_back({1, x, y, z});
  if (num_ranks % 2 == 0) {
    auto const group = near_cubic(num_ranks / 2);
    grids.push_back({2, group.x, group.y, group.z});
  }
  return grids;
}

class ProductTest : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  /// The calls of one run, as they are listed for this rank.
  template<class T>
  std::vector<PlannedCall> calls_of_product(ProductPlan const& plan) const {
    auto step = step_of<T>(grid_);
    plan_product(step, plan);
    return calls_of(step);
  }

  /// Runs the product, and expects the serial result, clean padding and the planned calls.
  template<class T, class Left>
  void expect_product(Form form, Left const& left, DistMatrix<T> const& right, Placement const& result,
                      Dense const& expected, ProductOptions const& options = {}) {
    ProductPlan const plan{"C = A B", form, left.placement(), right.placement(), result, options};
    Product<T> product(grid_, plan);
    auto step = step_of<T>(grid_);
    plan_product(step, plan, num_nonzeros_of(left));
    auto const matrix = stained<T>(grid_, result);
    auto const before = world_.instruments().flops;
    clear_ledgers(grid_);

    product.run(exec_, left, right, matrix);

    auto const what = "left " + left.placement().to_string() + ", right " + right.placement().to_string() +
                      ", result " + result.to_string();
    EXPECT_EQ(largest_error(matrix, expected), 0) << what;
    EXPECT_EQ(counted_calls(grid_), planned_calls(step)) << what;
    auto const& flops = world_.instruments().flops;
    auto const local = products_of(step).front();
    EXPECT_EQ((local.is_sparse ? flops.sparse - before.sparse : flops.dense - before.dense), local.flops())
        << what;
    auto const numbers = host_copy(matrix.storage());
    for (auto i = matrix.block().num_stored;
         i < matrix.block().num_padded && grid_.size(result.layout.third()) > 1; ++i)
      EXPECT_EQ(numbers(static_cast<std::size_t>(i)), T{0}) << "padding; " << what;
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};
  DefaultExec exec_;
};

TEST_P(ProductTest, DenseProductsAndAdjointsEqualSerialOnes) {
  for (auto const& f : frames(1)) {
    auto const a = make_dense(f.num_rows, f.num_inner, [](auto i, auto j) { return small_integer(2, i, j); });
    auto const b =
        make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_integer(3, i, j); });
    auto const c =
        make_dense(f.num_rows, f.num_columns, [](auto i, auto j) { return small_integer(4, i, j); });
    auto const ab = product(a, b);
    auto const cbt = product(c, transposed(b));
    auto const atc = product(transposed(a), c);
    for (std::size_t s = 0; s < 9; ++s) { // every pair of storages among the three matrices
      auto const p = placements(f, all_storages[s % 3], all_storages[s / 3], all_storages[(s + s / 3) % 3]);
      auto const da = distributed<double>(grid_, p.a, a);
      auto const db = distributed<double>(grid_, p.b, b);
      auto const dc = distributed<double>(grid_, p.c, c);
      expect_product(Form::product, da, db, p.c, ab);
      expect_product(Form::left_grad, dc, db, p.a, cbt);
      expect_product(Form::right_grad, da, dc, p.b, atc);
    }
  }
}

TEST_P(ProductTest, SparseProductsAndAdjointsEqualSerialOnes) {
  int variant = 0;
  for (auto const& f : frames(5)) {
    auto const b =
        make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_integer(6, i, j); });
    auto const c =
        make_dense(f.num_rows, f.num_columns, [](auto i, auto j) { return small_integer(7, i, j); });
    for (std::size_t s = 0; s < 9; ++s, ++variant) {
      SparseRecipe const recipe{11, variant % 2 == 1, variant % 4 >= 2};
      auto const a = make_dense(f.num_rows, f.num_inner, recipe);
      auto const p = placements(f, Storage::replicated, all_storages[s % 3], all_storages[s / 3]);
      auto const block = block_of(grid_, p.a);
      DistSparse<double> const sparse(grid_, p.a, sparse_block<double>(recipe, block.rows, block.columns),
                                      Adjoint::kept);
      expect_product(Form::product, sparse, distributed<double>(grid_, p.b, b), p.c, product(a, b));
      expect_product(Form::right_grad, sparse, distributed<double>(grid_, p.c, c), p.b,
                     product(transposed(a), c));
    }
  }
}

TEST_P(ProductTest, RealNumbersAgreeWithinRounding) {
  auto const f = Frame{Axis::z, Axis::x, Axis::y, 61, 157, 37};
  auto const a = make_dense(f.num_rows, f.num_inner, [](auto i, auto j) { return small_real(2, i, j); });
  auto const b = make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_real(3, i, j); });
  auto const p = placements(f, Storage::replicated, Storage::flat_sharded, Storage::replicated);
  Product<double> product_ab(grid_, Form::product, p.a, p.b, p.c);
  auto const c = stained<double>(grid_, p.c);

  product_ab.run(exec_, distributed<double>(grid_, p.a, a), distributed<double>(grid_, p.b, b), c);

  // 157 terms of at most 1, summed in another order: 157 * 157 * 2^-53 < 3e-12 at worst, far less in
  // practice.
  EXPECT_LT(largest_error(c, product(a, b)), 1e-12);
}

TEST_P(ProductTest, SinglePrecisionAndBothScalesOfASparseOperand) {
  auto const f = Frame{Axis::x, Axis::z, Axis::y, 29, 23, 67}; // 67 floats: full vectors and a tail
  SparseRecipe const recipe{21, true, true};
  auto const p = placements(f, Storage::replicated, Storage::row_sharded, Storage::replicated);
  auto const block = block_of(grid_, p.a);
  DistSparse<float> const sparse(grid_, p.a, sparse_block<float>(recipe, block.rows, block.columns),
                                 Adjoint::kept);
  auto const b =
      make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_integer(6, i, j); });

  expect_product(Form::product, sparse, distributed<float>(grid_, p.b, b), p.c,
                 product(make_dense(f.num_rows, f.num_inner, recipe), b));
}

TEST_P(ProductTest, ChunksReduceTheSameSumsInMoreCalls) {
  auto const f = Frame{Axis::y, Axis::z, Axis::x, 31, 17, 9};
  SparseRecipe const recipe{31, false, true};
  auto const a = make_dense(f.num_rows, f.num_inner, recipe);
  auto const b =
      make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_integer(6, i, j); });
  auto const c = make_dense(f.num_rows, f.num_columns, [](auto i, auto j) { return small_integer(7, i, j); });
  auto const p = placements(f, Storage::replicated, Storage::replicated, Storage::replicated);
  auto const block = block_of(grid_, p.a);
  DistSparse<double> const sparse(grid_, p.a, sparse_block<double>(recipe, block.rows, block.columns),
                                  Adjoint::kept);
  auto const db = distributed<double>(grid_, p.b, b);
  auto const dc = distributed<double>(grid_, p.c, c);
  ProductOptions options;
  for (auto const num_chunks : {2, 5, 1000}) { // the last: more than rows
    options.num_chunks = num_chunks;
    expect_product(Form::product, sparse, db, p.c, product(a, b), options);
    expect_product(Form::right_grad, sparse, dc, p.b, product(transposed(a), c), options);
    expect_product(Form::product, distributed<double>(grid_, p.a, a), db, p.c, product(a, b), options);
    expect_product(Form::left_grad, dc, db, p.a, product(c, transposed(b)), options);
    expect_product(Form::right_grad, distributed<double>(grid_, p.a, a), dc, p.b, product(transposed(a), c),
                   options);
  }
}

TEST_P(ProductTest, SixteenBitsOnTheWireHalveTheBytes) {
  auto const f = Frame{Axis::x, Axis::y, Axis::z, 8, 6, 10};
  // Sums below 2^8 in size are exact in bfloat16: 6 terms of at most 9.
  auto const a = make_dense(f.num_rows, f.num_inner, [](auto i, auto j) { return small_integer(2, i, j); });
  auto const b =
      make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_integer(3, i, j); });
  ProductOptions const options{Wire::bf16, Wire::bf16, 1};
  for (auto const storage : all_storages) {
    auto const p = placements(f, Storage::flat_sharded, Storage::row_sharded, storage);
    expect_product(Form::product, distributed<float>(grid_, p.a, a), distributed<float>(grid_, p.b, b), p.c,
                   product(a, b), options);
    auto const native = calls_of_product<float>({"C = A B", Form::product, p.a, p.b, p.c, {}});
    auto const halved = calls_of_product<float>({"C = A B", Form::product, p.a, p.b, p.c, options});
    ASSERT_EQ(native.size(), halved.size());
    for (std::size_t i = 0; i < native.size(); ++i)
      EXPECT_EQ(native[i].bytes, 2 * halved[i].bytes);
  }
}

TEST_P(ProductTest, PrefetchedOperandsAndOverlappingProductsGiveTheSame) {
  auto const f = Frame{Axis::z, Axis::y, Axis::x, 23, 14, 11};
  auto const h = make_dense(f.num_rows, f.num_inner, [](auto i, auto j) { return small_integer(2, i, j); });
  auto const w =
      make_dense(f.num_inner, f.num_columns, [](auto i, auto j) { return small_integer(3, i, j); });
  auto const q = make_dense(f.num_rows, f.num_columns, [](auto i, auto j) { return small_integer(4, i, j); });
  auto const p = placements(f, Storage::replicated, Storage::flat_sharded, Storage::replicated);
  auto const dist_h = distributed<double>(grid_, p.a, h);
  auto const dist_w = distributed<double>(grid_, p.b, w);
  auto const dist_q = distributed<double>(grid_, p.c, q);
  auto const dh = stained<double>(grid_, p.a);
  auto const dw = stained<double>(grid_, p.b);
  ProductPlan const plan_h{"dH = dQ W^T", Form::left_grad, p.c, p.b, p.a, {}};
  ProductPlan const plan_w{"dW = H^T dQ", Form::right_grad, p.a, p.c, p.b, {}};
  Product<double> grad_h(grid_, plan_h);
  Product<double> grad_w(grid_, plan_w);
  clear_ledgers(grid_);

  for (int step = 0; step < 3; ++step) { // plans are used again
    grad_h.prefetch_right(exec_, dist_w);
    grad_h.start(exec_, dist_q, dist_w, dh);
    grad_w.run(exec_, dist_h, dist_q, dw); // behind the reduction of dH
    grad_h.finish();

    EXPECT_EQ(largest_error(dh, product(q, transposed(w))), 0);
    EXPECT_EQ(largest_error(dw, product(transposed(h), q)), 0);
  }
  auto listed = step_of<double>(grid_);
  for (int step = 0; step < 3; ++step) {
    plan_product(listed, plan_h);
    plan_product(listed, plan_w);
  }
  EXPECT_EQ(counted_calls(grid_), planned_calls(listed));
}

/// C[x,z] = A[x,y] B[y,z] of 30 x 20 x 10 doubles: B is gathered along x, C is summed along y. Bytes by hand.
struct HandCount {
  std::array<int, 3> grid;
  std::int64_t gathered; // along x; 0: no call
  std::int64_t summed;   // along y
};
constexpr std::array hand_counts{
    HandCount{{1, 1, 1}, 0, 0},      HandCount{{2, 1, 1}, 1600, 0}, // B 20 x 10
    HandCount{{1, 2, 1}, 0, 2400},                                  // C 30 x 10
    HandCount{{1, 1, 2}, 0, 0},                                     //
    HandCount{{3, 1, 1}, 1608, 0},                                  // 200 numbers in three pieces of 67
    HandCount{{1, 3, 1}, 0, 2400},                                  //
    HandCount{{2, 2, 1}, 800, 1200},                                // B 10 x 10, C 15 x 10
    HandCount{{2, 1, 2}, 800, 0},                                   // B 20 x 5
    HandCount{{1, 2, 2}, 0, 1200},                                  // C 30 x 5
    HandCount{{4, 1, 1}, 1600, 0},                                  //
    HandCount{{1, 4, 1}, 0, 2400},                                  //
    HandCount{{2, 2, 2}, 400, 600},                                 // B 10 x 5, C 15 x 5
};

TEST_P(ProductTest, CallsAreThoseWorkedOutByHand) {
  std::array const spatial{GetParam()[1], GetParam()[2], GetParam()[3]};
  auto const known = std::ranges::find(hand_counts, spatial, &HandCount::grid);
  if (known == hand_counts.end()) GTEST_SKIP() << "not worked out for this grid";
  auto const f = Frame{Axis::x, Axis::y, Axis::z, 30, 20, 10};
  auto const p = placements(f, Storage::replicated, Storage::flat_sharded, Storage::replicated);

  auto const calls = calls_of_product<double>({"C = A B", Form::product, p.a, p.b, p.c, {}});

  std::vector<PlannedCall> expected;
  auto const expect_call = [&](Operation operation, AxisSet axis, std::int64_t bytes) {
    if (bytes == 0) return;
    auto const sent = runtime::sent_bytes(operation, bytes, grid_.coordinate(axis), grid_.size(axis));
    expected.push_back({operation, std::string(name_of(axis)), span_of(grid_.shape(), axis), bytes, sent});
  };
  expect_call(Operation::all_gather, Axis::x, known->gathered);
  expect_call(Operation::all_reduce, Axis::y, known->summed);
  EXPECT_EQ(calls, expected);
}

TEST_P(ProductTest, WhatDoesNotComposeIsRefusedWithAllThreePlacements) {
  Placement const a{{Axis::z, Axis::x}, {9, 7}};
  Placement const b{{Axis::x, Axis::y, Storage::flat_sharded}, {7, 4}};
  Placement const c{{Axis::z, Axis::y}, {9, 4}};
  EXPECT_NO_THROW(Product<double>(grid_, Form::product, a, b, c));

  auto const expect_refused = [&](Placement const& left, Placement const& right, Placement const& result,
                                  char const* what) {
    try {
      Product<double>(grid_, Form::product, left, right, result);
      ADD_FAILURE() << what << " composed";
    } catch (runtime::Error const& error) {
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(::testing::HasSubstr(what), ::testing::HasSubstr(left.to_string()),
                                   ::testing::HasSubstr(right.to_string()),
                                   ::testing::HasSubstr(result.to_string())));
    }
  };
  auto wrong_axis = c;
  wrong_axis.layout.columns = Axis::x;
  expect_refused(a, b, wrong_axis, "axes");
  auto wrong_extent = b;
  wrong_extent.extents.rows = 8;
  expect_refused(a, wrong_extent, c, "extents");
  auto wrong_order = b;
  wrong_order.layout.row_order = p2;
  expect_refused(a, wrong_order, c, "orders");
  auto data_axis = a;
  data_axis.layout.rows = Axis::data;
  expect_refused(data_axis, b, c, "axes");

  // Matrices other than the planned ones.
  Product<double> product(grid_, Form::product, a, b, c);
  EXPECT_THROW(
      product.run(exec_, stained<double>(grid_, a), stained<double>(grid_, c), stained<double>(grid_, c)),
      runtime::Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, ProductTest, ::testing::ValuesIn(product_grids(world_size())), GridName{});

} // namespace
} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// The aggregation of 16-bit numbers, on every grid: exact for numbers that fit, within its bound for reals and with the
// same operand on every grid, results that are rounded once, half the bytes of steps 1, 2 and 5 in ledger and list; and
// products on three axes with such operands and results.
#include "aggregate_fixture.hpp"

#include "pmm/kernels/rounding.hpp"
#include "pmm/product/product.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Bf16Number;
using runtime::Fp16Number;

template<class Number>
Dense rounded(Dense const& whole) {
  return make_dense(whole.rows, whole.columns,
                    [&](auto i, auto j) { return double{float{Number(static_cast<float>(whole(i, j)))}}; });
}

Dense magnitudes(Dense const& whole) {
  return make_dense(whole.rows, whole.columns, [&](auto i, auto j) { return std::abs(whole(i, j)); });
}

class RoundedAggregate : public CellsFixture {
 protected:
  struct How {
    Roles roles{};
    Flow flow = Flow::forward;
    Gather gather = Gather::all;
    AxisSet hidden_axes{};
    Wire wire = Wire::native;
  };

  /// H := A round(F), beside the same in double; `slack`: |error| <= slack |A| |F|, and |H| times the unit of Result
  /// more. Without slack H must be the rounded sum.
  template<class Number, class Result>
  void expect_result(Cells const& cells, How const& how, Dense const& a, Dense const& f, double slack) {
    auto const n = f.rows;
    auto const planned = this->plan(a, cells, how.roles, how.gather);
    auto const forward = planned.block.template on_device<float>(planned.num_columns);
    LocalSpmm<float> const block(how.flow == Flow::forward ? forward : transposed(forward));
    AggregatePlan plan{"H = A F", {}, how.roles, sizes_of(cells, how.roles), f.columns, how.flow, how.wire};
    plan.needed = planned.needed->counts();
    plan.hidden_axes = how.hidden_axes;
    plan.operand_format = runtime::format_of<Number>;
    plan.result_format = runtime::format_of<Result>;
    auto const workspace = std::make_shared<Workspace<float>>();
    Aggregate<Number> aggregate(grid_, plan, block, workspace, planned.needed);
    auto step = step_of<float>(grid_);
    plan_aggregate(step, plan, block.block().csr.num_nonzeros());
    auto buffers = step_of<float>(grid_);
    WorkspacePlan work;
    plan_buffers(work, buffers, plan);
    work.list(buffers);
    EXPECT_EQ(workspace->num_bytes(), bytes_held(buffers));
    auto const placement = owned(cells, n, f.columns);
    auto const in = rounded_matrix<Number>(placement, renumbered(cells, f));
    auto const out = stained<Result>(grid_, placement);
    auto const before = world_.instruments().flops.sparse;
    clear_ledgers(grid_);

    if (how.hidden_axes != AxisSet{}) aggregate.prefetch(exec_, in);
    aggregate.run(exec_, in, out);

    EXPECT_EQ(counted_calls(grid_), planned_calls(step));
    EXPECT_EQ(world_.instruments().flops.sparse - before, products_of(step).front().flops());
    EXPECT_EQ(products_of(step).front().operand_format, runtime::format_of<Number>);
    auto const matrix = how.flow == Flow::forward ? a : transposed(a);
    auto const sums = renumbered(cells, product(matrix, rounded<Number>(f)));
    auto const is_rounded = std::is_same_v<Result, Number>;
    auto const expected = is_rounded && slack == 0 ? rounded<Number>(sums) : sums;
    auto const unit = !is_rounded || slack == 0 ? 0 : std::is_same_v<Number, Bf16Number> ? 0x1p-8 : 0x1p-11;
    auto const bound = renumbered(cells, product(magnitudes(matrix), magnitudes(f)));
    auto const found = host_copy(out.storage());
    for (std::int64_t i = 0; i < out.block().num_stored; ++i) {
      auto const row = out.block().rows.begin + i / f.columns;
      ASSERT_NEAR(found(static_cast<std::size_t>(i)), expected(row, i % f.columns),
                  slack * bound(row, i % f.columns) + unit * std::abs(expected(row, i % f.columns)))
          << f.columns << " columns, row " << row;
    }
  }
  template<class Number>
  void expect_aggregate(Cells const& cells, How const& how, Dense const& a, Dense const& f, double slack) {
    expect_result<Number, float>(cells, how, a, f, slack);
    expect_result<Number, Number>(cells, how, a, f, slack);
  }

  template<class Number>
  DistMatrix<Number> rounded_matrix(Placement const& placement, Dense const& whole) {
    DistMatrix<Number> const matrix(grid_, placement, "orthant::testing::rounded");
    round_numbers(exec_, distributed<float>(grid_, placement, whole).storage(), matrix.storage());
    return matrix;
  }

  /// Everything that changes the way of a row.
  template<class Visit>
  void for_each_way(std::vector<Roles> const& all, Visit const& visit) {
    for (auto const& roles : all)
      for (auto const flow : {Flow::forward, Flow::transpose})
        for (auto const gather : {Gather::all, Gather::needed})
          for (auto const& hidden : {AxisSet{}, group_axes})
            visit(How{roles, flow, gather, hidden});
  }
};

TEST_P(RoundedAggregate, NumbersThatFitAreExact) {
  for (auto const n : {std::int64_t{61}, std::int64_t{5}}) {
    auto const a = make_dense(n, n, SparseRecipe{31, true, false});
    auto const cells = n > 5 ? drawn_cells(grid_.shape(), n) : contiguous(grid_.shape(), n);
    for_each_way(all_roles(), [&](How const& how) {
      expect_aggregate<Bf16Number>(cells, how, a, integers(32, n, 7), 0);
      expect_aggregate<Fp16Number>(cells, how, a, integers(32, n, 1), 0);
    });
  }
}

// The operand is rounded once and before it travels: what is left is the rounding of fp32 sums, on any grid.
TEST_P(RoundedAggregate, RealsAreThoseOfTheRoundedOperand) {
  std::int64_t const n = 61, width = 10;
  auto const a = make_dense(n, n, SparseRecipe{33, true, false});
  auto const f = make_dense(n, width, [](auto i, auto j) { return small_real(34, i, j); });
  auto const sums = static_cast<double>(n) * 0x1p-23;
  auto const cells = drawn_cells(grid_.shape(), n);
  for_each_way({Roles{}, {Axis::y, Axis::z, Axis::x}}, [&](How how) {
    expect_aggregate<Bf16Number>(cells, how, a, f, sums);
    expect_aggregate<Fp16Number>(cells, how, a, f, sums);
    // A wire of 16 bits rounds addends, sums and, if they travel on, sums once more: docs/design.md 6.
    how.wire = Wire::fp16;
    expect_aggregate<Bf16Number>(cells, how, a, f, sums + 3.01 * 0x1p-11);
  });
}

TEST_P(RoundedAggregate, WhatDoesNotFitIsRefused) {
  std::int64_t const n = 61, width = 4;
  auto const cells = contiguous(grid_.shape(), n);
  Roles const roles;
  auto const planned = this->plan(make_dense(n, n, SparseRecipe{31, true, false}), cells, roles, Gather::all);
  LocalSpmm<float> const block(planned.block.on_device<float>(planned.num_columns));
  AggregatePlan plan{"H = A F", {}, roles, sizes_of(cells, roles), width};
  auto const workspace = std::make_shared<Workspace<float>>();
  EXPECT_THROW((Aggregate<Bf16Number>(grid_, plan, block, workspace)), runtime::Error);
  plan.operand_format = Wire::fp16;
  EXPECT_THROW((Aggregate<Bf16Number>(grid_, plan, block, workspace)), runtime::Error);
  EXPECT_THROW((Aggregate<float>(grid_, plan, block, workspace)), runtime::Error);
  plan.result_format = Wire::bf16;
  EXPECT_THROW((Aggregate<Fp16Number>(grid_, plan, block, workspace)), runtime::Error);
  auto doubles = step_of<double>(grid_);
  EXPECT_THROW(plan_aggregate(doubles, plan, 7), runtime::Error);
}

// F[a,b] replicated, and a trained one that is gathered: 2 bytes per number.
TEST_P(RoundedAggregate, AProductOnThreeAxesTakesSuchOperands) {
  std::int64_t const n = 61, d = 10;
  SparseRecipe const recipe{35, true, false};
  Placement const a{{Axis::z, Axis::x}, {n, n}};
  auto const whole = make_dense(n, n, recipe);
  auto const f = integers(36, n, d);
  for (auto const storage : {Storage::replicated, Storage::flat_sharded}) {
    Placement const from{{Axis::x, Axis::y, storage}, {n, d}}, to{{Axis::z, Axis::y}, {n, d}};
    DistSparse<float> const adjacency(
        grid_, a,
        sparse_block<float>(recipe, part_of(grid_.shape(), grid_.coordinates(), Axis::z, n),
                            part_of(grid_.shape(), grid_.coordinates(), Axis::x, n)),
        Adjoint::none);
    auto const operand = rounded_matrix<Bf16Number>(from, f);
    auto const expect_product = [&]<class Result>(DistMatrix<Result> const& result, Dense const& expected) {
      ProductPlan const plan{
          "H = A F", Form::product,
          a,         from,
          to,        {.operand_format = Wire::bf16, .result_format = runtime::format_of<Result>}};
      Product<Bf16Number, Result> product_of(grid_, plan);
      auto step = step_of<float>(grid_);
      plan_product(step, plan, adjacency.forward().block().csr.num_nonzeros());
      clear_ledgers(grid_);

      product_of.run(exec_, adjacency, operand, result);

      EXPECT_EQ(largest_error(result, expected), 0);
      EXPECT_EQ(counted_calls(grid_), planned_calls(step));
    };
    expect_product(stained<float>(grid_, to), product(whole, f));
    expect_product(stained<Bf16Number>(grid_, to), rounded<Bf16Number>(product(whole, f)));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, RoundedAggregate, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing

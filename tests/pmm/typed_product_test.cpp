// SPDX-License-Identifier: Apache-2.0
//
// Products that add to their result, and products of 16-bit numbers, on every grid: all forms and storages against
// serial loops in fp64, the listed calls, flops and buffers, empty extents, and what is refused.
#include "pmm/product/product.hpp"

#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <array>
#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Bf16Number;
using runtime::format_of;
using runtime::Fp16Number;
using runtime::is_16_bit;
using runtime::SumOf;

/// The numbers as T holds them, rounded once.
template<class T>
Dense rounded(Dense matrix) {
  for (auto& number : matrix.numbers)
    number = T(static_cast<SumOf<T>>(number));
  return matrix;
}

/// This rank's piece of `whole`, whose numbers T holds exactly.
template<class T>
DistMatrix<T> typed(ProcessGrid const& grid, Placement const& placement, Dense const& whole) {
  DistMatrix<T> const matrix(grid, placement, "orthant::testing::typed");
  auto const exact = distributed<double>(grid, placement, whole);
  auto const from = host_copy(exact.storage());
  auto const host = Kokkos::create_mirror_view(matrix.storage());
  for (std::size_t i = 0; i < from.extent(0); ++i)
    host(i) = T(static_cast<SumOf<T>>(from(i)));
  Kokkos::deep_copy(matrix.storage(), host);
  return matrix;
}

Dense integers(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [seed](auto i, auto j) { return small_integer(seed, i, j); });
}
Dense reals(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  return make_dense(rows, columns, [seed](auto i, auto j) { return small_real(seed, i, j); });
}
Dense sum(Dense a, Dense const& b) {
  for (std::size_t i = 0; i < a.numbers.size(); ++i)
    a.numbers[i] += b.numbers[i];
  return a;
}
Dense absolute(Dense a) {
  for (auto& number : a.numbers)
    number = std::abs(number);
  return a;
}

/// One of the three forms with its operands: C := A B in the roles that the form gives to A, B and C.
struct Case {
  Form form{};
  Placement left, right, result;
  Dense left_numbers, right_numbers; // as they are passed
  [[nodiscard]] std::int64_t num_inner() const {
    return form == Form::right_grad ? left.extents.rows : left.extents.columns;
  }
  [[nodiscard]] Dense expected() const { return product_of(left_numbers, right_numbers); }
  /// Bounds of rounding are in terms of |A| |B|.
  [[nodiscard]] Dense expected_of_absolutes() const {
    return product_of(absolute(left_numbers), absolute(right_numbers));
  }

 private:
  [[nodiscard]] Dense product_of(Dense const& l, Dense const& r) const {
    if (form == Form::left_grad) return product(l, transposed(r));
    return product(form == Form::right_grad ? transposed(l) : l, r);
  }
};

/// The product and its adjoints of A [m x k] and B [k x n] in a layout, with storages that differ from case to case.
template<class MakeNumbers>
std::vector<Case> cases_of(AxisPair const& axes, std::size_t s, std::array<std::int64_t, 3> const& extents,
                           MakeNumbers const& make) {
  auto const [m, k, n] = extents;
  auto const [r, c] = axes;
  auto const inner = Layout{r, c}.third();
  Placement const a{{r, inner, all_storages[s % 3]}, {m, k}};
  Placement const b{{inner, c, all_storages[s / 3 % 3]}, {k, n}};
  Placement const d{{r, c, all_storages[(s + s / 3) % 3]}, {m, n}};
  auto const a_numbers = make(2, m, k);
  auto const b_numbers = make(3, k, n);
  auto const d_numbers = make(4, m, n);
  return {{Form::product, a, b, d, a_numbers, b_numbers},
          {Form::left_grad, d, b, a, d_numbers, b_numbers},
          {Form::right_grad, a, d, b, a_numbers, d_numbers}};
}

template<class Operand, class Result>
ProductOptions typed_options(Update update) {
  ProductOptions options;
  options.update = update;
  options.operand_format = format_of<Operand>;
  options.result_format = format_of<Result>;
  return options;
}

class TypedProduct : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  enum class How { run, start_and_finish };

  /// Runs the case on a result that holds `old`, and expects the listed calls, flops and buffers, clean padding and
  /// equal numbers, but for `bound(i, j)`.
  template<class Operand, class Result, class Bound>
  void expect_case(Case const& test, ProductOptions const& options, Dense const& old, Bound const& bound,
                   How how = How::run) {
    ProductPlan const plan{"C = A B", test.form, test.left, test.right, test.result, options};
    auto const workspace = std::make_shared<Workspace<SumOf<Result>>>();
    Product<Operand, Result> product(grid_, plan, workspace);
    auto step = step_of<SumOf<Result>>(grid_);
    plan_product(step, plan);
    WorkspacePlan work;
    plan_buffers(work, step, plan);
    auto const flops = world_.instruments().flops.dense;
    auto const left = typed<Operand>(grid_, test.left, test.left_numbers);
    auto const right = typed<Operand>(grid_, test.right, test.right_numbers);
    auto const result = typed<Result>(grid_, test.result, old);
    clear_ledgers(grid_);

    if (how == How::run) {
      product.run(exec_, left, right, result);
    } else {
      product.start(exec_, left, right, result);
      product.finish();
    }

    auto const what = "left " + test.left.to_string() + ", right " + test.right.to_string() + ", result " +
                      test.result.to_string();
    auto const expected = options.update == Update::add ? sum(test.expected(), old) : test.expected();
    auto const& block = result.block();
    auto const numbers = host_copy(result.storage());
    for (std::int64_t i = 0; i < block.num_padded; ++i) {
      auto const number = static_cast<double>(numbers(static_cast<std::size_t>(i)));
      if (i >= block.num_stored) {
        EXPECT_EQ(number, 0) << "padding; " << what;
        continue;
      }
      auto const row = block.rows.begin + (block.first + i) / block.columns.size();
      auto const column = block.columns.begin + (block.first + i) % block.columns.size();
      EXPECT_LE(std::abs(number - expected(row, column)), bound(row, column)) << what;
    }
    EXPECT_EQ(counted_calls(grid_), planned_calls(step)) << what;
    EXPECT_EQ(world_.instruments().flops.dense - flops, products_of(step).front().flops()) << what;
    EXPECT_EQ(products_of(step).front().operand_format, format_of<Operand>);
    work.list(step);
    std::int64_t listed_bytes = 0;
    for (auto const& array : step.arrays())
      listed_bytes += array.bytes;
    EXPECT_EQ(workspace->num_bytes(), listed_bytes) << what;
  }

  /// Integers are exact: any order of the sums gives the same, and a result of 16 bits is their rounding.
  template<class Operand, class Result>
  void expect_exact_integers(Update update, std::size_t num_storages) {
    std::size_t s = 0;
    for (auto const& axes : axis_set_pairs())
      for (std::size_t i = 0; i < num_storages; ++i, ++s)
        for (auto const& test : cases_of(axes, s, {7, 5, 9}, integers))
          expect_case<Operand, Result>(
              test, typed_options<Operand, Result>(update),
              integers(5, test.result.extents.rows, test.result.extents.columns),
              [](auto, auto) { return 0; }, s % 2 == 0 ? How::run : How::start_and_finish);
  }

  /// |error| <= k eps sum |a| |b| + u |c|, and the same for the old number, which is one more addend.
  template<class Operand, class Result>
  void expect_reals_within_rounding(Update update) {
    constexpr auto eps = is_16_bit<Operand> || std::is_same_v<Result, float> ? 0x1p-23 : 0x1p-52;
    constexpr auto u = format_of<Result> == Wire::bf16   ? 0x1p-8
                       : format_of<Result> == Wire::fp16 ? 0x1p-11
                                                         : 0.0;
    std::size_t s = 0;
    for (auto const& axes : axis_pairs()) {
      auto const make = [](std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
        return rounded<Operand>(reals(seed, rows, columns));
      };
      for (auto const& test : cases_of(axes, s++, {23, 301, 17}, make)) {
        auto const old = rounded<Result>(reals(5, test.result.extents.rows, test.result.extents.columns));
        auto const magnitude = test.expected_of_absolutes();
        auto const exact = sum(test.expected(), old);
        expect_case<Operand, Result>(test, typed_options<Operand, Result>(update), old, [&](auto i, auto j) {
          auto const addends = magnitude(i, j) + std::abs(old(i, j));
          auto const of_sum = static_cast<double>(test.num_inner() + 1) * eps * addends;
          auto const number = update == Update::add ? exact(i, j) : exact(i, j) - old(i, j);
          return of_sum + u * (std::abs(number) + of_sum);
        });
      }
    }
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
  DefaultExec exec_;
};

TEST_P(TypedProduct, AddsToItsResultOnceHoweverTheSumIsSplit) {
  expect_exact_integers<double, double>(Update::add, 3);
  expect_exact_integers<float, float>(Update::add, 1);
}

TEST_P(TypedProduct, SixteenBitOperandsAreExactForSmallIntegers) {
  for (auto const update : {Update::assign, Update::add}) { // sums of at most 9 x 9 + 3 in size
    expect_exact_integers<Bf16Number, float>(update, 1);
    expect_exact_integers<Bf16Number, Bf16Number>(update, 1);
    expect_exact_integers<Fp16Number, float>(update, 1);
    expect_exact_integers<Fp16Number, Fp16Number>(update, 1);
  }
}

TEST_P(TypedProduct, RealNumbersAreWithinTheBoundOfRounding) {
  expect_reals_within_rounding<float, float>(Update::add);
  expect_reals_within_rounding<double, double>(Update::add);
  for (auto const update : {Update::assign, Update::add}) {
    expect_reals_within_rounding<Bf16Number, float>(update);
    expect_reals_within_rounding<Bf16Number, Bf16Number>(update);
    expect_reals_within_rounding<Fp16Number, float>(update);
    expect_reals_within_rounding<Fp16Number, Fp16Number>(update);
  }
}

TEST_P(TypedProduct, ChunksAddToTheResultOnce) {
  auto const axes = AxisPair{Axis::y, Axis::x};
  for (auto const num_chunks : {2, 1000}) // the second: more than rows
    for (auto const how : {How::run, How::start_and_finish})
      for (auto const& test : cases_of(axes, 0, {11, 6, 5}, integers)) {
        auto options = typed_options<float, float>(Update::add);
        options.num_chunks = num_chunks;
        auto const old = integers(5, test.result.extents.rows, test.result.extents.columns);
        auto const exact = [](auto, auto) { return 0; };
        expect_case<float, float>(test, options, old, exact, how);
        options = typed_options<Bf16Number, Bf16Number>(Update::add);
        options.num_chunks = num_chunks;
        expect_case<Bf16Number, Bf16Number>(test, options, old, exact, how);
      }
}

/// 300 + 1/1024 is no number of bf16: the wire rounds the product, 9 at most, but not what was there.
TEST_P(TypedProduct, ASixteenBitWireDoesNotRoundTheOldResult) {
  auto options = typed_options<float, float>(Update::add);
  options.result_wire = Wire::bf16;
  for (auto const& test : cases_of({Axis::z, Axis::y}, 0, {6, 8, 4}, integers)) {
    auto const old = make_dense(test.result.extents.rows, test.result.extents.columns,
                                [](auto, auto) { return 300 + 0x1p-10; });
    expect_case<float, float>(test, options, old, [](auto, auto) { return 0; });
  }
}

TEST_P(TypedProduct, AnEmptyInnerExtentAddsNothingAndAssignsZero) {
  for (auto const& axes : axis_set_pairs())
    for (auto const& test : cases_of(axes, 4, {5, 0, 7}, integers)) {
      auto const old = integers(5, test.result.extents.rows, test.result.extents.columns);
      auto const exact = [](auto, auto) { return 0; };
      for (auto const update : {Update::assign, Update::add}) {
        expect_case<float, float>(test, typed_options<float, float>(update), old, exact);
        expect_case<Bf16Number, float>(test, typed_options<Bf16Number, float>(update), old, exact);
        expect_case<Fp16Number, Fp16Number>(test, typed_options<Fp16Number, Fp16Number>(update), old, exact);
      }
    }
}

TEST_P(TypedProduct, RanksWithoutRowsOrColumnsTakePart) {
  for (auto const& axes : axis_set_pairs())
    for (std::array<std::int64_t, 3> const extents :
         {std::array<std::int64_t, 3>{1, 2, 1}, {2, 1, 3}, {0, 3, 2}})
      for (auto const& test : cases_of(axes, 5, extents, integers)) {
        auto const old = integers(5, test.result.extents.rows, test.result.extents.columns);
        auto const exact = [](auto, auto) { return 0; };
        expect_case<double, double>(test, typed_options<double, double>(Update::add), old, exact);
        expect_case<Bf16Number, Bf16Number>(test, typed_options<Bf16Number, Bf16Number>(Update::add), old,
                                            exact);
      }
}

TEST_P(TypedProduct, SixteenBitOperandsMoveAndKeepHalfTheBytes) {
  auto const test =
      cases_of({Axis::z, Axis::y}, 4, {16, 24, 32}, integers).front(); // A and B are flat-sharded
  auto const listed = [&](ProductOptions const& options) {
    auto step = step_of<float>(grid_);
    ProductPlan const plan{"C = A B", test.form, test.left, test.right, test.result, options};
    plan_product(step, plan);
    WorkspacePlan work;
    plan_buffers(work, step, plan);
    work.list(step);
    plan_matrix(step, test.left, "A", Lifetime::training, options.operand_format);
    return step;
  };
  auto const whole = listed({});
  auto const half = listed(typed_options<Bf16Number, float>(Update::assign));
  auto const whole_calls = calls_of(whole);
  auto const half_calls = calls_of(half);

  ASSERT_EQ(whole_calls.size(), half_calls.size());
  for (std::size_t i = 0; i < whole_calls.size(); ++i) // the sum over ranks is in fp32
    EXPECT_EQ(whole_calls[i].bytes,
              half_calls[i].bytes * (whole_calls[i].operation == runtime::Operation::all_gather ? 2 : 1));
  EXPECT_EQ(products_of(whole).front().flops(), products_of(half).front().flops());
  EXPECT_EQ(whole.arrays().back().bytes, 2 * half.arrays().back().bytes);
}

template<class Action>
std::string message_of(Action const& action) {
  try {
    action();
  } catch (runtime::Error const& error) {
    return error.what();
  }
  return {};
}

TEST_P(TypedProduct, WhatDoesNotFitIsRefused) {
  auto const test = cases_of({Axis::x, Axis::y}, 0, {6, 5, 4}, integers).front();
  auto const refusal = [&](auto const& number, ProductOptions const& options) {
    using Operand = std::decay_t<decltype(number)>;
    return message_of([&] {
      Product<Operand> const product(grid_, test.form, test.left, test.right, test.result, options);
    });
  };
  EXPECT_EQ(refusal(float{}, {}), "");
  EXPECT_EQ(refusal(Bf16Number(), typed_options<Bf16Number, Bf16Number>(Update::add)), "");
  EXPECT_NE(refusal(Bf16Number(), {}).find("other formats"), std::string::npos);
  EXPECT_NE(refusal(float{}, typed_options<Bf16Number, float>(Update::assign)).find("other formats"),
            std::string::npos);
  EXPECT_NE(
      refusal(Fp16Number(), typed_options<Bf16Number, Bf16Number>(Update::assign)).find("other formats"),
      std::string::npos);
  auto wired = typed_options<Bf16Number, Bf16Number>(Update::assign);
  wired.operand_wire = Wire::bf16;
  EXPECT_NE(refusal(Bf16Number(), wired).find("travel as they are"), std::string::npos);

  // In a list, which knows no types.
  ProductPlan plan{"C = A B", test.form, test.left, test.right, test.result, {}};
  plan.options.result_format = Wire::fp16;
  auto step = step_of<float>(grid_);
  EXPECT_THROW(plan_product(step, plan), runtime::Error);
  plan.options.operand_format = Wire::fp16;
  EXPECT_NO_THROW(plan_product(step, plan));
  auto fp64_step = step_of<double>(grid_);
  EXPECT_THROW(plan_product(fp64_step, plan), runtime::Error);

  SparseRecipe const recipe{11, false, false};
  Placement const a{{Axis::x, Axis::z}, {6, 5}};
  auto const block = block_of(grid_, a);
  DistSparse<float> const sparse(grid_, a, sparse_block<float>(recipe, block.rows, block.columns),
                                 Adjoint::none);
  Product<float> product(grid_, test.form, a, test.right, test.result,
                         typed_options<float, float>(Update::add));
  auto const right = typed<float>(grid_, test.right, test.right_numbers);
  auto const result = stained<float>(grid_, test.result);
  EXPECT_NE(message_of([&] { product.run(exec_, sparse, right, result); }).find("does not add to its result"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Grids, TypedProduct, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing

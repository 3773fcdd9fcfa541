// SPDX-License-Identifier: Apache-2.0
//
// Attention within each relation and its adjoints on every grid, against serial loops of the equations in double precision. The gradients of
// the loops are derivatives by complex steps, which are exact to rounding: Im(f(x + i h)) / h for a tiny h.
#include "pmm/relations/relation_attention.hpp"

#include "pmm/relations/typed_entries.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <array>
#include <complex>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

constexpr std::int64_t num_rows = 17, num_columns = 13, num_relations = 3;
constexpr std::int64_t in = 5, width = 2, num_heads = 3, out = num_heads * width;
constexpr auto tolerance = 1e-11;
using Complex = std::complex<double>;

/// Relation 1 has no edges, and the others leave some rows out.
bool has_edge(std::int64_t r, std::int64_t i, std::int64_t j) {
  return r != 1 && i % 5 != r && is_entry(70 + static_cast<std::uint64_t>(r), i, j);
}

TypedEntries entries_of(Range columns) {
  return filled({.num_rows = num_rows, .num_relations = num_relations}, columns, has_edge);
}

/// All operands, each in one list.
enum Operand { of_columns, of_rows, weight, target_weight, attention, num_operands };
using Operands = std::array<std::vector<Complex>, num_operands>;

Operands operands_of() {
  return {reals<Complex>(81, num_columns, in), reals<Complex>(82, num_rows, in),
          reals<Complex>(83, num_relations * in, out), reals<Complex>(84, num_relations * in, out),
          reals<Complex>(85, num_relations * num_heads, 2 * width)};
}

Complex at(std::vector<Complex> const& matrix, std::int64_t columns, std::int64_t row, std::int64_t column) {
  return matrix[static_cast<std::size_t>(row * columns + column)];
}

/// <a, x W_r> of one head, with x row `row` of `x`, and a the half of a_rh that begins at `first`.
Complex end_of(Operands const& all, std::vector<Complex> const& x, std::vector<Complex> const& w,
               std::int64_t row, std::int64_t r, std::int64_t head, std::int64_t first) {
  Complex sum = 0;
  for (std::int64_t c = 0; c < width; ++c)
    for (std::int64_t k = 0; k < in; ++k)
      sum += at(all[attention], 2 * width, r * num_heads + head, first + c) * at(x, in, row, k) *
             at(w, out, r * in + k, head * width + c);
  return sum;
}

std::vector<Complex> result_of(Operands const& all, bool has_target_weights) {
  auto const& w_target = has_target_weights ? all[target_weight] : all[weight];
  std::vector<Complex> p(num_rows * out);
  for (std::int64_t r = 0; r < num_relations; ++r)
    for (std::int64_t i = 0; i < num_rows; ++i)
      for (std::int64_t head = 0; head < num_heads; ++head) {
        std::vector<Complex> coefficients;
        std::vector<std::int64_t> neighbors;
        Complex sum = 0;
        for (std::int64_t j = 0; j < num_columns; ++j) {
          if (!has_edge(r, i, j)) continue;
          auto const z = end_of(all, all[of_rows], w_target, i, r, head, 0) +
                         end_of(all, all[of_columns], all[weight], j, r, head, width);
          neighbors.push_back(j);
          coefficients.push_back(std::exp(z.real() > 0 ? z : 0.2 * z));
          sum += coefficients.back();
        }
        for (std::size_t e = 0; e < neighbors.size(); ++e)
          for (std::int64_t c = 0; c < width; ++c)
            for (std::int64_t k = 0; k < in; ++k)
              p[static_cast<std::size_t>(i * out + head * width + c)] +=
                  coefficients[e] / sum * at(all[of_columns], in, neighbors[e], k) *
                  at(all[weight], out, r * in + k, head * width + c);
      }
  return p;
}

std::vector<double> gradient_of(Operands all, Operand by, std::vector<double> const& dp,
                                bool has_target_weights) {
  constexpr auto h = 1e-40;
  std::vector<double> gradient;
  for (auto& number : all[by]) {
    number += Complex(0, h);
    auto const p = result_of(all, has_target_weights);
    double sum = 0;
    for (std::size_t k = 0; k < p.size(); ++k)
      sum += dp[k] * p[k].imag() / h;
    gradient.push_back(sum);
    number = number.real();
  }
  return gradient;
}

std::vector<double> part_of_rows(std::vector<Complex> const& matrix, std::int64_t columns, Range rows,
                                 Range part) {
  std::vector<double> numbers;
  for (auto i = rows.begin; i < rows.end; ++i)
    for (auto j = part.begin; j < part.end; ++j)
      numbers.push_back(at(matrix, columns, i, j).real());
  return numbers;
}
std::vector<double> whole_of(std::vector<Complex> const& matrix) {
  return part_of_rows(matrix, 1, {0, std::ssize(matrix)}, {0, 1});
}

void expect_equal(runtime::Vector<double> const& found, std::vector<double> const& expected,
                  char const* what) {
  auto const host = host_copy(found);
  ASSERT_EQ(host.extent(0), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(host(i), expected[i], tolerance) << what << ", element " << i;
}

runtime::Vector<double> sevens(std::int64_t count) {
  return device_copy(std::vector<double>(static_cast<std::size_t>(count), 7.0));
}

class RelationAttentions : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};

  /// Columns of A are split over x, heads over y; z repeats the work.
  void expect_those_of_the_equations(bool has_target_weights) {
    DefaultExec const exec;
    auto const columns = part_of(grid_.shape(), grid_.coordinates(), Axis::x, num_columns);
    auto const heads = part_of(grid_.shape(), grid_.coordinates(), Axis::y, num_heads);
    Range const own{heads.begin * width, heads.end * width};
    auto const block =
        std::make_shared<RelationEdges const>(make_relation_edges(grid_, Axis::x, entries_of(columns)));
    RelationAttentionShape const shape{num_relations, in, {num_heads, width}, has_target_weights};
    RelationAttentionSizes const sizes{num_rows, columns.size(), block->counts(), heads.begin, heads.size()};
    auto const memory_of = [&](std::int64_t targets) {
      return RelationAttentionMemory<double>{
          sevens(sizes.num_vectors(shape)),   sevens(sizes.num_folded(shape)),
          sevens(sizes.num_projected(shape)), sevens(targets),
          sevens(sizes.num_source_ends()),    sevens(sizes.num_coefficients())};
    };
    auto const again = memory_of(sizes.num_target_ends());
    RelationAttentionScratch<double> const scratch{again.vectors,
                                                   again.folded,
                                                   again.projected,
                                                   again.target_ends,
                                                   again.source_ends,
                                                   again.coefficients,
                                                   sevens(sizes.num_picked(shape)),
                                                   sevens(sizes.num_picked(shape)),
                                                   sevens(sizes.num_target_ends())};
    RelationAttention<double> layer(grid_, Axis::x, block, shape, sizes, memory_of(sizes.num_target_ends()),
                                    scratch, std::make_shared<Workspace<double>>());
    auto const all = operands_of();
    auto const of_target = [&](auto const& numbers) {
      return has_target_weights ? numbers : std::decay_t<decltype(numbers)>();
    };
    RelationAttentionInputs<double> const f{device_copy(part_of_rows(all[of_columns], in, columns, {0, in})),
                                            device_copy(whole_of(all[of_rows]))};
    RelationAttentionParameters<double> const parameters{device_copy(whole_of(all[weight])),
                                                         device_copy(of_target(whole_of(all[target_weight]))),
                                                         device_copy(whole_of(all[attention]))};
    auto const p = sevens(sizes.num_results(shape));

    layer.forward(exec, f, parameters, {}, p);
    runtime::all_reduce(exec, grid_.over(Axis::x), p);

    expect_equal(p, part_of_rows(result_of(all, has_target_weights), out, {0, num_rows}, own), "P");

    auto const dp = reals<double>(86, num_rows, out);
    std::vector<Complex> const dp_complex(dp.begin(), dp.end());
    auto const seven_like = [&](auto const& view) {
      return sevens(static_cast<std::int64_t>(view.extent(0)));
    };
    RelationAttentionParameters<double> const gradients{seven_like(parameters.weight),
                                                        seven_like(parameters.target_weight),
                                                        seven_like(parameters.attention)};
    RelationAttentionInputs<double> const df{seven_like(f.of_columns), seven_like(f.of_rows)};
    layer.backward(exec, f, parameters, {}, device_copy(part_of_rows(dp_complex, out, {0, num_rows}, own)),
                   gradients, df);
    for (auto const& gradient : {gradients.weight, gradients.attention, df.of_rows})
      runtime::all_reduce(exec, grid_.over({Axis::x, Axis::y}), gradient);
    if (has_target_weights)
      runtime::all_reduce(exec, grid_.over({Axis::x, Axis::y}), gradients.target_weight);
    runtime::all_reduce(exec, grid_.over(Axis::y), df.of_columns);
    auto const wanted = [&](Operand by) { return gradient_of(all, by, dp, has_target_weights); };
    expect_equal(gradients.weight, wanted(weight), "dW");
    expect_equal(gradients.target_weight, of_target(wanted(target_weight)),
                 "the gradient of the targets' weight");
    expect_equal(gradients.attention, wanted(attention), "the gradient of the vectors");
    expect_equal(df.of_rows, wanted(of_rows), "dF of the rows");
    auto const of_all = wanted(of_columns);
    expect_equal(df.of_columns, {of_all.begin() + columns.begin * in, of_all.begin() + columns.end * in},
                 "dF of the columns");
  }
};

TEST_P(RelationAttentions, AndTheirAdjointsAreThoseOfTheEquations) {
  expect_those_of_the_equations(false);
}
TEST_P(RelationAttentions, WithWeightsOfTargetsAreThoseOfTheEquations) {
  expect_those_of_the_equations(true);
}

TEST_P(RelationAttentions, HaveKeysThatNameTheRelationAndBothEnds) {
  auto const columns = part_of(grid_.shape(), grid_.coordinates(), Axis::x, num_columns);
  std::vector<std::int64_t> row_ids, column_ids;
  for (std::int64_t i = 0; i < num_rows; ++i)
    row_ids.push_back(100 + i);
  for (auto j = columns.begin; j < columns.end; ++j)
    column_ids.push_back(200 + j);
  auto const block = make_relation_edges(grid_, Axis::x, entries_of(columns), row_ids, column_ids);
  auto const targets = host_copy(block.target_ids);
  auto const sources = host_copy(block.source_ids);
  auto const offsets = host_copy(block.of_pairs.row_offsets);
  auto const edges = host_copy(block.of_pairs.columns);
  std::int64_t count = 0;
  for (std::size_t pair = 0; pair < targets.extent(0); ++pair)
    for (auto e = offsets(pair); e < offsets(pair + 1); ++e, ++count) {
      auto const r = targets(pair) % num_relations;
      auto const i = targets(pair) / num_relations - 100;
      auto const j = sources(static_cast<std::size_t>(edges(static_cast<std::size_t>(e)))) - 200;
      ASSERT_TRUE(columns.contains(j) && has_edge(r, i, j)) << r << ", " << i << ", " << j;
    }
  EXPECT_EQ(count, std::ssize(entries_of(columns).columns));
}

INSTANTIATE_TEST_SUITE_P(AllGrids, RelationAttentions, ::testing::ValuesIn(grids_4d(world_size())),
                         GridName());

} // namespace
} // namespace orthant::testing

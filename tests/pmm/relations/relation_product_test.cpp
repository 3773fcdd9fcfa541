// SPDX-License-Identifier: Apache-2.0
//
// The product with all relations and its adjoints on every grid, against serial loops of the equations in double precision; and the three
// forms of the weights.
#include "pmm/relations/relation_product.hpp"

#include "pmm/relations/typed_entries.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <array>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

constexpr std::int64_t num_rows = 23, num_columns = 19;
constexpr auto tolerance = 1e-12;
constexpr RelationWeights shape{.num_relations = 4,
                                .in = 6,
                                .out = 4,
                                .num_bases = 0,
                                .num_blocks = 0,
                                .num_roots = 3,
                                .has_root_biases = true};
/// Self relations: of even and of odd rows. Even rows have two roots.
constexpr std::int64_t num_selves = 2;
constexpr std::array<std::int64_t, 3> roots_of{0, 1, 0};
constexpr auto num_all = shape.num_relations + num_selves;

/// Relation 2 has no entries, and the others leave some rows out.
bool has_entry(std::int64_t r, std::int64_t i, std::int64_t j) {
  if (r >= shape.num_relations) return i == j && i % 2 == r - shape.num_relations;
  return r != 2 && is_entry(70 + static_cast<std::uint64_t>(r), i, j);
}

std::int64_t count_of(std::int64_t r, std::int64_t i) {
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < num_columns; ++j)
    count += has_entry(r, i, j) ? 1 : 0;
  return count;
}

TypedEntries entries_of(Range columns) {
  return filled({.num_rows = num_rows,
                 .num_relations = num_all,
                 .num_selves = num_selves,
                 .roots = {roots_of.begin(), roots_of.end()}},
                columns, has_entry);
}

double number(std::vector<double> const& matrix, std::int64_t width, std::int64_t i, std::int64_t j) {
  return matrix[static_cast<std::size_t>(i * width + j)];
}

/// Calls visit(r, i, j, share) for all entries, with share = 1 / c_ir.
template<class Visit>
void for_each_entry(Visit const& visit) {
  for (std::int64_t r = 0; r < num_all; ++r)
    for (std::int64_t i = 0; i < num_rows; ++i)
      for (std::int64_t j = 0; j < num_columns; ++j)
        if (has_entry(r, i, j)) visit(r, i, j, 1.0 / static_cast<double>(count_of(r, i)));
}

void expect_equal(runtime::Vector<double> const& found, std::vector<double> const& expected,
                  char const* what) {
  auto const host = host_copy(found);
  ASSERT_EQ(host.extent(0), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(host(i), expected[i], tolerance) << what << ", element " << i;
}

class RelationProducts : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  ProcessGrid grid_{world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}};
};

/// Columns of A are split over x, columns of F over y; z repeats the work.
TEST_P(RelationProducts, AndTheirAdjointsAreThoseOfTheEquations) {
  DefaultExec const exec;
  auto& instruments = world_.instruments();
  auto const columns = part_of(grid_.shape(), grid_.coordinates(), Axis::x, num_columns);
  auto const inputs = part_of(grid_.shape(), grid_.coordinates(), Axis::y, shape.in);
  auto const block = make_relation_block<double>(grid_, Axis::x, entries_of(columns));
  auto const f = reals<double>(81, num_columns, shape.in);
  auto const w = reals<double>(82, shape.expanded().rows, shape.out);
  auto const roots = reals<double>(84, shape.roots().rows, shape.out);
  auto const biases = reals<double>(85, shape.biases().rows, shape.out);
  auto const dp = reals<double>(83, num_rows, shape.out);
  std::vector<double> own_f;
  for (auto j = columns.begin; j < columns.end; ++j)
    for (auto k = inputs.begin; k < inputs.end; ++k)
      own_f.push_back(number(f, shape.in, j, k));
  auto const sizes = sizes_of(block, inputs, shape.out);
  auto const zeros = [](std::int64_t count) {
    return device_copy(std::vector<double>(static_cast<std::size_t>(count)));
  };
  RelationMemory<double> const memory{zeros(sizes.num_means()), zeros(sizes.num_products()),
                                      zeros(sizes.num_means())};
  auto const p = zeros(sizes.num_results());
  RelationParameters<double> const parameters{device_copy(w), device_copy(roots), device_copy(biases)};

  relation_product(exec, instruments, block, shape, inputs, device_copy(own_f), parameters, memory, p);
  runtime::all_reduce(exec, grid_.over({Axis::x, Axis::y}), p);

  std::vector<double> expected_p(static_cast<std::size_t>(num_rows * shape.out));
  // Of W and of the roots, one below the other.
  auto all_weights = w;
  all_weights.insert(all_weights.end(), roots.begin(), roots.end());
  std::vector<double> expected_dw(all_weights.size()), expected_df(f.size()), expected_db(biases.size());
  auto const add = [&](std::int64_t weight, std::int64_t i, std::int64_t j, double share) {
    for (std::int64_t k = 0; k < shape.in; ++k)
      for (std::int64_t o = 0; o < shape.out; ++o) {
        auto const place = static_cast<std::size_t>((weight * shape.in + k) * shape.out + o);
        expected_p[static_cast<std::size_t>(i * shape.out + o)] +=
            share * number(f, shape.in, j, k) * all_weights[place];
        expected_dw[place] += share * number(f, shape.in, j, k) * number(dp, shape.out, i, o);
        expected_df[static_cast<std::size_t>(j * shape.in + k)] +=
            share * number(dp, shape.out, i, o) * all_weights[place];
      }
  };
  for_each_entry([&](std::int64_t r, std::int64_t i, std::int64_t j, double share) {
    if (r < shape.num_relations) return add(r, i, j, share);
    for (std::int64_t root = 0; root < shape.num_roots; ++root) {
      if (roots_of[static_cast<std::size_t>(root)] != r - shape.num_relations) continue;
      add(shape.num_relations + root, i, j, share);
      for (std::int64_t o = 0; o < shape.out; ++o) {
        auto const place = static_cast<std::size_t>(root * shape.out + o);
        expected_p[static_cast<std::size_t>(i * shape.out + o)] += biases[place];
        expected_db[place] += number(dp, shape.out, i, o);
      }
    }
  });
  expect_equal(p, expected_p, "P");

  // Overwritten, also where there are no entries.
  auto const sevens = [](std::size_t count) { return device_copy(std::vector<double>(count, 7.0)); };
  RelationParameters<double> const gradients{sevens(w.size()), sevens(roots.size()), sevens(biases.size())};
  auto const df = zeros(sizes.num_inputs());
  relation_product_backward(exec, instruments, block, shape, inputs, device_copy(dp), parameters, memory,
                            gradients, df);
  for (auto const& gradient : {gradients.expanded, gradients.roots, gradients.biases})
    runtime::all_reduce(exec, grid_.over({Axis::x, Axis::y}), gradient);
  auto const first_root = expected_dw.begin() + std::ssize(w);
  expect_equal(gradients.expanded, {expected_dw.begin(), first_root}, "dW");
  expect_equal(gradients.roots, {first_root, expected_dw.end()}, "the gradient of the roots");
  expect_equal(gradients.biases, expected_db, "the gradient of the biases");
  std::vector<double> own_df;
  for (auto j = columns.begin; j < columns.end; ++j)
    for (auto k = inputs.begin; k < inputs.end; ++k)
      own_df.push_back(number(expected_df, shape.in, j, k));
  expect_equal(df, own_df, "dF");
}

TEST_P(RelationProducts, OfWeightsOfBasesAndBlocksAreTheirDefinitions) {
  DefaultExec const exec;
  for (auto const& form : {RelationWeights{4, 6, 4, 3, 0}, RelationWeights{4, 6, 4, 0, 2}}) {
    auto const num_weights = form.weight().rows * form.weight().columns;
    auto const weight = reals<double>(91, form.weight().rows, form.weight().columns);
    auto const comp = reals<double>(92, form.comp().rows, form.comp().columns);
    auto const gradient = reals<double>(93, form.expanded().rows, form.out);
    std::vector<double> expanded(gradient.size()), of_weight(static_cast<std::size_t>(num_weights)),
        of_comp(comp.size());
    // W_r[i, o] is the sum of factor x weight[row, column] over some rows.
    for (std::int64_t r = 0; r < form.num_relations; ++r)
      for (std::int64_t i = 0; i < form.in; ++i)
        for (std::int64_t o = 0; o < form.out; ++o) {
          auto const place = static_cast<std::size_t>((r * form.in + i) * form.out + o);
          for (std::int64_t b = 0; b < form.num_bases; ++b) {
            auto const of_basis = static_cast<std::size_t>((b * form.in + i) * form.out + o);
            auto const of_share = static_cast<std::size_t>(r * form.num_bases + b);
            expanded[place] += comp[of_share] * weight[of_basis];
            of_weight[of_basis] += comp[of_share] * gradient[place];
            of_comp[of_share] += weight[of_basis] * gradient[place];
          }
          if (form.num_blocks == 0 || i / (form.in / form.num_blocks) != o / (form.out / form.num_blocks))
            continue;
          auto const width = form.out / form.num_blocks;
          auto const of_block = static_cast<std::size_t>((r * form.in + i) * width + o % width);
          expanded[place] = weight[of_block];
          of_weight[of_block] = gradient[place];
        }
    auto const there = device_copy(weight);
    auto const shares = device_copy(comp);
    auto const w = device_copy(std::vector<double>(gradient.size(), 7.0));
    expand_weights(exec, world_.instruments(), form, there, shares, w);
    expect_equal(w, expanded, "W");
    auto const dweight = device_copy(std::vector<double>(weight.size(), 7.0));
    auto const dcomp = device_copy(std::vector<double>(comp.size(), 7.0));
    contract_gradient(exec, world_.instruments(), form, device_copy(gradient), there, shares, dweight, dcomp);
    expect_equal(dweight, of_weight, "the gradient of the weights");
    expect_equal(dcomp, of_comp, "the gradient of the shares");
  }
}

INSTANTIATE_TEST_SUITE_P(AllGrids, RelationProducts, ::testing::ValuesIn(grids_4d(world_size())), GridName());

} // namespace
} // namespace orthant::testing

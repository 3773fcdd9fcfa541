// SPDX-License-Identifier: Apache-2.0
//
// What machines cost: files of constants, collectives by placement, and lists of operations in seconds.
#include "pmm/cost/machine_file.hpp"
#include "pmm/cost/step_plan.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using pmm::Axis;
using pmm::GridShape;
using pmm::GroupSpan;
using pmm::Machine;
using runtime::Operation;

constexpr auto text = R"(name = "test"
ranks_per_node = 4
[memory]
bytes = 40e9
bytes_per_second = 1e12
source = "test"
[dense_products]
fp32 = 1e13
of_16_bits = 1e14
narrow = [[8, 0.04], [64, 1]]
attention = 5e12
attention_row_seconds = 5e-9
launch_seconds = 2e-6
source = "test"
[sparse_products]
per_nonzero = [[4, 4e-10], [8, 6e-10], [32, 12e-10]]
per_row = [[8, 1e-9], [16, 3e-9]]
source = "test"
[launch]
seconds = 1e-6
source = "test"
[passes]
random_number_seconds = 1e-10
exponential_seconds = 2e-10
row_sum_seconds = 3e-9
source = "test"
[collectives]
call_seconds = 3e-5
step_seconds = 2e-5
inside = [[1, 2, 76e9], [2, 2, 70e9], [1, 4, 225e9]]
bytes_per_second_between_nodes = 64e9
source = "test"
)";

Machine machine() {
  return pmm::parse_machine(text, "test.toml");
}

TEST(Machine, ReadsAllConstants) {
  auto const read = machine();
  EXPECT_EQ(read.name, "test");
  EXPECT_EQ(read.ranks_per_node, 4);
  EXPECT_EQ(read.memory.bytes, 40e9);
  EXPECT_EQ(read.dense.of_16_bits, 1e14);
  EXPECT_EQ(read.dense.attention, 5e12);
  EXPECT_EQ(read.dense.attention_row_seconds, 5e-9);
  EXPECT_EQ(read.dense.launch_seconds, 2e-6);
  EXPECT_EQ(read.passes.random_number, 1e-10);
  EXPECT_EQ(read.passes.exponential, 2e-10);
  EXPECT_EQ(read.passes.row_sum, 3e-9);
  EXPECT_EQ(read.launch_seconds, 1e-6);
  ASSERT_EQ(read.collectives.inside.size(), 3U);
  EXPECT_EQ(read.collectives.inside[1].span, (GroupSpan{2, 2}));
  EXPECT_EQ(read.collectives.inside[2].span, (GroupSpan{4, 1}));
}

TEST(Machine, ProductsGrowLinearlyBetweenWidths) {
  auto const times = machine().sparse.per_nonzero;
  EXPECT_DOUBLE_EQ(times.at(4), 4e-10);
  EXPECT_DOUBLE_EQ(times.at(6), 5e-10);
  EXPECT_DOUBLE_EQ(times.at(32), 12e-10);
  EXPECT_DOUBLE_EQ(times.at(1), 4e-10);   // as the narrowest
  EXPECT_DOUBLE_EQ(times.at(64), 24e-10); // as much per column as the widest
  EXPECT_EQ(pmm::WidthTable().at(64), 0);
}

TEST(Machine, GroupsShareTheLinksOfTheirNodes) {
  // 16 ranks on four nodes; by hand, from equation 4.6 of arXiv 2505.04083.
  auto const of = [m = machine()](int stride, int num_ranks, int job = 16) {
    return pmm::bytes_per_second(m, {num_ranks, stride}, job);
  };
  EXPECT_EQ(of(1, 2), 76e9);
  EXPECT_EQ(of(2, 2), 70e9);
  EXPECT_EQ(of(1, 4), 225e9);
  EXPECT_EQ(of(1, 8), 64e9); // two whole nodes, one group
  EXPECT_EQ(of(2, 4), 32e9); // two members on each node
  EXPECT_EQ(of(4, 4), 16e9); // one
  EXPECT_EQ(of(8, 2), 16e9);
  EXPECT_EQ(of(1, 3, 12), 48e9); // three ranks: some groups lie on two nodes
  EXPECT_EQ(of(1, 3, 3), 225e9); // a job on one node; nearest: two ranks by log2(3/2) = 0.58, four by 0.41
}

TEST(Machine, ACallTakesItsStepsAndItsBytes) {
  auto const m = machine();
  auto const seconds = [&](Operation operation, GroupSpan const& span, std::int64_t sent) {
    return pmm::call_seconds(m, {operation, "x", span, 0, sent}, 16);
  };
  EXPECT_DOUBLE_EQ(seconds(Operation::all_gather, {8, 1}, 64'000'000), 3e-5 + 7 * 2e-5 + 1e-3);
  EXPECT_DOUBLE_EQ(seconds(Operation::reduce_scatter, {4, 4}, 16'000'000), 3e-5 + 3 * 2e-5 + 1e-3);
  EXPECT_DOUBLE_EQ(seconds(Operation::all_reduce, {8, 1}, 0), 3e-5 + 2 * 3 * 2e-5); // a tree
  EXPECT_DOUBLE_EQ(seconds(Operation::all_reduce, {3, 1}, 0), 3e-5 + 2 * 2 * 2e-5); // a ring is as short
  EXPECT_DOUBLE_EQ(seconds(Operation::broadcast, {16, 1}, 0), 3e-5 + 4 * 2e-5);
  // A megabyte for each other member: each of four on a node sends four to the other node, by 64 GB/s.
  EXPECT_DOUBLE_EQ(seconds(Operation::all_to_all, {8, 1}, 7'000'000), 3e-5 + 3 * 2e-5 + 16e6 / 64e9);
  EXPECT_DOUBLE_EQ(seconds(Operation::all_to_all, {4, 4}, 3'000'000),
                   3e-5 + 2 * 2e-5 + 3e6 / 16e9); // one on each
}

TEST(Machine, AxesAreAsFarApartAsTheGridsRanks) {
  GridShape shape{2, 3, 4, 5}; // data, x, y, z
  EXPECT_EQ(pmm::span_of(shape, Axis::y), (GroupSpan{4, 1}));
  EXPECT_EQ(pmm::span_of(shape, Axis::x), (GroupSpan{3, 4}));
  EXPECT_EQ(pmm::span_of(shape, Axis::z), (GroupSpan{5, 12}));
  EXPECT_EQ(pmm::span_of(shape, Axis::data), (GroupSpan{2, 60}));
  EXPECT_EQ(pmm::span_of(shape, pmm::group_axes), (GroupSpan{60, 1}));
  EXPECT_EQ(pmm::span_of({1, 3, 1, 5}, pmm::group_axes), (GroupSpan{15, 1}));
  EXPECT_EQ(pmm::span_of({2, 3, 4, 1}, {Axis::z, Axis::data}), (GroupSpan{2, 12})); // z is one rank
  for (auto const axis : pmm::nested_axes) // neighbors of a group are that many ranks apart
    if (shape.size(axis) > 1) {
      pmm::Coordinates next;
      next.along(axis) = 1;
      EXPECT_EQ(rank_of(shape, next), span_of(shape, axis).stride);
    }
}

TEST(StepSeconds, AreTheSumsOfTheTerms) {
  pmm::StepPlan step({1, 2, 2, 4}, {}, sizeof(float));
  pmm::LocalProduct sparse;
  sparse.is_sparse = true;
  sparse.m = sparse.k = 100;
  sparse.n = 8;
  sparse.num_nonzeros = 1000;
  step.add_product(sparse);
  pmm::LocalProduct dense;
  dense.m = dense.n = dense.k = 1000;
  step.add_product(dense);
  auto narrow = dense; // most of it is the pass
  narrow.m = 1'000'000;
  narrow.n = narrow.k = 1;
  step.add_product(narrow);
  auto thin = dense; // 0.04 of the rate up to 8, 0.52 of it between 8 and 64
  thin.n = 4;
  step.add_product(thin);
  thin.n = 36;
  step.add_product(thin);
  step.add_pass({"a pass", 3'000'000, 1'000'000, 0});
  step.add_pass({"one that drops numbers", 1'000'000, 1'000'000, 0, 500'000});
  step.add_pass({.name = "attention",
                 .bytes_read = 1'000'000,
                 .bytes_written = 1'000'000,
                 .flops = 3'000'000,
                 .row_sums = 2'000});
  step.add_pass({.name = "softmax",
                 .bytes_read = 1'000'000,
                 .bytes_written = 1'000'000,
                 .exponentials = 40'000,
                 .row_sums = 1'000});
  step.add_call(Operation::all_reduce, Axis::z, 1 << 20);

  auto const seconds = seconds_of(step, machine());
  EXPECT_DOUBLE_EQ(seconds.sparse,
                   1e-6 + 1000 * 6e-10 + 100 * 1e-9 + 2 * 100 * 8 * 4 / 1e12); // and rows in and out
  EXPECT_DOUBLE_EQ(seconds.dense, 4 * 3e-6 + 2e9 / 1e13 + 2e6 / 4e11 + 8e6 / 4e11 + 72e6 / 5.2e12 +
                                      4 * (3'000'000 + 2'000'001 + 1'008'000 + 1'072'000) / 1e12);
  EXPECT_DOUBLE_EQ(seconds.passes,
                   4e-6 + 4e6 / 1e12 + 2e6 / 1e12 + 500'000 * 1e-10 + // the first two
                       2e6 / 1e12 + 3e6 / 5e12 + 2'000 * 5e-9 + 2e6 / 1e12 + 40'000 * 2e-10 + 1'000 * 3e-9);
  auto const sent = 2.0 * 3 / 4 * (1 << 20);
  EXPECT_DOUBLE_EQ(seconds.calls.at("z"), 3e-5 + 4 * 2e-5 + sent / 16e9);
  EXPECT_DOUBLE_EQ(seconds.total(), seconds.sparse + seconds.dense + seconds.passes + seconds.calls.at("z"));
  EXPECT_EQ(seconds.bound(), seconds.calls.at("z") > seconds.dense ? "z" : "dense products");
}

TEST(StepSeconds, CallsTravelBehindWork) {
  pmm::StepPlan step({1, 1, 1, 4}, {}, sizeof(float));
  pmm::LocalProduct product;
  product.m = product.n = product.k = 1000;
  step.add_product(product);
  step.add_call(Operation::all_reduce, Axis::z, 1 << 20);
  step.add_product(product);
  step.add_pass({"a pass", 3'000'000, 1'000'000, 0});
  step.add_call(Operation::all_reduce, Axis::z, 1 << 10);
  step.add_overlap(
      {{0, 2}, {2, 5}, 0.5});         // the first call, behind half of the product and the pass that follow
  step.add_overlap({{5, 5}, {0, 1}}); // no call

  auto m = machine();
  EXPECT_EQ(seconds_of(step, m).hidden, 0);
  auto const work = 3e-6 + 1e-6 + 2e9 / 1e13 + 4 * 3e6 / 1e12 + 4e6 / 1e12;
  m.collectives.overlap = 0.25;
  auto const seconds = seconds_of(step, m);
  EXPECT_DOUBLE_EQ(seconds.hidden, 0.25 * 0.5 * work);
  EXPECT_DOUBLE_EQ(seconds.total(), seconds.dense + seconds.passes + seconds.calls.at("z") - seconds.hidden);
  EXPECT_DOUBLE_EQ((seconds * 3).hidden, 3 * seconds.hidden);
  m.collectives.call_seconds = m.collectives.step_seconds = 0;
  m.collectives.overlap = 1;
  m.collectives.inside = {{{4, 1}, 1e12}}; // more work than the call takes
  EXPECT_DOUBLE_EQ(seconds_of(step, m).hidden, 2.0 * 3 / 4 * (1 << 20) / 1e12);
}

TEST(StepSeconds, AxesThatReachOtherNodesAreHidden) {
  auto m = machine();
  GridShape const shape{1, 2, 4, 2}; // y fills a node
  EXPECT_EQ(hidden_axes_on(m, shape), pmm::AxisSet());
  m.collectives.overlap = 0.5;
  EXPECT_EQ(hidden_axes_on(m, shape), (pmm::AxisSet{Axis::x, Axis::z}));
  EXPECT_EQ(hidden_axes_on(m, {1, 2, 2, 1}), pmm::AxisSet()); // one node
}

TEST(StepSeconds, FollowTheFormat) {
  auto const seconds = [](runtime::Wire format, std::int64_t scalar_bytes) {
    pmm::StepPlan step({1, 1, 1, 1}, {}, scalar_bytes);
    pmm::LocalProduct product;
    product.operand_format = format;
    product.m = product.n = product.k = 1000;
    step.add_product(product);
    product.is_sparse = true;
    product.n = 16;
    product.num_nonzeros = 1'000'000;
    step.add_product(product);
    return seconds_of(step, machine());
  };
  auto const fp32 = seconds(runtime::Wire::native, sizeof(float));
  auto const fp64 = seconds(runtime::Wire::native, sizeof(double));
  auto const bf16 = seconds(runtime::Wire::bf16, sizeof(float));
  EXPECT_NEAR(fp64.dense - 3e-6, 2 * (fp32.dense - 3e-6), 1e-15);
  EXPECT_NEAR(bf16.dense - 3e-6, 2e9 / 1e14 + 2 * 3e6 / 1e12, 1e-15);
  constexpr auto rows = 2 * 1000 * 16 / 1e12; // operand and result, for each byte of a number
  EXPECT_DOUBLE_EQ(fp32.sparse, 1e-6 + 1e6 * 8e-10 + 1000 * 3e-9 + 4 * rows);  // 16 columns
  EXPECT_DOUBLE_EQ(fp64.sparse, 1e-6 + 1e6 * 12e-10 + 1000 * 6e-9 + 8 * rows); // as 32
  EXPECT_DOUBLE_EQ(bf16.sparse, 1e-6 + 1e6 * 6e-10 + 1000 * 1e-9 + 2 * rows);  // as 8
}

TEST(Machine, ThoseThatComeWithOrthantAreMachines) {
  std::vector<std::string> names;
  for (auto const& [name, of_machine] : pmm::built_in_machines()) {
    auto const read = pmm::parse_machine(of_machine, std::string(name));
    EXPECT_EQ(read.name, name);
    names.push_back(read.name);
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("alps", "frontier", "h200-node", "host", "perlmutter",
                                                     "tuolumne"));
  EXPECT_THAT(names, ::testing::Contains(pmm::assumed_machine().name));
}

TEST(Machine, AnythingElseIsRefusedInOneLine) {
  struct Case {
    std::string what, in_place_of, wish;
  };
  for (auto const& [what, in_place_of, wish] : std::vector<Case>{
           {"", "name = \"test\"", "name"},
           {"ranks_per_node = 0", "ranks_per_node = 4", "above 0"},
           {"ranks_per_node = 2.5", "ranks_per_node = 4", "whole number"},
           {"ranks_per_node = \"4\"", "ranks_per_node = 4", "must be a number"},
           {"", "[launch]\nseconds = 1e-6\nsource = \"test\"", "[launch]: this table is missing"},
           {"seconds = -1e-6", "seconds = 1e-6", "must not be below 0"},
           {"", "seconds = 1e-6", "seconds of [launch]: this constant is missing"},
           {"step_seconds = nan", "step_seconds = 2e-5", "must be a number"},
           {"fp32 = -1", "fp32 = 1e13", "fp32 of [dense_products]: -1 must be above 0"},
           {"fp32 = inf", "fp32 = 1e13", "must be a number"},
           {"bytes_per_second_between_nodes = 64e9\noverlap = 1.5", "bytes_per_second_between_nodes = 64e9",
            "overlap of [collectives]: 1.5 must not be above 1"},
           {"bytes_per_second_between_nodes = 64e9\noverlap = -1", "bytes_per_second_between_nodes = 64e9",
            "must not be below 0"},
           {"bytes = 0", "bytes = 40e9", "above 0"},
           {"fp23 = 1", "of_16_bits = 1e14", "did you mean 'fp32'"},
           {"[memories]", "[memory]", "[memory]: this table is missing"},
           {"[other]\na = 1\n[launch]", "[launch]", "there is no such constant"},
           {"seconds = 1e-6", "seconds = 1e-6\nsource = \"test\"", "say where the constants come from"},
           {"narrow = [[8, 1.5]]", "narrow = [[8, 0.04], [64, 1]]", "1.5 must not be above 1"},
           {"per_row = [[8, -1e-9]]", "per_row = [[8, 1e-9], [16, 3e-9]]", "must not be below 0"},
           {"row_sum_seconds = -3e-9", "row_sum_seconds = 3e-9",
            "row_sum_seconds of [passes]: -3e-09 must not be below 0"},
           {"[random_numbers]", "[passes]", "there is no such constant"},
           {"[[8, 1e-9], [8, 2e-9]]", "[[4, 4e-10], [8, 6e-10], [32, 12e-10]]", "widths increase"},
           {"[]", "[[4, 4e-10], [8, 6e-10], [32, 12e-10]]", "it must be [[width, seconds], ..]"},
           {"[[1, 76e9]]", "[[1, 2, 76e9], [2, 2, 70e9], [1, 4, 225e9]]",
            "[[stride, ranks, bytes per second], ..]"},
           {"name = ", "name = \"test\"", "line 1: not valid TOML"}}) {
    std::string broken = text;
    auto const at = broken.find(in_place_of);
    ASSERT_NE(at, std::string::npos) << in_place_of;
    broken.replace(at, in_place_of.size(), what);
    try {
      std::ignore = pmm::parse_machine(broken, "m.toml");
      ADD_FAILURE() << "took " << what << " in place of " << in_place_of;
    } catch (runtime::UserError const& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(wish));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("'m.toml'"));
      EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n")));
    }
  }
}

} // namespace
} // namespace orthant::testing

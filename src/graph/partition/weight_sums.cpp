// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/weight_sums.hpp"

#include "graph/partition/vertex_arrays.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <iterator>
#include <numeric>

namespace orthant::graph {
namespace {

std::vector<double> numbers_of(std::vector<std::int64_t> const& bits) {
  std::vector<double> numbers(bits.size());
  std::ranges::transform(bits, numbers.begin(), [](std::int64_t b) { return std::bit_cast<double>(b); });
  return numbers;
}

} // namespace

WeightSums::WeightSums(runtime::Communicator const& comm, Placement const& placement, Range rows)
    : placement_(placement),
      rows_(rows),
      selves_(other_positions_of_rows(comm, placement, rows)),
      weights_(selves_.size()) {}

std::vector<std::int64_t> WeightSums::in_order_p1(runtime::Communicator const& comm,
                                                  double RowWeights::*number) const {
  std::vector<std::int64_t> positions(weights_.size());
  std::iota(positions.begin(), positions.end(), rows_.begin);
  std::vector<std::int64_t> bits(weights_.size()); // to_positions carries any 64 bits
  std::ranges::transform(weights_, bits.begin(), [&](RowWeights const& weights) {
    return std::bit_cast<std::int64_t>(weights.*number);
  });
  return to_positions(comm, placement_.num_vertices, positions, bits);
}

OperatorCheck WeightSums::write(StoreWriter& writer, StoreFacts& facts) const {
  auto const& comm = writer.comm();
  auto const n = placement_.num_vertices;
  auto const& positions = placement_.of(Order::p1);
  auto const mine = PositionOwners{n, comm.size()}.range(comm.rank());
  auto const write_order = [&](Order order, std::vector<std::int64_t> const& bits) {
    auto const name = folder("/vertices", order) + "/weight_sums";
    writer.create_array(name, runtime::Hdf5Type::float64, {n});
    runtime::together(comm,
                      [&] { writer.write(name, 0, mine.begin, std::span<double const>(numbers_of(bits))); });
  };
  auto const sums = in_order_p1(comm, &RowWeights::sum);
  write_order(Order::p1, sums);
  if (placement_.has_two_orders) {
    auto const p2_of_p1 = to_positions(comm, n, positions, placement_.of(Order::p2));
    write_order(Order::p2, to_positions(comm, n, p2_of_p1, sums));
  }

  facts.num_negative_weights = runtime::all_reduced(comm, num_negative_);
  std::vector<std::int64_t> ids(positions.size());
  std::iota(ids.begin(), ids.end(), placement_.vertices.begin);
  ids = to_positions(comm, n, positions, ids);
  auto const negative = numbers_of(in_order_p1(comm, &RowWeights::negative));
  OperatorCheck check(SelfLoops::added);
  for (std::size_t i = 0; i < ids.size(); ++i)
    check.add(ids[i], {.sum = std::bit_cast<double>(sums[i]), .negative = negative[i]});
  check.finish(comm);
  return check;
}

void require_operator(OperatorCheck const& check, StoreFacts const& facts) {
  auto const wrong = check.describe(facts.normalization, Precision::fp64, facts.num_vertices);
  if (!wrong.empty())
    runtime::throw_user("{}; {}", wrong, check.what_fits(facts.normalization, Precision::fp64, true));
}

std::string format_refusals(OperatorCheck const& check, StoreFacts const& facts) {
  std::string text;
  for (auto const normalization : {Normalization::symmetric, Normalization::row})
    for (auto const precision : {Precision::fp64, Precision::fp32}) {
      auto const wrong = check.describe(normalization, precision, facts.num_vertices);
      if (wrong.empty()) continue;
      fmt::format_to(std::back_inserter(text), "warning      cannot be used for training on this graph: {}\n",
                     wrong);
      break; // what no precision can hold, fp32 does not either
    }
  return text;
}

} // namespace orthant::graph

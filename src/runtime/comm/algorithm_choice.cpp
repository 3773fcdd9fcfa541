// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/algorithm_choice.hpp"

#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orthant::runtime {
namespace {

bool fits(Operation operation, Algorithm algorithm, NodeShape shape) {
  return algorithm == Algorithm::library || is_possible(operation, algorithm, shape);
}

Algorithm nearest_that_fits(Operation operation, Algorithm named, NodeShape shape) {
  if (operation == Operation::all_to_all && named == Algorithm::nvrar) named = Algorithm::two_level;
  if (fits(operation, named, shape)) return named;
  if (operation == Operation::all_to_all) return Algorithm::library;
  auto const is_for_nodes = named == Algorithm::two_level || named == Algorithm::nvrar;
  if (is_for_nodes && shape.num_nodes == 1) return Algorithm::library; // through shared memory
  auto const has_levels = is_possible(operation, Algorithm::two_level, shape);
  if (named == Algorithm::nvrar && has_levels) return Algorithm::two_level;
  if (named == Algorithm::nvrar && fits(operation, Algorithm::doubling, shape)) return Algorithm::doubling;
  return fits(operation, Algorithm::recursive, shape) ? Algorithm::recursive : Algorithm::library;
}

/// Number of doublings by which two calls differ.
double distance(MeasuredChoice const& measured, NodeShape shape, std::int64_t bytes) {
  auto const doublings = [](auto a, auto b) {
    return std::abs(std::log2(std::max<double>(1, static_cast<double>(a))) -
                    std::log2(std::max<double>(1, static_cast<double>(b))));
  };
  auto const of_bytes = doublings(measured.bytes, bytes);
  if (measured.shape == shape)
    return of_bytes; // as in the job that made the table: short calls search it, too
  return of_bytes + doublings(measured.shape.num_nodes, shape.num_nodes) +
         doublings(measured.shape.per_node, shape.per_node);
}

} // namespace

std::optional<Algorithm> AlgorithmChoice::named(std::string const& axis) const {
  // Gradients are summed over data, expert and context together, in the group "expert+context+data".
  auto const found = of_axis.find(axis.ends_with("+data") ? "data" : axis);
  return found == of_axis.end() ? everywhere : found->second;
}

bool AlgorithmChoice::is_library(std::string const& axis) const {
  auto const algorithm = named(axis);
  return algorithm ? *algorithm == Algorithm::library : measurements.empty() && !predicted;
}

Algorithm AlgorithmChoice::of(Operation operation, std::string const& axis, NodeShape shape,
                              std::int64_t bytes) const {
  if (auto const algorithm = named(axis)) return nearest_that_fits(operation, *algorithm, shape);
  if (measurements.empty() && predicted && shape.num_nodes > 1) return predicted(operation, shape, bytes);
  auto best = Algorithm::library;
  auto least = std::numeric_limits<double>::infinity();
  for (auto const& measured : measurements) {
    if (measured.operation != operation || !fits(operation, measured.algorithm, shape)) continue;
    auto const far = distance(measured, shape, bytes);
    if (far < least) {
      least = far;
      best = measured.algorithm;
    }
  }
  return best;
}

NodeShape shape_of(std::span<int const> job_ranks, std::vector<int> const& node_of_rank) {
  auto const size = static_cast<int>(job_ranks.size());
  NodeShape const flat{1, size};
  auto const node = [&](int i) { return node_of_rank[index(job_ranks[index(i)])]; };
  auto per_node = 1;
  while (per_node < size && node(per_node) == node(0))
    ++per_node;
  if (size % per_node != 0) return flat;
  std::vector<int> nodes;
  for (int begin = 0; begin < size; begin += per_node) {
    for (int i = begin; i < begin + per_node; ++i)
      if (node(i) != node(begin)) return flat;
    if (std::ranges::find(nodes, node(begin)) != nodes.end()) return flat;
    nodes.push_back(node(begin));
  }
  return {static_cast<int>(nodes.size()), per_node};
}

} // namespace orthant::runtime

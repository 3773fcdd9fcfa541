#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which algorithm carries out a call: the one that the user named for the axis, or the fastest one by a table of measurements or a model of
// the machine. The choice depends only on what all ranks of the group know alike.

#include "runtime/comm/rounds.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orthant::runtime {

/// The fastest algorithm of a measured call.
struct MeasuredChoice {
  Operation operation{};
  NodeShape shape;
  std::int64_t bytes = 0; // of the whole buffer
  Algorithm algorithm{};
};

/// What the user asked for. An axis has the name of its communicator, such as "x".
struct AlgorithmChoice {
  std::optional<Algorithm> everywhere; // for axes without a name below
  std::map<std::string, Algorithm> of_axis{};
  std::vector<MeasuredChoice> measurements{}; // for axes without either
  /// For axes without a named algorithm, if there is no table: the algorithm with the shortest predicted time for an operation of this many
  /// bytes. Called for groups that span several nodes. Must be a pure function, and return an algorithm that is possible for the group.
  /// Empty: the library is used.
  std::function<Algorithm(Operation, NodeShape, std::int64_t)> predicted{};

  /// True if all calls along this axis are the library's.
  [[nodiscard]] bool is_library(std::string const& axis) const;
  /// Algorithm of a call. If the one that the user named does not carry out the operation in a group of this shape, the nearest one that
  /// does: for gathers, doubling becomes recursive and nvrar becomes two_level; within a node, two_level and nvrar leave the call to
  /// the library, and with one rank per node they become recursive and doubling. all_to_all knows two_level only, and its choice is asked for with 0
  /// bytes: with counts, the number may differ between ranks. Of a table, the entry of the operation whose ranks, nodes and bytes differ by the
  /// fewest doublings; entries that do not fit the group are passed over.
  [[nodiscard]] Algorithm of(Operation operation, std::string const& axis, NodeShape shape,
                             std::int64_t bytes) const;

 private:
  [[nodiscard]] std::optional<Algorithm> named(std::string const& axis) const;
};

/// The choice of a job, and the node of each of its ranks.
struct JobAlgorithms {
  AlgorithmChoice choice;
  std::vector<int> node_of_rank;
};

/// Shape of a group of these job ranks. One node with all ranks if the nodes do not have equal numbers of consecutive ranks of the group, so
/// that two levels do not fit.
[[nodiscard]] NodeShape shape_of(std::span<int const> job_ranks, std::vector<int> const& node_of_rank);

} // namespace orthant::runtime

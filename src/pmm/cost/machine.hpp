#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A collective that an operation is going to make. What is listed before a run equals what the ledgers count
// in it (docs/design.md 2.5).
//
// What a machine costs: constants of one rank's processor and of the network, and how long a collective takes.
//
//   seconds = call + steps(operation, ranks) step + sent bytes / bandwidth(group)
//
// All groups of an axis communicate at once. A group inside a node has a measured bandwidth; one that crosses nodes
// shares the node's links with the other groups that begin there (Plexus, arXiv 2505.04083, equation 4.6):
//
//   bandwidth = B_node  members / ranks per node          members: ranks of the group on one node
//
// That is a ring, in which one member of a node sends to the next one. Of an all_to_all, each of the m members sends (G-m)/(G-1) of its bytes to
// other nodes, which takes m (G-m)/(G-1) times as long.
//
// An all_reduce takes the fewer steps of a ring, 2 (G-1), and a tree, 2 log2 G; all_gather and reduce_scatter those
// of a ring, G-1; the others log2 G.
//
// A machine that a run pretends to run on (runtime/observe/run_clock.hpp): its calls take what the prediction says of
// them, call_seconds(). The rest is not predicted: what ranks compute, and how long they wait for one another.

#include "runtime/observe/ledger.hpp"
#include "runtime/observe/run_clock.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orthant::pmm {

/// Which ranks of a job a group has: that many, so far apart.
struct GroupSpan {
  int num_ranks = 1;
  int stride = 1; // of a group over several axes: that of the fastest

  friend bool operator==(GroupSpan const&, GroupSpan const&) = default;
};

struct PlannedCall {
  runtime::Operation operation{};
  std::string axis; // name of the communicator: "x", "y", "z", "data", "group"
  GroupSpan span;
  std::int64_t bytes = 0;      // of the logical buffer on this rank, as its ledger counts them
  std::int64_t sent_bytes = 0; // that this rank sends, as its ledger counts them

  friend bool operator==(PlannedCall const&, PlannedCall const&) = default;
};

// A measured constant by the number of columns of an operand.

struct WidthTable {
  struct Point {
    std::int64_t width = 0;
    double value = 0;
  };
  std::vector<Point> points; // by increasing width

  /// Linear between two widths. Below the narrowest it is what it is there: memory delivers whole cache lines. Above the widest it
  /// grows as the width does. 0 if there is no point.
  [[nodiscard]] double at(std::int64_t width) const;
};

struct Machine {
  std::string name;
  int ranks_per_node = 1;

  struct Memory {     // of one rank
    double bytes = 0; // 0: not known
    double bytes_per_second = 0;
  } memory;

  struct DenseProducts { // of one rank, in flop per second
    double fp32 = 0;
    double of_16_bits = 0; // operands of 16 bits, sums of 32
    /// Share of these that a product reaches whose shortest side has so many numbers; 1 beyond.
    WidthTable narrow{};
    double attention = 0;             // of products within a pass of attention; 0: as fp32
    double attention_row_seconds = 0; // of each query's row of scores of a head, beside its products
    double launch_seconds = 0;        // of each product, beside that of all kernels
  } dense;

  struct SparseProducts { // of one rank, operands of 32 bits: seconds by the width of the right operand
    WidthTable per_nonzero;
    WidthTable per_row{}; // may be empty
  } sparse;

  double launch_seconds = 0; // of each product and each pass

  struct Passes { // seconds beside what their bytes take (runtime/observe/ledger.hpp)
    double random_number = 0;
    double exponential = 0;
    double row_sum = 0;
  } passes;

  /// How fast each rank sends while all groups of this kind communicate.
  struct GroupSpeed {
    GroupSpan span;
    double bytes_per_second = 0;
  };
  struct Collectives {
    double call_seconds = 0;
    double step_seconds = 0;
    std::vector<GroupSpeed> inside;            // of a node; at least one
    double bytes_per_second_between_nodes = 0; // of all ranks of a node together
    double overlap = 0; // share of computing time in which a call under way makes progress
  } collectives;

  double storage_bytes_per_second = 0; // that all ranks of a job write together; 0: not known

  double seconds_per_processor_second = 1; // of a run that emulates it (emulation.hpp)
};

/// Whether no group of this kind crosses nodes, in a job of `job_ranks` ranks that fill one node after the other.
[[nodiscard]] bool is_inside_node(Machine const& machine, GroupSpan const& span, int job_ranks);
/// How many ranks of a group share a node.
[[nodiscard]] int members_on_node(Machine const& machine, GroupSpan const& span);
/// How many messages a rank sends one after the other.
[[nodiscard]] int num_steps(runtime::Operation operation, int num_ranks);

/// How fast each rank of a group sends, in a job of `job_ranks` ranks that fill one node after the other. Inside a node the
/// measured group with the most similar size and stride counts.
[[nodiscard]] double bytes_per_second(Machine const& machine, GroupSpan const& span, int job_ranks);

[[nodiscard]] double call_seconds(Machine const& machine, PlannedCall const& call, int job_ranks);

/// For a job of that many ranks. `name`: of the machine or its file, as the user gave it.
[[nodiscard]] runtime::EmulatedMachine emulation_of(Machine const& machine, std::string name, int job_ranks);

} // namespace orthant::pmm

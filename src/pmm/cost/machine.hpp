#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Cost model of a machine: constants of one rank's processor and of the network, and the time that a collective takes.
//
//   seconds = call + steps(operation, ranks) step + sent bytes / bandwidth(group)
//
// The model assumes that all groups of an axis communicate at once. A group inside a node has a measured bandwidth. A group that
// crosses nodes shares the node's links with the other groups that begin there (Plexus, arXiv 2505.04083, equation 4.6):
//
//   bandwidth = B_node  members / ranks per node          members: ranks of the group on one node
//
// This holds for a ring, in which one member of each node sends to the next node. In an all_to_all, each of the m members on a node
// sends (G-m)/(G-1) of its bytes to other nodes, which takes m (G-m)/(G-1) times as long.
//
// The number of steps of an all_reduce is the smaller one of 2 (G-1) for a ring and 2 log2 G for a tree. all_gather and
// reduce_scatter take the G-1 steps of a ring, and the other operations log2 G.

#include "runtime/comm/algorithm_choice.hpp"
#include "runtime/observe/ledger.hpp"
#include "runtime/observe/run_clock.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orthant::pmm {

/// Ranks of a group within the job: `num_ranks` ranks at a distance of `stride`.
struct GroupSpan {
  int num_ranks = 1;
  int stride = 1; // for a group over several axes: the stride of the fastest axis

  friend bool operator==(GroupSpan const&, GroupSpan const&) = default;
};

/// A collective that an operation will call. The calls listed before a run equal those that the ledgers count in it
/// (docs/design.md 2.5).
struct PlannedCall {
  runtime::Operation operation{};
  std::string axis; // name of the communicator: "x", "y", "z", "data", "group"
  GroupSpan span;
  std::int64_t bytes = 0;      // size of the logical buffer on this rank, as its ledger counts it
  std::int64_t sent_bytes = 0; // bytes that this rank sends, as its ledger counts them

  friend bool operator==(PlannedCall const&, PlannedCall const&) = default;
};

/// A measured constant as a function of a width, such as the number of columns of an operand.
struct WidthTable {
  struct Point {
    std::int64_t width = 0;
    double value = 0;
  };
  std::vector<Point> points; // by increasing width

  /// Interpolates linearly between two widths. Constant below the narrowest width, because memory delivers whole cache lines.
  /// Proportional to the width above the widest. Returns 0 if there is no point.
  [[nodiscard]] double at(std::int64_t width) const;
};

struct Machine {
  /// This machine with dense products of fp32 at the rate of 16 bits, to which GemmMath::bf16 rounds their operands; attention keeps its rate.
  [[nodiscard]] Machine with_rounded_products() const;

  std::string name;
  int ranks_per_node = 1;

  struct Memory {     // of one rank
    double bytes = 0; // 0 if unknown
    double bytes_per_second = 0;
  } memory;

  struct DenseProducts { // of one rank, in flop per second
    double fp32 = 0;
    double of_16_bits = 0; // 16-bit operands, 32-bit sums
    /// Share of these rates that a product reaches, by the length of its shortest side; at most 1.
    WidthTable narrow{};
    double attention = 0;             // rate of products within a pass of attention; 0: same as fp32
    double attention_row_seconds = 0; // per query and head, in addition to the products
    double launch_seconds = 0;        // per dense product, in addition to Machine::launch_seconds
  } dense;

  struct SparseProducts { // of one rank, 32-bit operands: seconds by the width of the right operand
    WidthTable per_nonzero;
    WidthTable per_row{}; // may be empty
  } sparse;

  double launch_seconds = 0; // per product and per pass

  struct Passes { // seconds per item, in addition to the time of the bytes (runtime/observe/ledger.hpp)
    double random_number = 0;
    double exponential = 0;
    double row_sum = 0;
  } passes;

  /// Bandwidth of each rank while all groups with this span communicate.
  struct GroupSpeed {
    GroupSpan span;
    double bytes_per_second = 0;
  };
  struct Collectives {
    double call_seconds = 0;
    double step_seconds = 0;
    std::vector<GroupSpeed> inside;            // groups inside a node; at least one
    double bytes_per_second_between_nodes = 0; // all ranks of a node together
    double overlap = 0; // share of computing time during which a started call makes progress
    runtime::AlgorithmChoice algorithms{}; // not of the machine, but of a run on it
  } collectives;

  double storage_bytes_per_second = 0; // write rate of all ranks of a job together; 0 if unknown

  /// Emulated seconds per processor second of a run that emulates this machine (runtime/observe/run_clock.hpp).
  double seconds_per_processor_second = 1;
};

/// True if no group with this span crosses nodes, in a job of `job_ranks` ranks that fill one node after the other.
[[nodiscard]] bool is_inside_node(Machine const& machine, GroupSpan const& span, int job_ranks);
/// Number of ranks of a group on one node.
[[nodiscard]] int members_on_node(Machine const& machine, GroupSpan const& span);
/// As runtime::shape_of() for the ranks of such a group.
[[nodiscard]] runtime::NodeShape shape_of(Machine const& machine, GroupSpan const& span, int job_ranks);
/// Number of messages that a rank sends one after the other.
[[nodiscard]] int num_steps(runtime::Operation operation, int num_ranks);

/// Bandwidth of each rank of a group, in a job of `job_ranks` ranks that fill one node after the other. Inside a node, uses the
/// measured group with the most similar size and stride.
[[nodiscard]] double bytes_per_second(Machine const& machine, GroupSpan const& span, int job_ranks);

/// Predicted seconds of a call: the equation at the head of this file, or the rounds of the algorithm that the run has chosen for the call
/// (cost/collective_rounds.hpp).
[[nodiscard]] double call_seconds(Machine const& machine, PlannedCall const& call, int job_ranks);

/// Emulation of this machine by a job of `job_ranks` ranks (runtime/observe/run_clock.hpp): calls take call_seconds(). Computing times
/// and waiting times are measured. `name`: the machine or its file, as given by the user.
[[nodiscard]] runtime::EmulatedMachine emulation_of(Machine const& machine, std::string name, int job_ranks);

} // namespace orthant::pmm

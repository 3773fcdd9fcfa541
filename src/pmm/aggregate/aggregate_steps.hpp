#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The five steps of an aggregation (aggregate.hpp) of one rank, without its numbers: what the runner runs and
// what a list holds.

#include "pmm/aggregate/needed_rows.hpp"
#include "pmm/cost/step_plan.hpp"

namespace orthant::pmm {

/// Which way rows travel: gathered over c and summed over a, or the other way round.
enum class Flow : std::uint8_t { forward, transpose };

/// Step 2 or step 4: rows between the block of this rank and the slabs of the ranks of an axis, either all
/// of them (all_gather, reduce_scatter) or those that blocks touch (all_to_all). Step 4 may send the rows of
/// each slab as soon as they are multiplied (all_to_all).
struct SlabExchange {
  Axis axis{};
  bool must_run = false;
  bool moves_needed = false;
  bool in_chunks = false;             // of step 4: a chunk is the rows of one slab
  std::vector<std::int64_t> of_block; // [ranks of the axis] elements of each slab that the block has
  std::vector<std::int64_t> of_slab;  // of the own slab that each block has; empty unless exchanged

  [[nodiscard]] std::int64_t num_of_block() const;
  [[nodiscard]] std::int64_t num_of_slab() const;
};

/// The part of a rank, if the parts of ranks lie one after the other.
[[nodiscard]] Range range_of(std::vector<std::int64_t> const& counts, int rank);

/// Rows that step 2 picks, as a range of NeededSlabs::asked. Those of other ranks go into a message; on a host, this rank's own ones
/// stay: they go into the operand at once.
struct PickedRows {
  Range asked;
  bool stays = false;
};

/// An aggregation by name, without its block: what a list of a step holds.
struct AggregatePlan {
  std::string formula; // "H = A F"
  Placement matrix;    // A, for whoever reads the list
  Roles roles;
  CellSizes sizes;
  std::int64_t width = 0;
  Flow flow = Flow::forward;
  Wire wire = Wire::native;
  NeededCountsOfAxes needed{}; // of Flow::forward, whatever the flow
  AxisSet hidden_axes{};       // whose messages travel while products are computed
  // What the numbers of F and of H are held in: native is the scalar of training, 16 bits need it to be fp32. H is
  // native or as F.
  Wire operand_format = Wire::native;
  Wire result_format = Wire::native;
};

/// The rows that are aggregated, or what becomes of them: where they lie before and after an exchange over b.
struct OwnRows {
  std::int64_t num_own = 0;  // n
  std::int64_t num_slab = 0; // n_ac
  bool must_exchange = false;
  std::vector<std::int64_t> columns, rows; // [ranks of b] elements of the own rows, and of the own columns
};

struct AggregateSteps {
  AggregateSteps(GridShape const& shape, Coordinates const& coordinates, AggregatePlan const& plan);

  [[nodiscard]] std::int64_t num_operand() const { return num_inner * part; } // elements after step 2
  [[nodiscard]] std::int64_t num_partial() const { return num_outer * part; } // elements after step 3
  [[nodiscard]] std::int64_t num_in_slab(OwnRows const& own) const { return own.num_slab * part; }
  /// Whether F is not where step 3 reads it.
  [[nodiscard]] bool copies_operand() const { return from.must_exchange || gather.must_run; }
  /// Elements of the largest chunk of step 4.
  [[nodiscard]] std::int64_t num_in_chunk() const;

  OwnRows from, to;            // before step 1, and after step 5
  std::int64_t num_inner = 0;  // rows of the operand: columns of the block
  std::int64_t num_outer = 0;  // rows of the partial result
  std::int64_t width = 0;      // w
  std::int64_t part = 0;       // w_b
  int num_parts = 1;           // ranks of b
  bool hides_exchange = false; // step 1 may be under way during other work
  bool rounds_sum = false;     // after step 4 in chunks, as a reduce_scatter does
  bool has_16_bits = false;    // numbers of F, which travel as they are
  bool rounds_result = false;  // to 16 bits, after step 4
  std::int64_t slab_begin = 0; // row of a whole operand where the own slab begins
  SlabExchange gather, sum;
  std::vector<PickedRows> picked; // none is empty
  Range own_part;                 // of the operand's elements: what stays
};

/// Throws Error if the formats do not fit one another, or a scalar of training of so many bytes.
void require_formats(AggregatePlan const& plan, std::int64_t scalar_bytes);

/// Lists one run: exchanges with their copies, gather, local product with a block of that many non-zeros, sum.
void plan_aggregate(StepPlan& step, AggregatePlan const& plan, std::int64_t num_nonzeros);

} // namespace orthant::pmm

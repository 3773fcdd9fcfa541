#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sizes of the five steps of an aggregation (aggregate.hpp) on one rank. Aggregate and the cost model both use them.

#include "pmm/aggregate/needed_rows.hpp"
#include "pmm/cost/step_plan.hpp"

namespace orthant::pmm {

/// Direction of an aggregation: forward gathers over c and sums over a; transpose gathers over a and sums over c.
enum class Flow : std::uint8_t { forward, transpose };

/// Step 2 or step 4: moves rows between the block of this rank and the slabs of the ranks of an axis. Either all rows
/// move (all_gather, reduce_scatter) or only those that blocks touch (all_to_all). Step 4 may send the rows of each
/// slab as soon as they are multiplied (all_to_all).
struct SlabExchange {
  Axis axis{};
  bool must_run = false;
  bool moves_needed = false;
  bool in_chunks = false; // step 4 only; a chunk is the rows of one slab
  // [ranks of the axis] elements of each rank's slab in this rank's block, and elements of this rank's slab in each rank's
  // block; of_slab is empty unless all_to_all.
  std::vector<std::int64_t> of_block;
  std::vector<std::int64_t> of_slab;

  [[nodiscard]] std::int64_t num_of_slab() const;
};

/// Range of the elements of `rank` if the elements of all ranks are stored one rank after the other.
[[nodiscard]] Range range_of(std::vector<std::int64_t> const& counts, int rank);

/// Rows that step 2 picks, as a range of NeededSlabs::asked. Rows for other ranks go into a message. On a host, this
/// rank's own rows stay: they are copied straight into the operand.
struct PickedRows {
  Range asked;
  bool stays = false;
};

/// Description of an aggregation without its block.
struct AggregatePlan {
  std::string formula; // "H = A F"
  Placement matrix;    // placement of A, for reports only
  Roles roles;
  CellSizes sizes;
  std::int64_t width = 0;
  Flow flow = Flow::forward;
  Wire wire = Wire::native;
  NeededCountsOfAxes needed{}; // always those of Flow::forward
  AxisSet hidden_axes{};       // axes whose messages overlap with computation
  // Number formats of F and of H in memory. Wire::native is the scalar type of training; 16-bit formats need fp32
  // training. The format of H must be native or equal to the format of F.
  Wire operand_format = Wire::native;
  Wire result_format = Wire::native;
};

/// The rows of F or of H that this rank owns, before and after an exchange over b.
struct OwnRows {
  std::int64_t num_own = 0;  // n
  std::int64_t num_slab = 0; // n_ac
  bool must_exchange = false;
  // [ranks of b] columns: columns: elements of this rank's rows in the columns of each rank; rows: elements of each rank's rows in this
  // rank's columns.
  std::vector<std::int64_t> columns, rows;
};

struct AggregateSteps {
  AggregateSteps(GridShape const& shape, Coordinates const& coordinates, AggregatePlan const& plan);

  [[nodiscard]] std::int64_t num_operand() const { return num_inner * part; } // elements after step 2
  [[nodiscard]] std::int64_t num_partial() const { return num_outer * part; } // elements after step 3
  [[nodiscard]] std::int64_t num_in_slab(OwnRows const& own) const { return own.num_slab * part; }
  /// True if step 3 reads a copy of F in the workspace.
  [[nodiscard]] bool copies_operand() const { return from.must_exchange || gather.must_run; }
  /// Elements of the largest chunk of step 4.
  [[nodiscard]] std::int64_t num_in_chunk() const;

  OwnRows from, to;            // rows of F before step 1, rows of H after step 5
  std::int64_t num_inner = 0;  // rows of the operand: columns of the block
  std::int64_t num_outer = 0;  // rows of the partial result
  std::int64_t width = 0;      // w
  std::int64_t part = 0;       // w_b
  int num_parts = 1;           // ranks of b
  bool hides_exchange = false; // step 1 may overlap with other work
  bool rounds_sum = false;     // after step 4 in chunks, the sum is rounded to the wire format
  bool has_16_bits = false;    // F holds 16-bit numbers
  bool rounds_result = false;  // H holds 16-bit numbers: sums are rounded to them
  std::int64_t slab_begin = 0; // first row of the own slab in an operand of all rows
  SlabExchange gather, sum;
  std::vector<PickedRows> picked; // none is empty
  Range own_part;                 // elements of the operand that this rank copies from its own slab
};

/// Throws Error if the formats do not fit one another, or do not fit a scalar type of training of `scalar_bytes`.
void require_formats(AggregatePlan const& plan, std::int64_t scalar_bytes);

/// Adds one run to `step`: the exchanges with their copies, the gather, the local product with a block of
/// `num_nonzeros`, and the sum.
void plan_aggregate(StepPlan& step, AggregatePlan const& plan, std::int64_t num_nonzeros);

} // namespace orthant::pmm

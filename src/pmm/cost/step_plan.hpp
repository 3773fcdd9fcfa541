#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Plan of one rank's step, made before anything is allocated: its local products, its passes over arrays and its collectives, in the
// order in which they run, and its arrays, in the order in which they are allocated; and the seconds and bytes that the step takes on a
// machine. A plan follows from layouts alone. It needs no communicator and no array, so one rank can plan the steps of thousands.
//
//   StepPlan step(shape, coordinates, sizeof(float));
//   plan_product(step, transform);       // declared with the product (pmm/product/product.hpp)
//   plan_sum_rows(step, q);
//   plan_matrix(step, q, "Q");           // declared with DistMatrix
//   bytes_along(step, "x");              // sums over the list
//   bytes_held(step);
//
// Tests on every grid check that the products, passes, calls and arrays of a list equal those that are run, counted by the ledgers and
// allocated (docs/design.md 2.5).

#include "pmm/cost/machine.hpp"
#include "pmm/grid/layout.hpp"
#include "runtime/numbers/formats.hpp"
#include "runtime/observe/ledger.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace orthant::pmm {

/// How long an array stays allocated.
enum class Lifetime : std::uint8_t {
  training,   // to the end of training
  first_step, // to the end of the first step
  operation   // to the end of the operation that allocates it (StepPlan::end_operation)
};

/// An array that an object or an operation will allocate. The arrays listed before a run equal those allocated in it, label by label
/// (docs/design.md 2.5).
struct PlannedArray {
  std::string label; // label of the View; a description for other arrays on the host
  std::int64_t bytes = 0;
  Lifetime lifetime = Lifetime::training;
  std::int64_t operation = 0; // arrays with the same number are allocated at the same time

  friend bool operator==(PlannedArray const&, PlannedArray const&) = default;
};

using runtime::LocalPass;
using runtime::Wire;

/// A product or one of its two adjoints (pmm/product/product.hpp).
enum class Form : std::uint8_t { product, left_grad, right_grad };

/// Local part of a product: C [m x n], summed over k. `left` is [m x k], or [k x m] for Form::right_grad.
struct LocalProduct {
  std::int64_t layer = 0; // number of the layer in the model
  std::string formula;    // "H = A F"
  Form form{};
  Placement left;
  bool is_sparse = false;             // the left operand is a CSR block
  Wire operand_format = Wire::native; // format of the operands; native is the scalar of training
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t num_nonzeros = 0; // of a sparse left block
  bool is_per_expert = false;    // one product per expert, each of as many rows as the run sends it

  /// Counts a multiplication and an addition as two operations.
  [[nodiscard]] std::int64_t flops() const { return 2 * (is_sparse ? num_nonzeros : m * k) * n; }
};

/// Span of a group over these axes. Ranks are numbered in nested order (process_grid.hpp) and fill one node after the other.
[[nodiscard]] GroupSpan span_of(GridShape const& shape, AxisSet axes);

using PlannedOperation = std::variant<LocalProduct, LocalPass, PlannedCall>;

/// Whether the listed calls are made, are made and their results kept, or are replaced by kept results (runtime/comm/call_tape.hpp).
/// Keeping a result and replaying it each count as a pass.
enum class Calls : std::uint8_t { made, kept, replayed };

/// Calls that run while other operations are computed. Both ranges are places in the list of operations.
struct Overlap {
  runtime::Range calls; // only the calls in it count
  runtime::Range work;  // only the products and passes in it count
  double share = 1;     // share of the work that remains when the first call begins
};

class StepPlan {
 public:
  /// Empty plan of the rank at `coordinates`. `scalar_bytes`: size of the scalar of training.
  StepPlan(GridShape const& shape, Coordinates const& coordinates, std::int64_t scalar_bytes)
      : shape_(shape),
        coordinates_(coordinates),
        scalar_bytes_(scalar_bytes) {}

  [[nodiscard]] Block block(Placement const& placement) const {
    return block_of(shape_, coordinates_, placement);
  }
  [[nodiscard]] GridShape const& shape() const { return shape_; }
  [[nodiscard]] Coordinates const& coordinates() const { return coordinates_; }
  /// Bytes of `num_elements` scalars of training.
  [[nodiscard]] std::int64_t scalar_bytes(std::int64_t num_elements) const {
    return num_elements * scalar_bytes_;
  }
  /// Bytes of `num_elements` numbers in the format `wire`, in messages or in memory.
  [[nodiscard]] std::int64_t wire_bytes(std::int64_t num_elements, Wire wire) const {
    return runtime::encoding_of(wire).encoded_bytes(num_elements, scalar_bytes_);
  }

  /// Bytes of a message that consists of parts of these lengths, one per rank.
  [[nodiscard]] std::int64_t wire_bytes(std::vector<std::int64_t> const& counts, Wire wire) const {
    return runtime::encoding_of(wire).encoded_bytes(counts, scalar_bytes_);
  }
  /// The same without the part of this rank, at `own`, which stays.
  [[nodiscard]] std::int64_t wire_bytes_leaving(std::vector<std::int64_t> const& counts, int own,
                                                Wire wire) const {
    return wire_bytes(counts, wire) - wire_bytes(counts[static_cast<std::size_t>(own)], wire);
  }

  /// Assigns all products that are listed from now on to this layer.
  void begin_layer(std::int64_t layer) { layer_ = layer; }

  /// Applies to all calls that are listed from now on.
  void set_calls(Calls calls) { calls_ = calls; }

  /// Lists a call of the group over these axes, unless the group has only one rank, which does not communicate.
  void add_call(runtime::Operation operation, AxisSet axes, std::int64_t bytes);
  /// The same for a call whose result on this rank has `result_bytes` bytes. The overload above assumes that the result is the whole
  /// buffer, or an equal part of it for a reduce_scatter.
  void add_call(runtime::Operation operation, AxisSet axes, std::int64_t bytes, std::int64_t result_bytes);
  /// Lists a call of a run of ranks along an axis (ProcessGrid::over_run), unless a run has only one rank.
  void add_run_call(runtime::Operation operation, Axis axis, int run_length, std::int64_t bytes);
  /// Lists a message of `bytes` that this rank sends to (Operation::send) or gets from (Operation::receive) its neighbor along an axis.
  /// The seconds of a message are those of its sender.
  void add_message(runtime::Operation operation, Axis axis, std::int64_t bytes);
  void add_product(LocalProduct product) {
    product.layer = layer_;
    operations_.emplace_back(std::move(product));
  }
  /// Lists elementwise work, unless it moves no bytes.
  void add_pass(LocalPass const& pass) {
    if (pass.bytes() > 0) operations_.emplace_back(pass);
  }

  /// Lists an array of this rank, unless it is empty.
  void add_array(std::string label, std::int64_t bytes, Lifetime lifetime = Lifetime::training) {
    if (bytes > 0) arrays_.push_back({std::move(label), bytes, lifetime, operation_});
  }
  /// Ends an operation: its arrays of Lifetime::operation are freed.
  void end_operation() { ++operation_; }

  /// Number of operations listed so far, which is the place of the next one.
  [[nodiscard]] std::int64_t num_operations() const { return std::ssize(operations_); }
  /// Lists an overlap, unless one of its ranges is empty. Each call, product and pass must belong to at most one overlap.
  void add_overlap(Overlap const& overlap) {
    if (overlap.calls.size() > 0 && overlap.work.size() > 0) overlaps_.push_back(overlap);
  }

  [[nodiscard]] std::vector<PlannedOperation> const& operations() const { return operations_; }
  [[nodiscard]] std::vector<Overlap> const& overlaps() const { return overlaps_; }
  [[nodiscard]] std::vector<PlannedArray> const& arrays() const { return arrays_; }

 private:
  void add(PlannedCall call, std::int64_t result_bytes);

  GridShape shape_;
  Coordinates coordinates_;
  std::int64_t scalar_bytes_;
  std::int64_t layer_ = 0;
  std::int64_t operation_ = 0;
  std::vector<PlannedOperation> operations_;
  std::vector<Overlap> overlaps_;
  std::vector<PlannedArray> arrays_;
  Calls calls_ = Calls::made;
};

/// The products, the passes and the calls of a list, each in order.
[[nodiscard]] std::vector<LocalProduct> products_of(StepPlan const& step);
[[nodiscard]] std::vector<LocalPass> passes_of(StepPlan const& step);
[[nodiscard]] std::vector<PlannedCall> calls_of(StepPlan const& step);

/// Bytes of the calls along an axis: size of the buffers as the ledger counts them, and bytes that this rank sends.
struct PlannedBytes {
  std::int64_t counted = 0;
  std::int64_t sent = 0;
};
/// `axis`: name of the communicator: "x", "y", "z", "data" or "group".
[[nodiscard]] PlannedBytes bytes_along(StepPlan const& step, std::string_view axis);

/// Bytes that the passes read and write (runtime/observe/ledger.hpp).
[[nodiscard]] std::int64_t bytes_of_passes(StepPlan const& step);

/// Bytes of the arrays that exist during the whole first step: all except those of Lifetime::operation.
[[nodiscard]] std::int64_t bytes_held(StepPlan const& step);
/// Largest number of bytes that are allocated at once while the arrays are allocated in the order of the list.
[[nodiscard]] std::int64_t peak_bytes(StepPlan const& step);

// Seconds that a list of operations takes on a machine: a sum over its operations, which run one after the other, less the seconds of
// calls that run while products are computed (Overlap):
//
//   hidden = min(calls, s share work)        s = Machine::Collectives::overlap

struct StepSeconds {
  double sparse = 0; // products
  double dense = 0;
  double passes = 0;                   // over arrays
  std::map<std::string, double> calls; // by axis
  double hidden = 0;                   // seconds of calls that run during other work
  double waiting = 0; // of a stage of a pipeline for other stages; seconds_of() does not know it

  [[nodiscard]] double communication() const;
  [[nodiscard]] double total() const { return sparse + dense + passes + communication() - hidden + waiting; }
  /// Name of the largest term: "sparse products", "dense products", "passes", "waiting", or an axis such as "x" for the calls along it.
  [[nodiscard]] std::string bound() const;
};

/// Seconds of `num_steps` equal steps.
[[nodiscard]] StepSeconds operator*(StepSeconds const& step, double num_steps);

[[nodiscard]] StepSeconds seconds_of(StepPlan const& step, Machine const& machine);
/// Axes of the grid along which calls can be hidden behind work on this machine: those that cross nodes, or none if calls make no
/// progress during other work. Ranks fill one node after the other.
[[nodiscard]] AxisSet hidden_axes_on(Machine const& machine, GridShape const& shape);
/// Seconds of one operation of the list.
[[nodiscard]] double seconds_of(PlannedOperation const& operation, StepPlan const& step,
                                Machine const& machine);

/// Result of leave_out_what_does_not_fit().
struct LeftOut {
  std::int64_t num_costs = 0;   // removed
  std::int64_t least_bytes = 0; // smallest need of all costs, removed or not
};

/// Removes the costs that need more than `limit` bytes per rank; a limit of 0 removes none. `costs` must not be empty. `bytes_of`:
/// member or function that returns the largest number of bytes of any rank.
template<class Cost, class BytesOf>
LeftOut leave_out_what_does_not_fit(std::vector<Cost>& costs, double limit, BytesOf const& bytes_of) {
  LeftOut left_out{0, std::invoke(bytes_of, std::ranges::min(costs, {}, bytes_of))};
  if (limit > 0)
    left_out.num_costs = static_cast<std::int64_t>(std::erase_if(
        costs, [&](Cost const& cost) { return static_cast<double>(std::invoke(bytes_of, cost)) > limit; }));
  return left_out;
}

} // namespace orthant::pmm

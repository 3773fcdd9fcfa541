#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What one rank does in a step, listed before anything exists: its local products, its passes over arrays and its
// collectives, in the order in which they run, and the arrays that it holds, in the order in which they are
// allocated. The list follows from layouts alone. It needs no communicator and no array, so the steps of thousands of ranks are
// planned on one.
//
//   StepPlan step(shape, coordinates, sizeof(float));
//   plan_product(step, transform);       // declared beside the product itself (pmm/product/product.hpp)
//   plan_sum_rows(step, q);
//   plan_matrix(step, q, "Q");           // declared beside DistMatrix
//   bytes_along(step, "x");              // sums over the list
//   bytes_held(step);
//
// The products, the passes, the calls and the arrays of a list equal what the runner multiplies, what the ledgers
// count and what is allocated, in tests on every grid (docs/design.md 2.5).
//
// Which of many costs fit into the memory of a rank.

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

// An array that an object or an operation is going to allocate. What is listed before a run equals what is
// allocated in it, label by label (docs/design.md 2.5).

/// How long an array is held.
enum class Lifetime : std::uint8_t {
  training,   // to the end
  first_step, // until the first step is over
  operation   // until the operation that allocates it is over (StepPlan::end_operation)
};

struct PlannedArray {
  std::string label; // of the View; arrays of the host's own describe themselves
  std::int64_t bytes = 0;
  Lifetime lifetime = Lifetime::training;
  std::int64_t operation = 0; // arrays of one operation are held together

  friend bool operator==(PlannedArray const&, PlannedArray const&) = default;
};

using runtime::LocalPass;
using runtime::Wire;

/// How the operands of a product enter it (pmm.hpp).
enum class Form : std::uint8_t { product, left_grad, right_grad };

/// The local part of a product: C [m x n], summed over k. `left` is [m x k], or [k x m] for Form::right_grad.
struct LocalProduct {
  std::int64_t layer = 0; // as the model numbers its layers
  std::string formula;    // "H = A F"
  Form form{};
  Placement left;
  bool is_sparse = false;             // the left operand is a CSR block
  Wire operand_format = Wire::native; // what the operands are held in; native is the scalar of training
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t num_nonzeros = 0; // of the left block, if it is sparse

  /// A multiplication and an addition are two.
  [[nodiscard]] std::int64_t flops() const { return 2 * (is_sparse ? num_nonzeros : m * k) * n; }
};

/// The group over these axes. Ranks are counted in nested order (process_grid.hpp), on the nodes one after the other.
[[nodiscard]] GroupSpan span_of(GridShape const& shape, AxisSet axes);

using PlannedOperation = std::variant<LocalProduct, LocalPass, PlannedCall>;

/// What becomes of the calls that are listed: they are made; or made, and their results kept; or not made, because their results were kept
/// (runtime/comm/call_tape.hpp). A result that is kept or handed out is a pass.
enum class Calls : std::uint8_t { made, kept, replayed };

/// Calls that are under way while other operations of the list are computed. Both are ranges of places in the list.
struct Overlap {
  runtime::Range calls; // in which calls alone count
  runtime::Range work;  // in which products and passes count
  double share = 1;     // part of the work that is still to be done when the first call begins
};

class StepPlan {
 public:
  /// Of the rank at `coordinates`. `scalar_bytes`: of the scalar of training.
  StepPlan(GridShape const& shape, Coordinates const& coordinates, std::int64_t scalar_bytes)
      : shape_(shape),
        coordinates_(coordinates),
        scalar_bytes_(scalar_bytes) {}

  [[nodiscard]] Block block(Placement const& placement) const {
    return block_of(shape_, coordinates_, placement);
  }
  [[nodiscard]] GridShape const& shape() const { return shape_; }
  [[nodiscard]] Coordinates const& coordinates() const { return coordinates_; }
  /// Bytes of that many numbers of the scalar of training.
  [[nodiscard]] std::int64_t scalar_bytes(std::int64_t num_elements) const {
    return num_elements * scalar_bytes_;
  }
  /// Bytes of that many numbers in that format, on the wire or in memory.
  [[nodiscard]] std::int64_t wire_bytes(std::int64_t num_elements, Wire wire) const {
    return runtime::encoding_of(wire).encoded_bytes(num_elements, scalar_bytes_);
  }

  /// Products that are listed from now on belong to this layer.
  void begin_layer(std::int64_t layer) { layer_ = layer; }

  /// Of all calls from now on.
  void set_calls(Calls calls) { calls_ = calls; }

  /// A call of the group over these axes. Not listed if that is one rank: nothing is communicated then.
  void add_call(runtime::Operation operation, AxisSet axes, std::int64_t bytes);
  /// The same if the result of this rank is not the buffer, nor an equal part of it behind a reduce_scatter.
  void add_call(runtime::Operation operation, AxisSet axes, std::int64_t bytes, std::int64_t result_bytes);
  /// The same of a run of ranks along an axis (ProcessGrid::over_run).
  void add_run_call(runtime::Operation operation, Axis axis, int run_length, std::int64_t bytes);
  void add_product(LocalProduct product) {
    product.layer = layer_;
    operations_.emplace_back(std::move(product));
  }
  /// Element-wise work. Not listed if it moves nothing.
  void add_pass(LocalPass const& pass) {
    if (pass.bytes() > 0) operations_.emplace_back(pass);
  }

  /// An array of this rank. Not listed if it is empty.
  void add_array(std::string label, std::int64_t bytes, Lifetime lifetime = Lifetime::training) {
    if (bytes > 0) arrays_.push_back({std::move(label), bytes, lifetime, operation_});
  }
  /// Arrays of Lifetime::operation that are listed so far are let go.
  void end_operation() { ++operation_; }

  /// How many operations are listed so far: the place of the next one.
  [[nodiscard]] std::int64_t num_operations() const { return std::ssize(operations_); }
  /// Each call and each piece of work belongs to one overlap at most.
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

/// The products of a list, in order; its passes; and its calls.
[[nodiscard]] std::vector<LocalProduct> products_of(StepPlan const& step);
[[nodiscard]] std::vector<LocalPass> passes_of(StepPlan const& step);
[[nodiscard]] std::vector<PlannedCall> calls_of(StepPlan const& step);

/// What the calls along an axis communicate: bytes as the ledger counts them, and those that this rank sends.
struct PlannedBytes {
  std::int64_t counted = 0;
  std::int64_t sent = 0;
};
/// `axis`: the name of the communicator, "x", "y", "z", "data" or "group".
[[nodiscard]] PlannedBytes bytes_along(StepPlan const& step, std::string_view axis);

/// What the passes read and write (runtime/observe/ledger.hpp).
[[nodiscard]] std::int64_t bytes_of_passes(StepPlan const& step);

/// Bytes of the arrays that are held in the first step: all but those of single operations.
[[nodiscard]] std::int64_t bytes_held(StepPlan const& step);
/// The most bytes that are held at once while the arrays are allocated in the order of the list.
[[nodiscard]] std::int64_t peak_bytes(StepPlan const& step);

// How long a list of operations takes on a machine, term by term, one after the other; and what of it is saved where calls
// travel while products are computed (Overlap):
//
//   hidden = min(calls, s share work)        s: Machine::Collectives::overlap

struct StepSeconds {
  double sparse = 0; // products
  double dense = 0;
  double passes = 0;                   // over arrays
  std::map<std::string, double> calls; // by axis
  double hidden = 0;                   // of the calls, behind work

  [[nodiscard]] double communication() const;
  [[nodiscard]] double total() const { return sparse + dense + passes + communication() - hidden; }
  /// The largest term: "sparse products", "dense products", "passes" or the calls along an axis, "x".
  [[nodiscard]] std::string bound() const;
};

/// Of that many steps.
[[nodiscard]] StepSeconds operator*(StepSeconds const& step, double num_steps);

[[nodiscard]] StepSeconds seconds_of(StepPlan const& step, Machine const& machine);
/// Axes of a grid that reach other nodes, if calls travel behind work on this machine; else none. Ranks fill the nodes one after the
/// other.
[[nodiscard]] AxisSet hidden_axes_on(Machine const& machine, GridShape const& shape);
/// Of one of its operations.
[[nodiscard]] double seconds_of(PlannedOperation const& operation, StepPlan const& step,
                                Machine const& machine);

struct LeftOut {
  std::int64_t num_costs = 0;
  std::int64_t least_bytes = 0; // of all costs
};

/// Takes the costs with more than `limit` bytes out of the list, which has at least one; 0: there is no limit. `bytes_of`: member
/// or function that says how many bytes a rank holds at most.
template<class Cost, class BytesOf>
LeftOut leave_out_what_does_not_fit(std::vector<Cost>& costs, double limit, BytesOf const& bytes_of) {
  LeftOut left_out{0, std::invoke(bytes_of, std::ranges::min(costs, {}, bytes_of))};
  if (limit > 0)
    left_out.num_costs = static_cast<std::int64_t>(std::erase_if(
        costs, [&](Cost const& cost) { return static_cast<double>(std::invoke(bytes_of, cost)) > limit; }));
  return left_out;
}

} // namespace orthant::pmm

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One product with its weight and bias, forward and backward side by side. Normal layers have (a, b) = (y, x),
// transposed ones (x, y):
//
//   Z[z,b] := sum_a X[z,a] W[a,b] + 1 b[b]^T
//   db[b]  := 1^T dZ[z,b]                    addends of this rank's rows
//   dX[z,a] := sum_b dZ[z,b] W[a,b]^T        reduced while dW is computed
//   dW[a,b] := sum_z X[z,a]^T dZ[z,b]
//
// Two sets of buffers take turns, so that while a product runs, the weight of the next is gathered, and the gradient of
// the one before is reduced.
//
// Source: AxoNN (arXiv 2502.08145), section 3.

#include "models/lm/transformer/transformer_parameters.hpp"
#include "pmm/product/product.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "runtime/comm/call_tape.hpp"

#include <array>
#include <memory>
#include <vector>

namespace orthant::models {

template<class T>
class ParallelLinear;

enum class Direction : std::uint8_t { forward, backward };

/// A product that reads a weight.
template<class T>
struct WeightUse {
  ParallelLinear<T>* linear = nullptr;
  Direction direction = Direction::forward;
  runtime::CallTape* tape = nullptr; // through which it is gathered, if ahead
};

inline constexpr std::size_t num_turns = 2;

template<class T>
class LinearWork {
 public:
  /// `grid` must outlive it.
  explicit LinearWork(pmm::ProcessGrid const& grid);
  LinearWork(LinearWork const&) = delete;
  LinearWork& operator=(LinearWork const&) = delete;

  [[nodiscard]] std::shared_ptr<pmm::Workspace<T>> const& buffers(std::size_t turn) const {
    return buffers_[turn];
  }

  /// Whether weights are gathered ahead. By default if a gather can go on while other work is done: not between
  /// host processors of one node. The results are the same to the bit.
  void set_gathers_ahead(bool gathers_ahead) { gathers_ahead_ = gathers_ahead; }

  /// From now on weights are used in this order. `uses` must stay until the next call.
  void begin_pass(std::vector<WeightUse<T>> const& uses);
  /// Before each use: starts its own gather, if that was not done ahead, and that of the next one, unless it takes the same turn.
  /// Neither if weights are not gathered ahead. Throws Error if it is not this one's turn. Collective over z.
  void begin_use(runtime::DefaultExec const& exec, WeightUse<T> const& use);

  /// That product was started and not finished. The one before it that has the same turn must be finished first.
  void leave_unfinished(std::size_t turn, pmm::Product<T>& product) { unfinished_[turn] = &product; }
  void finish(std::size_t turn);
  void finish_all();
  /// Products that were left unfinished in this pass and are finished now. As turns alternate, they are finished in order.
  [[nodiscard]] std::size_t num_finished() const { return num_finished_; }

 private:
  runtime::Instruments& instruments_;
  std::array<std::shared_ptr<pmm::Workspace<T>>, num_turns> buffers_;
  std::array<pmm::Product<T>*, num_turns> unfinished_{};
  bool gathers_ahead_;
  std::vector<WeightUse<T>> const* uses_ = nullptr;
  std::size_t next_ = 0;
  bool is_gathered_ahead_ = false; // the weight of the next use
  std::size_t num_finished_ = 0;
};

/// The buffers before they exist.
using LinearWorkPlan = std::array<pmm::WorkspacePlan, num_turns>;

extern template class LinearWork<float>;
extern template class LinearWork<double>;

template<class T>
class ParallelLinear {
 public:
  /// `turn`: of the buffers in `work`; consecutive products take turns. `grid` and `work` must outlive it. Not
  /// collective.
  ParallelLinear(pmm::ProcessGrid const& grid, LinearPlan3d const& plan, LinearParameters<T> parameters,
                 LinearWork<T>& work, std::size_t turn);
  ParallelLinear(ParallelLinear const&) = delete;
  ParallelLinear& operator=(ParallelLinear const&) = delete;

  /// output := input W + b. Collective over the axes of the weight's rows and over z. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
               pmm::DistMatrix<T> const& output);
  /// The gradients of weight and bias, and of the input. That of the weight is there after LinearWork::finish_all().
  /// Collective over x or y, and over z. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
                pmm::DistMatrix<T> const& output_gradient, pmm::DistMatrix<T> const& input_gradient);

  [[nodiscard]] std::size_t turn() const { return turn_; }
  /// Starts the gather of the weight for the next forward or backward(). Collective over z.
  void prefetch(runtime::DefaultExec const& exec, Direction direction);

 private:
  LinearParameters<T> parameters_;
  LinearWork<T>& work_;
  std::size_t turn_;
  bool has_bias_;
  pmm::Product<T> product_;
  pmm::Product<T> input_back_;
  pmm::Product<T> weight_back_;
};

/// List what forward() and backward() do. And reserve the buffers of the turn.
void plan_linear(pmm::StepPlan& step, LinearPlan3d const& plan, bool has_bias);
void plan_linear_backward(pmm::StepPlan& step, LinearPlan3d const& plan, bool has_bias);
void plan_linear_buffers(LinearWorkPlan& work, std::size_t turn, pmm::StepPlan const& step,
                         LinearPlan3d const& plan, bool has_bias);

extern template class ParallelLinear<float>;
extern template class ParallelLinear<double>;

// LayerNorm or RMSNorm of the residual stream, whose columns are split over y. Each direction sends one message over y, of
// two numbers per row (RMSNorm: one). With whole rows on one rank there is none (pmm/token_rows/row_norm.hpp).

template<class T>
class ParallelNorm {
 public:
  /// `state` is the memory from a forward pass to its backward pass. `row_sums` is lent, sums_per_row numbers per row,
  /// `work` for partial sums; norms share both. `grid` must outlive it.
  ParallelNorm(pmm::ProcessGrid const& grid, TransformerPlan const& plan, NormParameters<T> parameters,
               pmm::RowNormState<T> state, runtime::Vector<T> row_sums,
               std::shared_ptr<pmm::Workspace<T>> work);

  /// y := norm(x). Collective over y. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y);
  /// dx := (dx +) the gradient by x, from that by y; and this rank's addends of the parameters' gradients. Collective
  /// over y. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& dy,
                pmm::Residual residual, pmm::DistMatrix<T> const& dx);

 private:
  [[nodiscard]] pmm::RowParts parts() const {
    return grid_.size(pmm::Axis::y) == 1 ? pmm::RowParts::whole : pmm::RowParts::summed;
  }

  pmm::ProcessGrid const& grid_;
  pmm::RowNormSettings settings_;
  NormParameters<T> parameters_;
  runtime::Vector<T> row_sums_;
  std::shared_ptr<pmm::Workspace<T>> work_;
  pmm::RowNormState<T> state_;
};

/// The memory of one norm.
template<class T>
[[nodiscard]] pmm::RowNormState<T> make_norm_state(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

[[nodiscard]] pmm::RowNormSettings row_norm_of(TransformerSettings const& settings);

/// Makes room for the partial sums of a backward pass. `work`: a Workspace or a WorkspacePlan. `stream`: the block.
template<class Work>
void reserve_norm_sums(Work& work, pmm::Block const& stream) {
  pmm::reserve_column_sums(work, stream.rows.size(), stream.columns.size());
}

/// List what forward() and backward() do, and the arrays of one norm.
void plan_norm(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_norm_backward(pmm::StepPlan& step, TransformerPlan const& plan, pmm::Residual residual);
void plan_norm_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class ParallelNorm<float>;
extern template class ParallelNorm<double>;

} // namespace orthant::models

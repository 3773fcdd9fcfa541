#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Layers of a transformer with parameters: a product with weight and bias, forward and backward, and a norm of the residual
// stream. The products share buffers and gather their weights ahead of use. Normal products have (a, b) = (y, x), transposed ones
// (x, y):
//
//   Z[z,b] := sum_a X[z,a] W[a,b] + 1 b[b]^T
//   db[b]  := 1^T dZ[z,b]                    this rank's addend, over its own rows
//   dX[z,a] := sum_b dZ[z,b] W[a,b]^T        reduced while dW is computed
//   dW[a,b] := sum_z X[z,a]^T dZ[z,b]
//
// Products use two sets of buffers in turn. While a product runs, the weight of the next one is gathered and the gradient of the
// previous one is reduced.
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

/// One use of a weight by a product of a pass.
template<class T>
struct WeightUse {
  ParallelLinear<T>* linear = nullptr;
  Direction direction = Direction::forward;
  runtime::CallTape* tape = nullptr; // tape of the gather if it starts ahead of use; may be null
};

inline constexpr std::size_t num_turns = 2;

/// Buffers of all products of a network, and the order in which a pass uses their weights.
template<class T>
class LinearWork {
 public:
  /// `grid` must outlive this object.
  explicit LinearWork(pmm::ProcessGrid const& grid);
  LinearWork(LinearWork const&) = delete;
  LinearWork& operator=(LinearWork const&) = delete;

  [[nodiscard]] std::shared_ptr<pmm::Workspace<T>> const& buffers(std::size_t turn) const {
    return buffers_[turn];
  }

  /// Sets whether weights are gathered ahead of use. By default they are if a gather can overlap other work, which is not the
  /// case between host processes of one node. The results have the same bits in both cases.
  void set_gathers_ahead(bool gathers_ahead) { gathers_ahead_ = gathers_ahead; }

  /// Starts a pass that uses weights in the order of `uses`, which must stay valid until the next call.
  void begin_pass(std::vector<WeightUse<T>> const& uses);
  /// Must be called before each use, in the order of begin_pass(); otherwise throws Error. If weights are gathered ahead,
  /// starts the gather of this use unless it has been started, and the gather of the next use unless both uses have the same
  /// buffers. Collective over z.
  void begin_use(runtime::DefaultExec const& exec, WeightUse<T> const& use);

  /// Notes that `product` was started and not finished. The previous product with these buffers must be finished before.
  void leave_unfinished(std::size_t turn, pmm::Product<T>& product) { unfinished_[turn] = &product; }
  void finish(std::size_t turn);
  void finish_all();
  /// Number of products that were left unfinished in this pass and have been finished since. Because the buffers alternate,
  /// products finish in the order of their start.
  [[nodiscard]] std::size_t num_finished() const { return num_finished_; }

 private:
  runtime::Instruments& instruments_;
  std::array<std::shared_ptr<pmm::Workspace<T>>, num_turns> buffers_;
  std::array<pmm::Product<T>*, num_turns> unfinished_{};
  bool gathers_ahead_;
  std::vector<WeightUse<T>> const* uses_ = nullptr;
  std::size_t next_ = 0;
  bool is_gathered_ahead_ = false; // the gather of the next use has been started
  std::size_t num_finished_ = 0;
};

/// Sizes of the buffers of a LinearWork.
using LinearWorkPlan = std::array<pmm::WorkspacePlan, num_turns>;

extern template class LinearWork<float>;
extern template class LinearWork<double>;

template<class T>
class ParallelLinear {
 public:
  /// `turn`: set of buffers in `work`; consecutive products must alternate. `grid` and `work` must outlive this object. Not
  /// collective.
  ParallelLinear(pmm::ProcessGrid const& grid, LinearPlan3d const& plan, LinearParameters<T> parameters,
                 LinearWork<T>& work, std::size_t turn);
  ParallelLinear(ParallelLinear const&) = delete;
  ParallelLinear& operator=(ParallelLinear const&) = delete;

  /// output := input W + b. Collective over the axis of the weight's rows and over z. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
               pmm::DistMatrix<T> const& output);
  /// Computes the gradients of weight, bias and input. The gradient of the weight is complete after LinearWork::finish_all().
  /// Collective over the axis of the weight's columns and over z. Enqueues on exec.
  void backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
                pmm::DistMatrix<T> const& output_gradient, pmm::DistMatrix<T> const& input_gradient);

  /// The parts of backward(): the gradient of the input (collective over the axis of the weight's columns and over z), and those of weight
  /// and bias (collective over z). Enqueue on exec.
  void input_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& output_gradient,
                      pmm::DistMatrix<T> const& input_gradient);
  void weight_backward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& input,
                       pmm::DistMatrix<T> const& output_gradient);

  [[nodiscard]] std::size_t turn() const { return turn_; }
  /// Starts the gather of the weight for the next forward() or backward(). Collective over z.
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

/// Parts of a backward pass: gradients of inputs, of weights, or both.
enum class BackwardPart : std::uint8_t { both, inputs, weights };

/// Add the operations of forward() and of backward() or a part of it to `step`, and reserve their buffers in `work`.
void plan_linear(pmm::StepPlan& step, LinearPlan3d const& plan, bool has_bias);
void plan_linear_backward(pmm::StepPlan& step, LinearPlan3d const& plan, bool has_bias,
                          BackwardPart part = BackwardPart::both);
void plan_linear_buffers(LinearWorkPlan& work, std::size_t turn, pmm::StepPlan const& step,
                         LinearPlan3d const& plan, bool has_bias);

extern template class ParallelLinear<float>;
extern template class ParallelLinear<double>;

// LayerNorm or RMSNorm of the residual stream, whose columns are split over y. Forward and backward pass each need one all_reduce
// over y of two elements per row (RMSNorm: one). If y = 1, no communication is needed (pmm/token_rows/row_norm.hpp).

template<class T>
class ParallelNorm {
 public:
  /// `state`: memory that the forward pass writes for the backward pass. `row_sums`: scratch memory of sums_per_row() elements
  /// per row. `work`: scratch memory of partial sums. Norms that do not run at the same time may share the latter two. `grid`
  /// must outlive this object.
  ParallelNorm(pmm::ProcessGrid const& grid, TransformerPlan const& plan, NormParameters<T> parameters,
               pmm::RowNormState<T> state, runtime::Vector<T> row_sums,
               std::shared_ptr<pmm::Workspace<T>> work);

  /// y := norm(x). Collective over y. Enqueues on exec.
  void forward(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y);
  /// y := norm(x) again, with the same bits, after forward() with the same x. No communication. Enqueues on exec.
  void repeat(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y);
  /// dx := (dx +) the gradient by x, from dy, the gradient by y. Also computes the parameters' gradients over this rank's rows,
  /// which the caller must sum over z. Collective over y. Enqueues on exec.
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

/// Allocates the state of one norm.
template<class T>
[[nodiscard]] pmm::RowNormState<T> make_norm_state(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

[[nodiscard]] pmm::RowNormSettings row_norm_of(TransformerSettings const& settings);

/// Reserves memory for the partial sums of a backward pass in `work`, a Workspace or a WorkspacePlan. `stream`: this rank's block
/// of the stream.
template<class Work>
void reserve_norm_sums(Work& work, pmm::Block const& stream) {
  pmm::reserve_column_sums(work, stream.rows.size(), stream.columns.size());
}

/// Add the operations of forward(), of repeat() and of backward(), and the arrays of one norm, to `step`.
void plan_norm(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_repeated_norm(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_norm_backward(pmm::StepPlan& step, TransformerPlan const& plan, pmm::Residual residual);
void plan_norm_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class ParallelNorm<float>;
extern template class ParallelNorm<double>;

} // namespace orthant::models

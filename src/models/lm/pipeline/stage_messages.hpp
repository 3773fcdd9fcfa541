#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Messages between the stages of a pipeline (lm/plan/pipeline_plan.hpp), and the memory of the streams that they carry. In pass k, stage s
// sends its stream to stage s+1, and in the backward pass the gradient by its input to stage s-1:
//
//   X[z,y] of pass k      s -> s+1      tag 0         a rank of x sends 1/X of it; the receivers gather it over x
//   dX[z,y] of pass k     s -> s-1      tag 1
//   dE[x,y]               first <-> last stage, tag 2      a table that embedding and head share, once per step
//
// A rank communicates with the ranks of the neighboring stages that have the same coordinates otherwise. All messages are asynchronous. A
// stage asks for the message of pass k+1 before it computes with that of pass k, so a message never waits for memory. No rank waits for
// the end of a send before its memory is needed for another pass; the receiver has asked for the message by then.

#include "models/lm/plan/transformer_plan.hpp"
#include "models/parameters/network.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/collectives.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

template<class T>
class StageMessages {
 public:
  /// `grid` must outlive this object. Without a pipeline, it only has the memory of one stream and of one gradient. Collective over the
  /// axis pipe. Throws UserError if device memory is sent by NCCL, whose messages would wait for one another on the stream of the kernels.
  StageMessages(pmm::ProcessGrid const& grid, TransformerPlan const& plan);

  /// Begins `num_passes` training or evaluation passes, numbered from 0. Waits for the messages of earlier passes.
  void begin(Pass pass, std::int64_t num_passes);

  /// Input of the first block in pass k, which keeps its values until the backward pass: received from the previous stage, or on the first
  /// stage memory to write to. Passes must be in order. Waits until the output of the pass that used the same memory has been sent.
  /// Collective over x. Enqueues on exec.
  [[nodiscard]] pmm::DistMatrix<T> const& input(runtime::DefaultExec const& exec, std::int64_t k);
  /// Sends the stream after the last block of pass k, which must not change before the memory of pass k is used again. No-op on the last
  /// stage.
  void send_output(runtime::DefaultExec const& exec, std::int64_t k, pmm::DistMatrix<T> const& output);

  /// Gradient of the stream in the backward pass of batch k, which the pass overwrites: received from the next stage, or on the last stage
  /// memory to write to. Passes must be in order. Collective over x. Enqueues on exec.
  [[nodiscard]] pmm::DistMatrix<T> const& gradient(runtime::DefaultExec const& exec, std::int64_t k);
  /// Sends gradient(k). No-op on the first stage.
  void send_gradient(runtime::DefaultExec const& exec, std::int64_t k);

  /// numbers := their sum over the first and the last stage, with the same bits on both. Only these two stages call it.
  void sum_over_ends(runtime::DefaultExec const& exec, runtime::Vector<T> const& numbers);

 private:
  using Requests = std::vector<runtime::Request>;
  [[nodiscard]] runtime::Communicator const& pipe() const { return grid_.over(pmm::Axis::pipe); }
  /// The elements of the stream that this rank of x sends and receives.
  [[nodiscard]] runtime::Vector<T> part(pmm::DistMatrix<T> const& stream) const;
  void gather(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& stream) const;
  void ask_for_input(std::int64_t k);
  void ask_for_gradient(std::int64_t k);

  pmm::ProcessGrid const& grid_;
  StagePlan stage_;
  bool sums_table_;
  std::int64_t num_passes_ = 1;
  std::vector<std::int64_t> counts_;             // elements of the parts
  std::vector<pmm::DistMatrix<T>> inputs_;       // pass k uses number k mod their count
  std::vector<pmm::DistMatrix<T>> gradients_;    // the same
  Requests received_inputs_, sent_outputs_;      // of pass k: number k mod inputs, and k mod num_in_flight
  Requests received_gradients_, sent_gradients_; // of pass k: number k mod gradients
  runtime::Vector<T> of_other_end_; // [table], on the first and the last stage of a table that both have
};

/// Add the messages of a forward pass, of a backward pass, and of sum_over_ends(), and the arrays of StageMessages, to `step`.
void plan_receive_input(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_send_output(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_receive_gradient(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_send_gradient(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_sum_over_ends(pmm::StepPlan& step, TransformerPlan const& plan);
void plan_stage_messages_arrays(pmm::StepPlan& step, TransformerPlan const& plan);

extern template class StageMessages<float>;
extern template class StageMessages<double>;

} // namespace orthant::models

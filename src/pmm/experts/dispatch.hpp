#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sends rows to the owners of the groups (experts) that they chose, and back: linear maps and their adjoints. Choice (i, k) of
// row i is sent as row c of S, and arrives as row r of Y; w_ik is the weight of the choice, or 1:
//
//   send        Y_r := w_ik X_i                 all_to_all over owners, all_gather over copies
//   give_back   S_c := sum over copies of Y_r   reduce_scatter over copies, all_to_all over owners
//   combine     X_i := sum_k w_ik S_c           all_gather over copies
//
//   adjoint of send       give_back, then combine (Y is then partial over copies: every rank has an addend)
//   adjoint of combine    send with the same weights; gradient of the weights   dw_ik := S_c . dX_i   (dot)
//
// A product whose sum runs over copies leaves Y partial over copies. The reduce_scatter of give_back() replaces an
// all_reduce of all rows, after which each rank would keep only its part.
//
// Source: Singh et al., DeepSpeed-TED (arXiv 2303.06318), sections 4 and 5.

#include "pmm/experts/dispatch_lists.hpp"
#include "pmm/product/block_collectives.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/arrays/views.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace orthant::pmm {

/// Message buffers, which dispatches that do not overlap in time may share.
template<class T>
struct DispatchBuffers {
  /// True if messages overlap with other work between start_send() and finish_send(). If empty, can_hide_messages() of the
  /// owners decides. Results have the same bits in both cases.
  std::optional<bool> travels_behind_work;
  runtime::GrowingVector<T> sent{"orthant::pmm::Dispatch/sent"};
  runtime::GrowingVector<T> received{"orthant::pmm::Dispatch/received"};
};

template<class T>
class Dispatch {
 public:
  /// `grid` must outlive this object. Throws Error unless the number of owners divides num_groups. Not collective.
  Dispatch(ProcessGrid const& grid, DispatchAxes const& axes, std::int64_t num_groups,
           std::shared_ptr<DispatchBuffers<T>> buffers);

  /// Makes the lists of a step from the groups of all rows (DispatchLists::set()). Work enqueued before must be complete.
  /// Collective over owners and copies.
  void set_groups(std::span<std::int32_t const> groups, std::int64_t num_choices);
  [[nodiscard]] DispatchLists const& lists() const { return lists_; }
  [[nodiscard]] DispatchSizes const& sizes() const { return lists_.sizes(); }

  /// Y := w X, sent to the owners of the groups. `weights` [rows x choices] may be empty, which means 1. X is [rows x columns], Y
  /// [num_arrived x columns]. send(), give_back() and combine() are collective over owners and copies; all ranks call in the same
  /// order. All functions enqueue on exec, do not fence, and add their passes to the grid's ledger.
  void send(runtime::DefaultExec const& exec, runtime::Matrix<T> const& x, runtime::Vector<T> const& weights,
            runtime::Matrix<T> const& y) {
    start_send(exec, x, weights, y);
    finish_send(exec, y);
  }
  /// send() in two parts. Between them the messages to the owners may be in flight; Y and the buffers must not be used until
  /// finish_send().
  void start_send(runtime::DefaultExec const& exec, runtime::Matrix<T> const& x,
                  runtime::Vector<T> const& weights, runtime::Matrix<T> const& y);
  void finish_send(runtime::DefaultExec const& exec, runtime::Matrix<T> const& y);
  /// S [num_sent x columns] := the rows of Y, summed over copies. If travels() is false, S may be the memory of Y; then nothing is
  /// done, because both have the same order.
  void give_back(runtime::DefaultExec const& exec, runtime::Matrix<T> const& y, runtime::Matrix<T> const& s);
  /// X_i := sum_k w_ik S_c, which is 0 if row i was not sent. With Update::add the sums are added to X, which must be equal on all
  /// ranks along copies. The result has the same bits on all these ranks.
  void combine(runtime::DefaultExec const& exec, runtime::Matrix<T> const& s,
               runtime::Vector<T> const& weights, runtime::Matrix<T> const& x,
               Update update = Update::assign);
  /// products [rows x choices] := S_c . X_i over this rank's columns for its own rows, 0 for other rows. The caller must sum them
  /// over copies and over the axes of the columns. Not collective.
  void dot(runtime::DefaultExec const& exec, runtime::Matrix<T> const& s, runtime::Matrix<T> const& x,
           runtime::Vector<T> const& products) const;

 private:
  ProcessGrid const& grid_;
  DispatchLists lists_;
  std::shared_ptr<DispatchBuffers<T>> buffers_;
  runtime::GrowingVector<std::int64_t> sent_choices_{"orthant::pmm::Dispatch/sent_choices"};
  runtime::GrowingVector<std::int64_t> places_{"orthant::pmm::Dispatch/places"};
  runtime::GrowingVector<std::int64_t> arrivals_{"orthant::pmm::Dispatch/arrivals"};
  runtime::Vector<std::int64_t> sent_choice_, place_, arrival_; // the lists of the current step
  std::vector<std::int64_t> sent_numbers_, received_numbers_;   // elements to and from each owner in flight
  runtime::Request under_way_;
};

/// Add the passes and collectives of the functions of the same name to `step`, for rows of `columns` columns on this rank.
void plan_send(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes, std::int64_t columns,
               bool has_weights);
void plan_start_send(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                     std::int64_t columns, bool has_weights);
void plan_finish_send(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                      std::int64_t columns);
void plan_give_back(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                    std::int64_t columns);
void plan_combine(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes, std::int64_t columns,
                  bool has_weights, Update update = Update::assign);
void plan_dot(StepPlan& step, DispatchSizes const& sizes, std::int64_t columns);
/// Add the arrays of a Dispatch, and of its DispatchBuffers, to `step`.
void plan_dispatch_arrays(StepPlan& step, DispatchSizes const& sizes);
void plan_dispatch_buffers(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                           std::int64_t columns);

extern template class Dispatch<float>;
extern template class Dispatch<double>;

} // namespace orthant::pmm

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Rows to the owners of the groups that want them, and back: two linear maps and their adjoints. Choice (i, k) of row i is
// sent as row c of S, and arrives as row r of Y; w are weights of the choices, or 1:
//
//   send        Y_r := w_ik X_i                 all_to_all over owners, all_gather over copies
//   return      S_c := sum over copies of Y_r   reduce_scatter over copies, all_to_all over owners
//   combine     X_i := sum_k w_ik S_c           all_gather over copies
//
//   adjoint of send       return, then combine (Y is then partial over copies: every rank has an addend)
//   adjoint of combine    send with the same weights; and by the weights   dw_ik := S_c . dX_i   (dot)
//
// Rows of Y that are partial over copies are what a product leaves whose sum runs over copies: its reduce_scatter takes the
// place of an all_reduce of all rows, of which each rank would then drop all but its part.
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

/// Messages, which dispatches that do not overlap in time share.
template<class T>
struct DispatchBuffers {
  /// Whether rows travel behind other work between start_send() and finish_send(); by default if messages between owners can be hidden. The
  /// results are the same to the bit.
  std::optional<bool> travels_behind_work;
  runtime::GrowingVector<T> sent{"orthant::pmm::Dispatch/sent"};
  runtime::GrowingVector<T> received{"orthant::pmm::Dispatch/received"};
};

template<class T>
class Dispatch {
 public:
  /// As DispatchLists. `grid` must outlive it.
  Dispatch(ProcessGrid const& grid, DispatchAxes const& axes, std::int64_t num_groups,
           std::shared_ptr<DispatchBuffers<T>> buffers);

  /// Where rows go from now on: DispatchLists::set(). What was enqueued before must have ended. Collective over owners and
  /// copies.
  void set_groups(std::span<std::int32_t const> groups, std::int64_t num_choices);
  [[nodiscard]] DispatchLists const& lists() const { return lists_; }
  [[nodiscard]] DispatchSizes const& sizes() const { return lists_.sizes(); }

  /// Y := the rows of X. `weights` [rows x choices], or empty: 1. X [rows x columns], Y [num_arrived x columns]. The functions
  /// here enqueue on exec, do not fence, count their passes, and are collective over owners and copies, in the same order on all
  /// of them.
  void send(runtime::DefaultExec const& exec, runtime::Matrix<T> const& x, runtime::Vector<T> const& weights,
            runtime::Matrix<T> const& y) {
    start_send(exec, x, weights, y);
    finish_send(exec, y);
  }
  /// The same in two parts, between which the rows are on their way to their owners. Y and the messages are lent until the second one.
  void start_send(runtime::DefaultExec const& exec, runtime::Matrix<T> const& x,
                  runtime::Vector<T> const& weights, runtime::Matrix<T> const& y);
  void finish_send(runtime::DefaultExec const& exec, runtime::Matrix<T> const& y);
  /// S := the rows of Y, which is partial over copies. S [num_sent x columns]; it may be Y's memory if nothing travels(), and then
  /// nothing is done, as lists have it.
  void give_back(runtime::DefaultExec const& exec, runtime::Matrix<T> const& y, runtime::Matrix<T> const& s);
  /// X := sums of the rows of S; 0 if a row was not sent. Or X := X + these, if X is the same on all ranks along copies. The same
  /// bits on all of them.
  void combine(runtime::DefaultExec const& exec, runtime::Matrix<T> const& s,
               runtime::Vector<T> const& weights, runtime::Matrix<T> const& x,
               Update update = Update::assign);
  /// products [rows x choices] := S_c . X_i of this rank's columns and own rows, 0 elsewhere: addends of a sum over copies and
  /// over the axes of the columns. Local.
  void dot(runtime::DefaultExec const& exec, runtime::Matrix<T> const& s, runtime::Matrix<T> const& x,
           runtime::Vector<T> const& products) const;

 private:
  ProcessGrid const& grid_;
  DispatchLists lists_;
  std::shared_ptr<DispatchBuffers<T>> buffers_;
  runtime::GrowingVector<std::int64_t> sent_choices_{"orthant::pmm::Dispatch/sent_choices"};
  runtime::GrowingVector<std::int64_t> places_{"orthant::pmm::Dispatch/places"};
  runtime::GrowingVector<std::int64_t> arrivals_{"orthant::pmm::Dispatch/arrivals"};
  runtime::Vector<std::int64_t> sent_choice_, place_, arrival_; // of this step
  std::vector<std::int64_t> sent_numbers_, received_numbers_; // to and from each owner, of what is on its way
  runtime::Request under_way_;
};

/// List what the functions do with rows of that many columns on this rank.
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
/// Lists the arrays of a Dispatch, and of buffers that it uses.
void plan_dispatch_arrays(StepPlan& step, DispatchSizes const& sizes);
void plan_dispatch_buffers(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                           std::int64_t columns);

extern template class Dispatch<float>;
extern template class Dispatch<double>;

} // namespace orthant::pmm

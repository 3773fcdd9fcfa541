#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// ReLU and dropout on host processors, and their backward pass (row_kernels_host.hpp): parameters of the mask, and parallel loops.
// Functions enqueue on exec and do not fence.

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>

namespace orthant::pmm::host_rows {

/// Makes the task drop each element with this probability p < 1 and multiply the others by 1 / (1 - p). row_keys [rows]. Column 0 of the
/// block is feature `first_column`.
template<class T>
void set_dropout(HostActivation<T>& task, double probability, runtime::RandomStream const& stream,
                 std::int64_t const* row_keys, std::int64_t first_column) {
  task.row_keys = row_keys;
  task.first_column = static_cast<std::uint64_t>(first_column);
  task.key = stream.key();
  task.threshold = static_cast<std::uint32_t>(runtime::bernoulli_threshold(probability));
  task.scale = static_cast<runtime::SumOf<T>>(1 / (1 - probability));
}

template<class T>
void activate_rows(runtime::DefaultExec const& exec, char const* label, std::int64_t num_rows,
                   HostActivation<T> const& task) {
  auto const kernel = best_row_kernels<T>().activate;
  for_each_part(exec, label, num_rows,
                [=](std::int64_t begin, std::int64_t end) { kernel(task, begin, end); });
}

template<class T>
void activate_columns_backward(runtime::DefaultExec const& exec, char const* label,
                               HostActivationBackward<T> const& task) {
  constexpr std::int64_t columns_apart = 16; // so that no two threads write to the same cache line of sums
  auto const kernel = best_row_kernels<T>().activate_backward;
  for_each_part(exec, label, (task.num_columns + columns_apart - 1) / columns_apart,
                [=](std::int64_t begin, std::int64_t end) {
                  kernel(task, begin * columns_apart, std::min(task.num_columns, end * columns_apart));
                });
}

} // namespace orthant::pmm::host_rows

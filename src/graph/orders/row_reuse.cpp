// SPDX-License-Identifier: Apache-2.0
#include "graph/orders/row_reuse.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace orthant::graph {
namespace {

constexpr std::int64_t entries_per_window = 4096;
constexpr std::int64_t most_entries = std::int64_t{1} << 21;

} // namespace

RowReuse::RowReuse(runtime::Communicator const& comm, std::int64_t num_vertices, std::int64_t num_entries)
    : comm_(comm),
      rows_per_window_(std::max<std::int64_t>(1, entries_per_window * num_vertices /
                                                     std::max(num_entries, entries_per_window))),
      window_step_((num_entries + most_entries - 1) / most_entries),
      outbox_(comm.size(), 2 * records_per_round(comm)) {}

void RowReuse::add(std::int64_t row, std::int64_t column) {
  auto const window = row / rows_per_window_;
  if (window % window_step_ == 0)
    outbox_.push(static_cast<int>(window / window_step_ % comm_.size()), {window, column});
}

void RowReuse::deliver() {
  bool ignored = false;
  auto const arrived = outbox_.deliver(comm_, ignored);
  entries_.insert(entries_.end(), arrived.begin(), arrived.end());
}

double RowReuse::finish() {
  auto const num_entries = static_cast<std::int64_t>(entries_.size());
  std::ranges::sort(entries_);
  auto const repeats = std::ranges::unique(entries_);
  std::array counts{num_entries, num_entries - static_cast<std::int64_t>(repeats.size())};
  runtime::all_reduce(runtime::host, comm_, std::span(counts));
  return counts[0] == 0 ? 0 : static_cast<double>(counts[1]) / static_cast<double>(counts[0]);
}

} // namespace orthant::graph

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How near the rows are that a sparse product gathers, under one order of the vertices. A core that multiplies rows of A
// in their order finds a row of the operand in its cache if it gathered that row a little earlier. So A's rows are cut into
// windows of about 4,096 non-zeros (128 numbers of each row are 2 MiB), and
//
//   fresh share  =  distinct columns of all windows  /  non-zeros of all windows
//
// On a mesh in the order of the ids it is 0.33, on a road network 0.60, in a random order nearly 1 on both. Where a graph has more
// than 2^21 non-zeros, only every s-th window is looked at. Columns may be numbered in any order.

#include "graph/exchange.hpp"
#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <vector>

namespace orthant::graph {

class RowReuse {
 public:
  RowReuse(runtime::Communicator const& comm, std::int64_t num_vertices, std::int64_t num_entries);

  /// Counts an entry; each one on one rank. Local.
  void add(std::int64_t row, std::int64_t column);
  /// Sends what was added since the last call where its window is. Collective.
  void deliver();
  /// The fresh share, over the entries of all ranks; 0 if there are none. Collective; once, after deliver().
  [[nodiscard]] double finish();

 private:
  struct Entry {
    std::int64_t window;
    std::int64_t column;
    auto operator<=>(Entry const&) const = default;
  };

  runtime::Communicator const& comm_;
  std::int64_t rows_per_window_;
  std::int64_t window_step_; // every so-many-th window
  Outbox<Entry> outbox_;
  std::vector<Entry> entries_; // of this rank's windows
};

} // namespace orthant::graph

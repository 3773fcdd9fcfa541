#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reports progress of the steps of partition() on rank 0 and measures their time.

#include "graph/partition/edge_store.hpp"
#include "graph/partition/partition.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/communicator.hpp"

#include <functional>
#include <mpi.h>
#include <string>
#include <utility>

namespace orthant::graph {

class Steps {
 public:
  Steps(runtime::Communicator const& comm, PartitionOptions const& options)
      : comm_(comm),
        on_progress_(comm.is_root() ? options.on_progress : nullptr) {}

  void begin(std::string step) {
    step_ = std::move(step);
    report(0);
  }
  void report(double fraction) const {
    if (on_progress_) on_progress_(step_, fraction);
  }
  [[nodiscard]] StepProgress reporter() const {
    return [this](double fraction) { report(fraction); };
  }
  /// Seconds since the last lap on the slowest rank. Collective.
  [[nodiscard]] double lap() {
    auto const now = MPI_Wtime();
    auto const seconds =
        runtime::all_reduced(comm_, now - std::exchange(since_, now), runtime::Reduction::max);
    report(1);
    return seconds;
  }

 private:
  runtime::Communicator const& comm_;
  std::function<void(std::string const&, double)> on_progress_;
  std::string step_;
  double since_ = MPI_Wtime();
};

} // namespace orthant::graph

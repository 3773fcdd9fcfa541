#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --stragglers: ranks that make the others wait. The last rank to arrive at a collective waits least in it, so the lateness of a rank follows
// from the seconds in collectives, which the ledgers measure in any case:
//
//   late_r  =  median over ranks of the seconds in collectives  -  the seconds of rank r in collectives        per epoch, or step
//
// One all_gather of a number per epoch collects them. Times of messages count, too: a rank behind a slow link waits longer, and the others
// appear late by the same amount.

#include "cli/options/command.hpp"
#include "pmm/grid/process_grid.hpp"

#include <string>
#include <vector>

namespace orthant::cli {

/// `unit`: "epoch" or "step".
void add_stragglers_option(Command& command, bool& stragglers, std::string const& unit);

class Stragglers {
 public:
  /// Unless `is_on`, the functions do nothing. Nor do they, after a warning, if there is one rank, or if a device runs collectives in its
  /// queue: the host does not see their times.
  Stragglers(Context& context, pmm::ProcessGrid const& grid, bool is_on, std::string unit);

  /// Adds the training part of an epoch. The first epoch, which allocates memory and fills caches, counts only if no other follows.
  /// Collective over the grid's world.
  void add(runtime::EpochRecord const& epoch);
  /// Prints the latest ranks with their nodes, and writes them to the metrics. Collective over the grid's world.
  void report();

 private:
  /// Of a rank, over the epochs that count.
  struct Lateness {
    int rank = 0;
    double sum_seconds = 0;
    double most_seconds = 0; // in one epoch
  };

  Context& context_;
  pmm::ProcessGrid const& grid_;
  bool is_on_;
  bool has_warmed_up_ = false;
  std::string unit_;
  double seconds_ = 0; // of the epochs that count
  std::int64_t num_epochs_ = 0;
  std::vector<Lateness> late_; // [ranks]
};

} // namespace orthant::cli

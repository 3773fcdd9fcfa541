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
  /// Unless `is_on`, the functions do nothing. Warns if there is one rank, and if a device runs the collectives in its queue: the host does
  /// not see their times.
  Stragglers(Context& context, pmm::ProcessGrid const& grid, bool is_on, std::string unit);

  /// Collects the waits since the last call or the constructor. `seconds`: time of the epoch. Collective over the grid's world.
  void add_epoch(double seconds);
  /// Prints the latest ranks with their nodes, and writes all to the metrics. Collective over the grid's world.
  void report();

 private:
  [[nodiscard]] double waited() const;

  Context& context_;
  pmm::ProcessGrid const& grid_;
  bool is_on_;
  std::string unit_;
  double waited_before_ = 0;
  double seconds_ = 0;                     // of all epochs
  std::vector<std::vector<double>> waits_; // [epochs][ranks]
};

} // namespace orthant::cli

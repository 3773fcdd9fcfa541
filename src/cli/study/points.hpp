#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The points of a study: one training each. A point's key names its files. It ends in a checksum of all of its settings, so a point
// whose settings change is another point, and results of the old one do not count for it.

#include "cli/study/study_file.hpp"

namespace orthant::cli {

struct StudyPoint {
  std::string key;
  std::string experiment;
  bool is_weak = false;
  std::string curve; // what all points of a curve share, in words; unique within the experiment
  std::string command;
  std::string data; // graph, data set, generated graph or tokens
  std::string mode, schedule, grid;
  std::int64_t ranks = 1;
  std::int64_t repeat = 1;
  std::vector<std::string> arguments;  // of the program, without --metrics
  std::string generated;               // store that is made first; empty: none
  std::vector<std::string> generation; // arguments of the program that make it
};

/// In the order of the file. Throws UserError if a list of grids has none for a number of ranks, or two points have equal settings.
[[nodiscard]] std::vector<StudyPoint> points_of(Study const& study);

} // namespace orthant::cli

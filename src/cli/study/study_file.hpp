#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The study file, which says which trainings to time, on how many ranks and how to start them, and the points that it defines. TOML:
//
//   name = "products"          name of the study
//   folder = "products.study"  folder of points, logs, results and report, relative to the file
//   [jobs]                     how points are started (StudyJobs)
//   [[strong]]                 strong scaling: one problem on growing numbers of ranks (Experiment)
//   [[weak]]                   weak scaling: problems that grow with the number of ranks
//
// A point is one training. Its key names its files and ends in a checksum of all of its settings: if a setting changes, this gives a new
// point, for which results of the old one do not count.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

struct StudyJobs {
  std::string machine = "generic";  // template of the batch jobs: built-in name, or a script
  std::string predict;              // machine of predicted seconds, as in `plan --machine`; empty: none
  std::string emulate;              // machine to emulate (ORTHANT_EMULATE); empty: none
  std::string launcher;             // command before the number of ranks; empty: set by the template
  std::string program;              // empty: the running program
  std::vector<std::string> options; // of sbatch or flux batch
  std::int64_t ranks_per_node = 1;
};

/// One table [[strong]] or [[weak]]: every combination of its lists, `repeats` times.
struct Experiment {
  bool is_weak = false;
  std::string name;
  std::string command = "train"; // or "train-lm"
  std::vector<std::int64_t> ranks;
  std::vector<std::string> grids{"auto"}; // P: ranks / product of the other axes: "1xPx1x1"
  std::vector<std::string> schedules{"auto"};
  std::vector<std::string> modes{"full"};
  std::vector<std::string> graphs; // stores, or data sets such as "rmat:vertices=1000"
  std::string tokens;              // for train-lm
  std::int64_t repeats = 1;
  std::string options;      // options of every training
  std::string rows_options; // more options with --schedule rows, such as --gather all

  // Weak scaling of graph networks: `partition --generate` makes graphs in proportion to the ranks.
  std::string generate; // "rmat" or "sbm"
  std::int64_t vertices_per_rank = 0;
  std::int64_t edges_per_rank = 0;
  std::int64_t features = 64;
  std::int64_t classes = 8;
  std::int64_t sequences_per_rank = 0; // weak scaling of language models: global batch / ranks
};

struct Study {
  std::filesystem::path file; // absolute
  std::string name;
  std::filesystem::path folder; // absolute
  StudyJobs jobs;
  std::vector<Experiment> experiments;

  /// Paths in the file are relative to its own folder.
  [[nodiscard]] std::filesystem::path home() const { return file.parent_path(); }
};

/// Reads a study from `text`. Throws UserError, which names the file and the line or key, if it is not valid.
[[nodiscard]] Study parse_study(std::string_view text, std::filesystem::path const& file);
/// Reads a study from a file. Throws UserError if the file cannot be read or is not valid.
[[nodiscard]] Study read_study(std::filesystem::path const& file);

/// Commented example of a study file, for `study init`.
[[nodiscard]] std::string example_study(std::string_view name, std::string_view machine);

struct StudyPoint {
  std::string key;
  std::string experiment;
  bool is_weak = false;
  std::string curve; // settings that all points of a curve share, in words; unique in the experiment
  std::string command;
  std::string data; // graph, data set, generated graph or tokens
  std::string mode, schedule, grid;
  std::int64_t ranks = 1;
  std::int64_t repeat = 1;
  std::vector<std::string> arguments;  // arguments of the program, without --metrics
  std::string generated;               // store to generate first; empty: none
  std::vector<std::string> generation; // arguments of the program that generates it
};

/// Points of the study, in the order of the file. Throws UserError if no grid of a list fits one of the numbers of ranks, or if two
/// points have equal settings.
[[nodiscard]] std::vector<StudyPoint> points_of(Study const& study);

} // namespace orthant::cli

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The machine-readable record of a run (docs/design.md, section 4), one JSON object per line:
//
//   {"event":"run", version, configuration, grid, ranks, backends, seed}
//   {"event":"epoch","epoch":1,"loss":..,"grad_norms":[..],"lr":..,"seconds":..,"comm_bytes":..,"sent_bytes":..,
//   "phases":{..}, scores}
//   {"event":"done", ..}
//
// Every line of a run with virtual seconds (observe/run_clock.hpp) has "clock":"virtual".
//
// Doubles are written with enough digits to read back the same bits. NaN and infinity, which JSON lacks, are written as null. A run that
// continues an earlier one appends its lines; each run begins with a "run" line. Each line is passed to the operating system at once, so
// that an aborted run keeps its lines.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/report/timer.hpp"

#include <cstdint>
#include <deque>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::runtime {

/// Record of one epoch.
struct EpochRecord {
  std::int64_t epoch = 0; // from 1
  double loss = 0;
  std::vector<double> grad_norms; // one per trained matrix
  double grad_norm = 0;           // of all gradients together, in the last step; not written to the file
  double learning_rate = 0;       // of the last step
  double seconds = 0;
  double call_seconds = 0;     // of this rank in collectives; not written to the file
  std::int64_t comm_bytes = 0; // sum over ranks of the ledgers' bytes
  std::int64_t sent_bytes = 0; // sum over ranks of the ledgers' sent bytes
  std::optional<double>
      wire_error; // 2-norm of what a sample of the encoded numbers has lost, relative to that of the numbers
  PhaseTimes phases;
  std::vector<std::pair<std::string, double>> scores; // by name; empty if the epoch was not evaluated

  /// Empty if there is no score of that name.
  [[nodiscard]] std::optional<double> score(std::string_view name) const;
};

/// JSON with the keys in the order of docs/design.md, section 4.
[[nodiscard]] nlohmann::ordered_json to_json(EpochRecord const& record);

/// Whether the existing lines of the file are kept or replaced.
enum class OlderMetrics : std::uint8_t { kept, replaced };

class MetricsWriter {
 public:
  /// A writer that writes nothing.
  MetricsWriter() = default;
  /// Rank 0 will write its lines to `path`, after the existing lines or in place of them; an empty path writes nothing. The file is created
  /// or emptied with the first line, so that a run that is refused before leaves it unchanged. Throws UserError on all ranks if the file
  /// cannot be opened, or contains anything but metrics. Collective.
  MetricsWriter(Communicator const& comm, std::string const& path, OlderMetrics older = OlderMetrics::kept);

  /// True on rank 0 of a writer with a path: other ranks need not build records.
  [[nodiscard]] bool is_on() const { return is_on_; }
  /// Empty if nothing is written.
  [[nodiscard]] std::string const& path() const { return path_; }

  /// Writes one line: {"event":event, fields..}. Does nothing unless is_on(). If the file system refuses (full, quota), a run that may have
  /// taken days continues: there is one warning, later lines are dropped, and close() throws.
  void write(std::string_view event, nlohmann::ordered_json const& fields);
  void write(EpochRecord const& record);

  /// Throws UserError on all ranks if a line is missing. Collective.
  void close(Communicator const& comm);

 private:
  void open();

  std::string path_;
  bool is_on_ = false;
  bool is_virtual_ = false;
  OlderMetrics older_ = OlderMetrics::kept;
  WritableFile file_;
  Log* log_ = nullptr;
  std::optional<std::string> failure_;
};

// Treatment of existing metrics before a training writes its own, so that no file has an epoch twice. A training that continues from a
// checkpoint repeats the epochs after it, if the earlier run had trained them: then their older records are removed. Metrics without a run
// of this training, such as those of a run that was killed before its first checkpoint, are renamed.

/// Removes the lines that a training wrote from `epoch` on from a file of metrics, if it exists. These lines are, in runs whose "run" line
/// has this "training": the records of these epochs, a "done" after them, and an incomplete last line. Other lines stay. The file is
/// replaced atomically by rank 0. Collective. Throws UserError if the file cannot be read or written.
void cut_metrics(Communicator const& comm, std::filesystem::path const& path, std::string const& training,
                 std::int64_t epoch);

/// Renames a file of metrics that has no run of this training (set_aside_if_any()). Returns the new name on rank 0; empty if the file
/// stays. Collective. Throws UserError if the file cannot be read or renamed.
[[nodiscard]] std::filesystem::path set_aside_other_metrics(Communicator const& comm,
                                                            std::filesystem::path const& path,
                                                            std::string const& training);

// The traces of all ranks in one file, on one time axis.

/// Writes all ranks' records (except those of its own communication) to `path` as JSON, rank after rank, through rank 0. Collective. Throws
/// UserError on all ranks if the file cannot be written.
void write_trace(Communicator const& comm, Trace const& trace, std::string const& path);
/// Writes timelines that are equal on all ranks of `comm`, such as simulated ones: traces[r] is the timeline of rank r. Their times have a
/// common origin. Collective. Throws UserError on all ranks if the file cannot be written.
void write_timelines(Communicator const& comm, std::deque<Trace> const& traces, std::string const& path);

} // namespace orthant::runtime

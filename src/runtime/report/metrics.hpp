#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The machine-readable record of a run (docs/design.md, section 4), one JSON object a line:
//
//   {"event":"run", version, configuration, grid, ranks, backends, seed}
//   {"event":"epoch","epoch":1,"loss":..,"grad_norms":[..],"lr":..,"seconds":..,"comm_bytes":..,"sent_bytes":..,
//   "phases":{..}, scores}
//   {"event":"done", ..}
//
// Every line of a run whose seconds are virtual (observe/run_clock.hpp) has "clock":"virtual".
//
// Doubles are written with as many digits as reading them back to the bit needs; NaN and infinity, which JSON
// lacks, as null. A run that goes on with an earlier one adds its lines behind those of that one; each begins with
// its "run". Each line is handed to the operating system at once, so an aborted run keeps what it
// wrote.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/report/timer.hpp"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::runtime {

/// One epoch.
struct EpochRecord {
  std::int64_t epoch = 0; // from 1
  double loss = 0;
  std::vector<double> grad_norms; // one per matrix that is trained
  double grad_norm = 0;           // of all gradients together, in the last step; not written
  double learning_rate = 0;       // of the last step
  double seconds = 0;
  std::int64_t comm_bytes = 0; // sum over ranks of the ledgers' bytes
  std::int64_t sent_bytes = 0; // sum over ranks of the ledgers' sent bytes
  PhaseTimes phases;
  std::vector<std::pair<std::string, double>> scores; // by name; empty if the epoch was not evaluated

  /// None if there is no score of that name.
  [[nodiscard]] std::optional<double> score(std::string_view name) const;
};

/// In the order of docs/design.md, section 4.
[[nodiscard]] nlohmann::ordered_json to_json(EpochRecord const& record);

/// What becomes of the lines that a file has already.
enum class OlderMetrics : std::uint8_t { kept, replaced };

class MetricsWriter {
 public:
  /// Writes nothing.
  MetricsWriter() = default;
  /// Rank 0 will write its lines to `path`, in place of what is there or behind it; an empty path writes nothing.
  /// The file is made or emptied with the first line, so that a run that is refused before leaves it as it is.
  /// Throws UserError on all ranks if it cannot be opened, or is there and holds anything but metrics. Collective.
  MetricsWriter(Communicator const& comm, std::string const& path, OlderMetrics older = OlderMetrics::kept);

  /// True on rank 0 of a writer with a path: elsewhere nobody need put a record together.
  [[nodiscard]] bool is_on() const { return is_on_; }
  /// Empty if nothing is written.
  [[nodiscard]] std::string const& path() const { return path_; }

  /// One line: {"event":event, fields..}. Nothing where not on. A file system that refuses (full, quota) does
  /// not end a run that may have cost days: it is warned of once, later lines are left out, and close()
  /// fails.
  void write(std::string_view event, nlohmann::ordered_json const& fields);
  void write(EpochRecord const& record);

  /// Throws UserError on all ranks where a line is missing. Collective.
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

// What a training does with the metrics that are there before it writes its own, so that no file has an epoch twice.
// One that goes on from a checkpoint writes the records of some epochs again, if it had come farther than the
// checkpoint: the older ones are taken out. Metrics without a run of this training, such as those of an attempt that was
// killed before its first checkpoint, get another name.

/// Removes from a file of metrics, if there is one, what a training wrote from `epoch` on: of its runs, which
/// are those whose "run" line has this "training", the records of these epochs, a "done" behind them, and a
/// last line that is not complete. Other lines stay as they are. The file is replaced at once, or not at all.
/// Rank 0 does it. Collective. Throws UserError if the file cannot be read or written.
void cut_metrics(Communicator const& comm, std::filesystem::path const& path, std::string const& training,
                 std::int64_t epoch);

/// Gives a file of metrics without a run of this training another name (set_aside_if_any()). Returns that name on
/// rank 0; empty if the file stays. Collective. Throws UserError if the file cannot be read or renamed.
[[nodiscard]] std::filesystem::path set_aside_other_metrics(Communicator const& comm,
                                                            std::filesystem::path const& path,
                                                            std::string const& training);

} // namespace orthant::runtime

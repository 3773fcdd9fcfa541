#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Timeline of one run in the Chrome trace-event format (chrome://tracing, Perfetto): one process a rank, one
// lane for regions and one for collectives. Off until `start`; while off, a record costs one branch.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

class Communicator;

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins recording. `capacity` records are kept (reserved now: no allocation while recording); later ones
  /// are counted as dropped.
  void start(std::size_t capacity = std::size_t{1} << 20);
  [[nodiscard]] bool is_on() const { return is_on_; }

  /// Adds a finished region (`bytes` < 0) or collective. `name` and `lane` must live as long as the trace.
  void add(std::string_view name, std::string_view lane, Clock::time_point begin, Clock::time_point end,
           std::int64_t bytes = -1);

  /// Gathers all ranks' records on rank 0 and writes them as JSON to `path`. Collective.
  /// Throws UserError where the file cannot be written.
  void write(Communicator const& comm, std::string const& path) const;

 private:
  struct Record {
    std::string_view name;
    std::string_view lane;
    std::int64_t begin_ns;
    std::int64_t duration_ns;
    std::int64_t bytes;
  };
  bool is_on_ = false;
  Clock::time_point origin_{};
  std::vector<Record> records_;
  std::int64_t num_dropped_ = 0;
};

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/trace_file.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <limits>
#include <optional>
#include <utility>

namespace orthant::runtime {

namespace {

/// The file, on rank 0. A failure is reported at the end, so that the other ranks do not hang.
class TraceFile {
 public:
  TraceFile(Communicator const& comm, std::string const& path) : comm_(comm) {
    attempt([&] {
      staged_ = StagedFile(path, "trace");
      staged_.file().append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    });
  }
  void append(std::string_view text) {
    attempt([&] { staged_.file().append(text); });
  }
  /// Collective.
  void publish() {
    attempt([&] {
      staged_.file().append("\n]}\n");
      staged_.publish();
    });
    together(comm_, [&] {
      if (failure_) throw *failure_;
    });
  }

 private:
  template<class Action>
  void attempt(Action&& action) {
    if (failure_ || !comm_.is_root()) return;
    try {
      action();
    } catch (UserError const& error) {
      failure_ = error;
    }
  }

  Communicator const& comm_;
  std::optional<UserError> failure_;
  StagedFile staged_;
};

} // namespace

void write_trace(Communicator const& comm, Trace const& trace, std::string const& path) {
  auto const recorded = trace.num_records();
  // Time zero is the start of the first rank.
  constexpr auto off = std::numeric_limits<std::int64_t>::max();
  auto const zero = all_reduced(comm, trace.is_on() ? trace.origin_of_system_ns() : off, Reduction::min);
  auto mine = together(comm, [&] {
    return trace.events_of(comm.rank(), recorded, trace.is_on() ? trace.origin_of_system_ns() - zero : 0);
  });
  if (!comm.is_root()) mine.insert(0, ",\n");

  TraceFile file(comm, path);
  gather_text(comm, std::move(mine), [&](std::string_view piece) { file.append(piece); });
  file.publish();
}

void write_timelines(Communicator const& comm, std::deque<Trace> const& traces, std::string const& path) {
  TraceFile file(comm, path);
  auto rank = 0;
  for (auto const& trace : traces) {
    if (rank > 0) file.append(",\n");
    file.append(trace.events_of(rank++, trace.num_records(), 0));
  }
  file.publish();
}

} // namespace orthant::runtime

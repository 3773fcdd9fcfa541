// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/trace_file.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/text_exchange.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <limits>
#include <optional>
#include <utility>

namespace orthant::runtime {

void write_trace(Communicator const& comm, Trace const& trace, std::string const& path) {
  auto const recorded = trace.num_records();
  // Time zero is the first rank's start.
  constexpr auto off = std::numeric_limits<std::int64_t>::max();
  auto const zero = all_reduced(comm, trace.is_on() ? trace.origin_of_system_ns() : off, Reduction::min);
  auto mine = together(comm, [&] {
    return trace.events_of(comm.rank(), recorded, trace.is_on() ? trace.origin_of_system_ns() - zero : 0);
  });
  if (!comm.is_root()) mine.insert(0, ",\n");

  std::optional<UserError> failure; // told after all texts are gathered: the other ranks must not hang
  StagedFile staged;                // on rank 0
  auto const attempt = [&](auto&& action) {
    if (failure || !comm.is_root()) return;
    try {
      action();
    } catch (UserError const& error) {
      failure = error;
    }
  };
  attempt([&] {
    staged = StagedFile(path, "trace");
    staged.file().append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  });
  gather_text(comm, std::move(mine),
              [&](std::string_view piece) { attempt([&] { staged.file().append(piece); }); });
  attempt([&] {
    staged.file().append("\n]}\n");
    staged.publish();
  });
  together(comm, [&] {
    if (failure) throw *failure;
  });
}

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/emulation.hpp"

#include <utility>

namespace orthant::pmm {

runtime::EmulatedMachine emulation_of(Machine const& machine, std::string name, int job_ranks) {
  runtime::EmulatedMachine emulated;
  emulated.name = std::move(name);
  emulated.ranks_per_node = machine.ranks_per_node;
  emulated.seconds_per_processor_second = machine.seconds_per_processor_second;
  emulated.overlap = machine.collectives.overlap;
  emulated.call_seconds = [machine, job_ranks](runtime::EmulatedCall const& call) {
    // Groups number their ranks in nested order, so the first two are neighbors on the fastest axis.
    GroupSpan const span{static_cast<int>(call.ranks.size()), call.ranks[1] - call.ranks[0]};
    return call_seconds(machine, {call.operation, "", span, call.bytes, call.sent_bytes}, job_ranks);
  };
  return emulated;
}

} // namespace orthant::pmm

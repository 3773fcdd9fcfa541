// SPDX-License-Identifier: Apache-2.0
//
// A machine file, and the seconds that its constants give: whatever they are, they are numbers and not negative.

#include "pmm/cost/machine_file.hpp"
#include "fuzz/fuzz_target.hpp"

#include <array>
#include <cmath>

namespace {

void require_seconds(double seconds) {
  if (std::isnan(seconds) || seconds < 0) __builtin_trap();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  using runtime::Operation;
  return fuzz::accept_or_refuse([&] {
    auto const machine = pmm::parse_machine(fuzz::text_of(data, size), "machine.toml");
    for (auto const width : {1, 3, 64, 1 << 20}) {
      require_seconds(machine.sparse.per_nonzero.at(width));
      require_seconds(machine.sparse.per_row.at(width));
      require_seconds(machine.dense.narrow.at(width));
    }
    constexpr int job_ranks = 64;
    for (auto const operation : {Operation::all_reduce, Operation::all_gather, Operation::all_to_all})
      for (auto const span : {pmm::GroupSpan{2, 1}, pmm::GroupSpan{8, 8}, pmm::GroupSpan{64, 1}})
        require_seconds(call_seconds(machine, {operation, "x", span, 1 << 20, 1 << 19}, job_ranks));
  });
}

// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/archive_check.hpp"

#include "graph/arrays/zip_member.hpp"
#include "graph/crc32.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <zlib.h>

namespace orthant::graph {

namespace {

std::uint32_t check_sum_of(runtime::ByteSource& bytes, runtime::Range range) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(most, range.size())));
  std::uint32_t sum = 0;
  for (auto offset = range.begin; offset < range.end; offset += most) {
    auto const part = std::span(piece).first(static_cast<std::size_t>(std::min(most, range.end - offset)));
    bytes.read(offset, part);
    sum = crc32_of(part, sum);
  }
  return sum;
}

} // namespace

void check_stored_members(runtime::Communicator const& comm, std::vector<ArchiveMember> const& members) {
  for (auto const& [archive, name] : members) {
    std::optional<std::uint32_t> expected;
    std::array<std::int64_t, 2> mine{}; // check sum and length of this rank's part
    runtime::together(comm, [&] {
      expected = stored_check_sum(archive, name);
      if (!expected) return;
      auto const bytes = open_zip_member(archive, name);
      auto const range = runtime::balanced_range(bytes->size(), comm.size(), comm.rank());
      mine = {check_sum_of(*bytes, range), range.size()};
    });
    if (!expected) continue;

    std::vector<std::int64_t> parts(2 * static_cast<std::size_t>(comm.size()));
    runtime::all_gather(runtime::host, comm, std::span<std::int64_t const>(mine), std::span(parts));
    uLong sum = 0;
    for (std::size_t i = 0; i < parts.size(); i += 2)
      sum = crc32_combine(sum, static_cast<uLong>(parts[i]), static_cast<z_off_t>(parts[i + 1]));
    if (sum != *expected)
      runtime::throw_user("{}({}): the check sum is {:08x}, but the archive says {:08x} (damaged?)",
                          archive.string(), name, sum, *expected);
  }
}

} // namespace orthant::graph

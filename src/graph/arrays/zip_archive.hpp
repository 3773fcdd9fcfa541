#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Members of a zip archive (.npz) through libzip. numpy.savez stores members as they are: those are read at
// any offset. savez_compressed deflates them: those are read in order, and going back starts again.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

/// Names of all members. Throws UserError if the archive cannot be read, holds a name twice, or says
/// different things of a member in its directory and at the member.
[[nodiscard]] std::vector<std::string> list_zip_members(std::filesystem::path const& archive);

/// Throws UserError as above, and if the member is missing (it lists what there is) or claims to be larger
/// than the archive can hold. A deflated member whose bytes do not match its check sum fails when its last
/// byte is read.
[[nodiscard]] std::unique_ptr<runtime::ByteSource> open_zip_member(std::filesystem::path const& archive,
                                                                   std::string const& member);

/// The CRC-32 of a member that is stored as it is; nothing for a deflated one.
[[nodiscard]] std::optional<std::uint32_t> stored_check_sum(std::filesystem::path const& archive,
                                                            std::string const& member);

// The check sums of an .npz archive. Members that are deflated are compared with theirs when they are
// inflated (zip_archive.hpp). Members that are stored are read by many ranks, in pieces and in no order: they
// are compared here, before they are used.

struct ArchiveMember {
  std::filesystem::path archive;
  std::string name;
};

/// Reads the stored ones among `members` once, each rank a part of the bytes. Throws UserError, the same on
/// all ranks, if one does not match its CRC-32. Collective; `members` is the same on all ranks.
void check_stored_members(runtime::Communicator const& comm, std::vector<ArchiveMember> const& members);

} // namespace orthant::graph

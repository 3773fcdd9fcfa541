#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads members of a zip archive (.npz) with libzip. numpy.savez stores members uncompressed: they can be read at any offset.
// savez_compressed deflates them: they are read in order, and reading at a smaller offset starts again from the beginning.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::graph {

/// Names of all members. Throws UserError if the archive cannot be read, has a name twice, or if its directory and a member's own header
/// differ.
[[nodiscard]] std::vector<std::string> list_zip_members(std::filesystem::path const& archive);

/// Opens a member. Throws UserError if list_zip_members() would, if the member is missing (the message lists all members), or if it claims
/// to be larger than the archive can hold. If a deflated member does not match its checksum, reading its last byte throws UserError.
[[nodiscard]] std::unique_ptr<runtime::ByteSource> open_zip_member(std::filesystem::path const& archive,
                                                                   std::string const& member);

/// The CRC-32 of an uncompressed member; empty for a deflated one.
[[nodiscard]] std::optional<std::uint32_t> stored_check_sum(std::filesystem::path const& archive,
                                                            std::string const& member);

// Checksums of an .npz archive. A deflated member is compared with its checksum when it is inflated. An uncompressed member is read by many
// ranks, in pieces and in any order, so that it is compared here, before it is used.

struct ArchiveMember {
  std::filesystem::path archive;
  std::string name;
};

/// Reads the uncompressed members among `members` once; each rank reads a part of the bytes. Throws UserError on all ranks if a member does
/// not match its CRC-32. Collective; `members` must be equal on all ranks.
void check_stored_members(runtime::Communicator const& comm, std::vector<ArchiveMember> const& members);

} // namespace orthant::graph

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The check sums of an .npz archive. Members that are deflated are compared with theirs when they are
// inflated (zip_member.hpp). Members that are stored are read by many ranks, in pieces and in no order: they
// are compared here, before they are used.

#include "runtime/comm/communicator.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace orthant::graph {

struct ArchiveMember {
  std::filesystem::path archive;
  std::string name;
};

/// Reads the stored ones among `members` once, each rank a part of the bytes. Throws UserError, the same on
/// all ranks, if one does not match its CRC-32. Collective; `members` is the same on all ranks.
void check_stored_members(runtime::Communicator const& comm, std::vector<ArchiveMember> const& members);

} // namespace orthant::graph

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options that name files, and the check that no output is one of the inputs. Made once for every command,
// before anything is read or written.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace orthant::cli {

struct FileOption {
  enum class Use : std::uint8_t { input, output };
  std::string name; // "--graph"
  Use use;
  std::string const* path; // empty: not given
};

/// Throws UserError, the same on all ranks, if an output is the file or folder that another option names: by
/// its name, or by device and inode, as through a link. An output in an input's folder must not be one of the
/// files that make up a graph, and likewise an input in an output's folder. Collective.
void require_distinct_files(runtime::Communicator const& comm, std::span<FileOption const> files);

} // namespace orthant::cli

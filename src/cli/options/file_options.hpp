#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options that name files, and the checks that no output is one of the inputs, and that none replaces an older
// file unasked. Made once for every command, before anything is read or written.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace orthant::cli {

struct FileOption {
  enum class Use : std::uint8_t { input, output, output_folder };
  std::string name; // "--graph"
  Use use;
  std::string const* path; // empty: not given
};

/// Throws UserError, the same on all ranks, if an output is the file or folder that another option names: by
/// its name, or by device and inode, as through a link. An output in an input's folder must not be one of the
/// files that make up a graph, and likewise an input in an output's folder. Collective.
void require_distinct_files(runtime::Communicator const& comm, std::span<FileOption const> files);

/// Throws UserError, the same on all ranks, if a file to be written is there already and is not empty. Folders
/// have rules of their own; devices and pipes are taken. Collective.
/// `may_replace`: asked on one rank whether they may be there all the same.
void require_new_files(runtime::Communicator const& comm, std::span<FileOption const> files,
                       std::function<bool()> const& may_replace);

} // namespace orthant::cli

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The folder that a graph is written to, file by file. The files are written to a temporary folder inside it
// and moved to their places when all are complete and on the disk, so a job that fails or is killed leaves
// the earlier graph, or none. Both graphs are on the disk for a while.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/files/temporary_path.hpp"
#include "runtime/files/writable_file.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace orthant::graph {

class OutputFolder {
 public:
  /// Makes `folder` and the temporary one inside it. Takes a folder that is empty or holds what an interrupted job
  /// has left, and one of a graph written by Orthant before (its meta.json says so) if `replaces_output`. Throws
  /// UserError, the same on all ranks, if another graph or anything else is there. Collective.
  OutputFolder(runtime::Communicator const& comm, std::filesystem::path folder, bool replaces_output);
  OutputFolder(OutputFolder const&) = delete;
  OutputFolder& operator=(OutputFolder const&) = delete;
  /// Removes the temporary folder unless it was published. Not collective.
  ~OutputFolder();

  /// Where the files are to be written.
  [[nodiscard]] std::filesystem::path const& path() const { return staging_->path(); }
  /// Makes a folder inside path(). Collective.
  void make_folder(std::filesystem::path const& name) const;
  /// Puts the files in the place of the earlier graph's. They must be on the disk already. Collective.
  void publish();

 private:
  void prepare(bool replaces_output);
  void move_files();

  runtime::Communicator const& comm_;
  std::filesystem::path folder_;
  bool is_made_here_ = false;
  runtime::detail::Descriptor in_use_; // holds a lock on the temporary folder, as WritableFile::mark_in_use
  std::unique_ptr<runtime::TemporaryPath> staging_;
};

/// meta.json, written last. `split_sizes`: of train, valid, test. Collective.
void write_meta(runtime::Communicator const& comm, std::filesystem::path const& folder,
                GraphFacts const& facts, std::int64_t num_edges, std::array<std::int64_t, 3> split_sizes);

/// Throws UserError if a job was interrupted while it moved the files of a graph into `folder`.
void require_complete_graph(std::filesystem::path const& folder);

/// What messages call a file: its place without the temporary folder.
[[nodiscard]] std::filesystem::path final_place(std::filesystem::path const& path);

} // namespace orthant::graph

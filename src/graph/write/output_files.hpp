#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Files that all ranks write in parallel: text in the order of the ranks, and .npy arrays.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/files/temporary_path.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// A text file with the lines of all ranks in the order of the ranks. Files named ".gz" are compressed; each rank's lines are a gzip member
/// of their own (gunzip, Python and the readers here accept several members). Each rank writes a part file in the same folder, and finish()
/// joins the parts. The owner of the folder must remove parts that were not joined.
class ParallelText {
 public:
  /// Opens this rank's part. Collective; throws UserError on all ranks if a part cannot be created.
  ParallelText(runtime::Communicator const& comm, std::filesystem::path path);
  ParallelText(ParallelText const&) = delete;
  ParallelText& operator=(ParallelText const&) = delete;
  ~ParallelText();

  /// Not collective.
  void append(std::string_view text);
  /// Joins the parts and returns when the file is on the disk. Collective.
  void finish();

 private:
  class Deflater;
  void flush();
  void join(std::int64_t begin, std::int64_t size);

  runtime::Communicator const& comm_;
  std::filesystem::path path_;
  std::filesystem::path part_path_;
  std::unique_ptr<Deflater> deflater_; // null for plain text
  runtime::WritableFile part_;
  std::string buffer_; // in the format of the file
  std::int64_t num_bytes_ = 0;
};

/// An array whose elements ranks may write in any order. `T` is int64, int32, int8 or float.
template<class T>
class ParallelArray {
 public:
  /// Creates the file with its full size and reserves the space. Collective; throws UserError on all ranks if that fails.
  ParallelArray(runtime::Communicator const& comm, std::filesystem::path path,
                std::vector<std::int64_t> const& shape);
  /// Not collective.
  void write(std::int64_t first, std::span<T const> values);
  /// Returns when the data are on the disk. Collective.
  void finish();

 private:
  runtime::Communicator const& comm_;
  runtime::WritableFile file_;
  std::int64_t header_bytes_ = 0;
};

/// This rank's place in a concatenation in the order of the ranks: it begins at `begin`, the sum of the counts of lower ranks; `total` is
/// the sum of all counts.
struct PlaceAmongRanks {
  std::int64_t begin = 0;
  std::int64_t total = 0;
};
/// Collective.
[[nodiscard]] PlaceAmongRanks place_after_earlier_ranks(runtime::Communicator const& comm,
                                                        std::int64_t count);

// The folder of a graph. The files are written to a temporary folder inside it and moved to their places when all are complete and on the
// disk, so that a job that fails or is killed leaves an earlier graph as it was. Both graphs are on the disk for some time.

class OutputFolder {
 public:
  /// Creates `folder` and the temporary folder inside it. The folder may be empty, may contain leftovers of an interrupted job, or, if
  /// `replaces_output`, a graph that Orthant wrote (as its meta.json says). Throws UserError on all ranks if it contains another graph or
  /// anything else. Collective.
  OutputFolder(runtime::Communicator const& comm, std::filesystem::path folder, bool replaces_output);
  OutputFolder(OutputFolder const&) = delete;
  OutputFolder& operator=(OutputFolder const&) = delete;
  /// Removes the temporary folder unless it was published. Not collective.
  ~OutputFolder();

  /// The folder in which the files must be written.
  [[nodiscard]] std::filesystem::path const& path() const { return staging_->path(); }
  /// Creates a folder inside path(). Collective.
  void make_folder(std::filesystem::path const& name) const;
  /// Replaces the files of the earlier graph. The new files must already be on the disk. Collective.
  void publish();

 private:
  void prepare(bool replaces_output);
  void move_files();

  runtime::Communicator const& comm_;
  std::filesystem::path folder_;
  bool is_made_here_ = false;
  runtime::detail::Descriptor in_use_; // lock on the temporary folder, as in WritableFile::mark_in_use
  std::unique_ptr<runtime::TemporaryPath> staging_;
};

/// Writes meta.json, which must be the last file. `split_sizes` are for train, valid, test. Collective.
void write_meta(runtime::Communicator const& comm, std::filesystem::path const& folder,
                GraphFacts const& facts, std::int64_t num_edges, std::array<std::int64_t, 3> split_sizes);

/// Throws UserError if a job was interrupted while it moved the files of a graph to `folder`.
void require_complete_graph(std::filesystem::path const& folder);

/// The final path of a file in the temporary folder, for messages.
[[nodiscard]] std::filesystem::path final_place(std::filesystem::path const& path);

} // namespace orthant::graph

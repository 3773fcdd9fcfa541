#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Files that all ranks write at once: text in the order of the ranks, and .npy arrays.

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

/// A text file, one rank's lines after the other's. ".gz" names are compressed, each rank's lines as a gzip
/// member of its own (gunzip, Python and the readers here take the members as one). Each rank writes a part
/// file beside it; finish() joins them. Of parts that are not joined the folder's owner disposes.
class ParallelText {
 public:
  /// Opens this rank's part. Collective; throws UserError, the same on all ranks, where one cannot be made.
  ParallelText(runtime::Communicator const& comm, std::filesystem::path path);
  ParallelText(ParallelText const&) = delete;
  ParallelText& operator=(ParallelText const&) = delete;
  ~ParallelText();

  /// Not collective.
  void append(std::string_view text);
  /// Joins the parts and returns when they are on the disk. Collective.
  void finish();

 private:
  class Deflater;
  void flush();
  void join(std::int64_t begin, std::int64_t size);

  runtime::Communicator const& comm_;
  std::filesystem::path path_;
  std::filesystem::path part_path_;
  std::unique_ptr<Deflater> deflater_; // none for plain text
  runtime::WritableFile part_;
  std::string buffer_; // as it goes to the file
  std::int64_t num_bytes_ = 0;
};

/// An array that ranks fill anywhere. `T` is int64, int32, int8 or float.
template<class T>
class ParallelArray {
 public:
  /// Makes the file at its full size and sets the space aside. Collective; throws UserError, the same on all
  /// ranks.
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

/// This rank's place when ranks lie one after the other: [sum of earlier counts, + count), and the sum of
/// all.
struct PlaceAmongRanks {
  std::int64_t begin = 0;
  std::int64_t total = 0;
};
/// Collective.
[[nodiscard]] PlaceAmongRanks place_after_earlier_ranks(runtime::Communicator const& comm,
                                                        std::int64_t count);

// The folder that a graph is written to, file by file. The files are written to a temporary folder inside it
// and moved to their places when all are complete and on the disk, so a job that fails or is killed leaves
// the earlier graph, or none. Both graphs are on the disk for a while.

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

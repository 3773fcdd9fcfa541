#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Files that all ranks write at once: text in the order of the ranks, and .npy arrays.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/writable_file.hpp"

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

} // namespace orthant::graph

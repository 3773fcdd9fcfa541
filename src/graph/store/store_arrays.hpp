#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads the plain arrays of an open store with their checksums, and checks that their values are in range: an index out of its array's
// bounds is found here.

#include "graph/store/store_file.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// Elements `wanted` of one row of an array (row 0 if it has one dimension). Every full chunk that is read is compared with its checksum. A
/// long range is extended to whole chunks, so that all of it is checked.
template<class T>
[[nodiscard]] std::vector<T> read_checked(StoreFile const& file, std::string const& name, std::int64_t row,
                                          Range wanted);

/// read_checked() of 32- or 64-bit integers. Throws UserError if a value is not in [low, high].
[[nodiscard]] std::vector<std::int64_t> read_integers(StoreFile const& file, std::string const& name,
                                                      Range wanted, std::int64_t low, std::int64_t high,
                                                      std::int64_t row = 0);

/// Names of a list that is stored as the arrays offsets and text of `group`, with '?' for control characters. Throws UserError if the list
/// is damaged.
[[nodiscard]] std::vector<std::string> read_names(StoreFile const& file, std::string const& group,
                                                  Range wanted);

/// Throws a UserError with the array's name if a value is not in [low, high]. `first` is the index of the first value in the array.
template<class T>
void require_between(StoreFile const& file, std::string const& name, std::span<T const> values,
                     std::int64_t first, T low, T high);

/// Throws UserError if a value is infinite or not a number.
template<class T>
void require_finite(StoreFile const& file, std::string const& name, std::span<T const> values,
                    std::int64_t first);

[[noreturn]] void report_wrong_checksum(StoreFile const& file, std::string const& name,
                                        std::string const& place);

/// Compares the checksums of one part of the array, whose chunks are distributed over `num_parts` parts.
void check_array_part(StoreFile const& file, std::string const& name, int part, int num_parts);
inline void check_whole_array(StoreFile const& file, std::string const& name) {
  check_array_part(file, name, 0, 1);
}

// Writes a graph store, which gets its name when it is complete (runtime/files/staged_file.hpp), so that a job that is killed at any time
// leaves an older file as it was. Every array has a CRC-32 for each 1,024 elements of each of its rows. Ranks write whole chunks, so that
// the checksums do not depend on the number of ranks.

/// Name of the array of checksums of `array`.
[[nodiscard]] std::string checksums_of(std::string const& array);

/// Throws UserError on all ranks if `output` exists and `replaces` is false, or if it cannot be written. Collective.
void require_output(runtime::Communicator const& comm, std::filesystem::path const& output, bool replaces);

class StoreWriter {
 public:
  /// Creates a new file that becomes `output` and replaces an existing one (see require_output()). Throws UserError if its folder cannot be
  /// written. Collective.
  StoreWriter(runtime::Communicator const& comm, std::filesystem::path const& output);
  /// Creates a store in this process's memory.
  explicit StoreWriter(runtime::Communicator const& self);

  [[nodiscard]] runtime::Communicator const& comm() const { return comm_; }

  /// Creates an array of one (elements) or two (rows, elements) dimensions with checksums. All ranks must make the same calls.
  void create_array(std::string const& name, runtime::Hdf5Type type,
                    runtime::Hdf5File::Extents const& extents);
  /// Creates an array without checksums, for arrays that have their own.
  void create_plain_array(std::string const& name, runtime::Hdf5Type type,
                          runtime::Hdf5File::Extents const& extents);
  /// Reserves the disk space of all arrays created so far. Throws UserError if there is too little. Collective.
  void reserve_space();

  /// Writes elements [begin, begin + data.size()) of row `row` (0 if there is one dimension). begin must be a multiple of 1,024; the end
  /// must be a multiple of 1,024 or the end of the row. Not collective.
  template<class T>
  void write(std::string const& name, std::int64_t row, std::int64_t begin, std::span<T const> data) {
    if (data.empty()) return;
    auto const has_rows = file_.extents(name).size() == 2;
    auto const length = static_cast<std::int64_t>(data.size());
    if (has_rows)
      file_.write(name, {row, begin}, {1, length}, data);
    else
      file_.write(name, {begin}, {length}, data);
    write_checksums(name, row, has_rows, begin, data.size(), std::as_bytes(data));
  }
  template<class T>
  void write_plain(std::string const& name, std::int64_t begin, std::span<T const> data) {
    file_.write(name, {begin}, {static_cast<std::int64_t>(data.size())}, data);
  }

  /// Writes the facts and gives the file its name. Returns its size in bytes. Collective.
  std::int64_t finish(StoreFacts const& facts);
  /// Writes the facts to a store in memory, which stays open.
  [[nodiscard]] runtime::Hdf5File finish_in_memory(StoreFacts const& facts);

 private:
  void write_checksums(std::string const& name, std::int64_t row, bool has_rows, std::int64_t begin,
                       std::size_t count, std::span<std::byte const> bytes);
  void write_facts(StoreFacts const& facts);

  runtime::Communicator const& comm_;
  runtime::Hdf5Output file_;
};

} // namespace orthant::graph

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Writes a graph store, which gets its name when it is complete (runtime/files/staged_file.hpp), so a job that is
// killed at any moment leaves the old file or none. Every array comes with the CRC-32 of each 1,024 elements
// of each of its rows; ranks write whole chunks, so that the checksums do not depend on their number.

#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace orthant::graph {

/// Where the checksums of an array are.
[[nodiscard]] std::string checksums_of(std::string const& array);

/// UserError, the same on all ranks, where `output` exists and `replaces` is false, or cannot be written.
/// Collective.
void require_output(runtime::Communicator const& comm, std::filesystem::path const& output, bool replaces);

class StoreWriter {
 public:
  /// A new file that becomes `output`, and replaces one that is there: see require_output(). UserError if its
  /// folder cannot be written. Collective.
  StoreWriter(runtime::Communicator const& comm, std::filesystem::path const& output);
  /// A store in this process's memory.
  explicit StoreWriter(runtime::Communicator const& self);

  [[nodiscard]] runtime::Communicator const& comm() const { return comm_; }

  /// One (elements) or two (rows, elements) dimensions, with checksums. To be called by all ranks alike.
  void create_array(std::string const& name, runtime::Hdf5Type type,
                    runtime::Hdf5File::Extents const& extents);
  /// Without checksums: for arrays that bring their own.
  void create_plain_array(std::string const& name, runtime::Hdf5Type type,
                          runtime::Hdf5File::Extents const& extents);
  /// Sets aside the disk space of all arrays made so far. UserError where there is not enough. Collective.
  void reserve_space();

  /// Elements [begin, begin + data.size()) of row `row` (0 where there is one dimension); begin is a multiple
  /// of 1,024, the end one too or the row's end. Not collective.
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

  /// Writes the facts and gives the file its name. Returns its size. Collective.
  std::int64_t finish(StoreFacts const& facts);
  /// The same for a store in memory, which stays open.
  [[nodiscard]] runtime::Hdf5File finish_in_memory(StoreFacts const& facts);

 private:
  void write_checksums(std::string const& name, std::int64_t row, bool has_rows, std::int64_t begin,
                       std::size_t count, std::span<std::byte const> bytes);
  void write_facts(StoreFacts const& facts);

  runtime::Communicator const& comm_;
  runtime::Hdf5Output file_;
};

} // namespace orthant::graph

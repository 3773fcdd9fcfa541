#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Writes a graph store under a temporary name and gives it its own name when it is complete, so a job that is
// killed at any moment leaves the old file or none. Every array comes with the CRC-32 of each 1,024 elements
// of each of its rows; ranks write whole chunks, so that the checksums do not depend on their number.

#include "graph/store_format.hpp"
#include "runtime/communicator.hpp"
#include "runtime/hdf5_file.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace orthant::graph {

/// CRC-32 (zlib's), continued from `crc`.
[[nodiscard]] std::uint32_t crc32_of(std::span<std::byte const> bytes, std::uint32_t crc = 0);

/// Where the checksums of an array are.
[[nodiscard]] std::string checksums_of(std::string const& array);

/// UserError, the same on all ranks, where `output` exists and `replaces` is false, or cannot be written.
/// Collective.
void require_output(runtime::Communicator const& comm, std::filesystem::path const& output, bool replaces);

class StoreWriter {
 public:
  /// A new file beside `output`. UserError where `output` exists and `replaces` is false, or where its folder
  /// cannot be written. Collective.
  StoreWriter(runtime::Communicator const& comm, std::filesystem::path output, bool replaces);
  /// A store in this process's memory.
  explicit StoreWriter(runtime::Communicator const& self);
  StoreWriter(StoreWriter const&) = delete;
  StoreWriter& operator=(StoreWriter const&) = delete;
  /// Removes the unfinished file.
  ~StoreWriter();

  [[nodiscard]] runtime::Communicator const& comm() const { return comm_; }

  /// One (elements) or two (rows, elements) dimensions, with checksums. Collective.
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
    write_row(
        name, row, begin, data.size(),
        [&](auto const& box_begin, auto const& box_counts) {
          file_.write(name, box_begin, box_counts, data);
        },
        std::as_bytes(data));
  }
  template<class T>
  void write_plain(std::string const& name, std::int64_t begin, std::span<T const> data) {
    file_.write(name, {begin}, {static_cast<std::int64_t>(data.size())}, data);
  }

  /// Writes the facts, closes and renames. Returns the file's size. Collective.
  std::int64_t finish(StoreFacts const& facts);
  /// The same for a store in memory, which stays open.
  [[nodiscard]] runtime::Hdf5File finish_in_memory(StoreFacts const& facts);

 private:
  template<class WriteBox>
  void write_row(std::string const& name, std::int64_t row, std::int64_t begin, std::size_t count,
                 WriteBox&& write_box, std::span<std::byte const> bytes);
  void write_checksums(std::string const& name, std::int64_t row, bool has_rows, std::int64_t begin,
                       std::size_t count, std::span<std::byte const> bytes);
  void write_facts(StoreFacts const& facts);

  runtime::Communicator const& comm_;
  std::filesystem::path output_; // empty: in memory
  std::filesystem::path partial_;
  runtime::Hdf5File file_;
};

template<class WriteBox>
void StoreWriter::write_row(std::string const& name, std::int64_t row, std::int64_t begin, std::size_t count,
                            WriteBox&& write_box, std::span<std::byte const> bytes) {
  if (count == 0) return;
  using Extents = runtime::Hdf5File::Extents;
  bool const has_rows = file_.extents(name).size() == 2;
  auto const length = static_cast<std::int64_t>(count);
  if (has_rows)
    write_box(Extents{row, begin}, Extents{1, length});
  else
    write_box(Extents{begin}, Extents{length});
  write_checksums(name, row, has_rows, begin, count, bytes);
}

} // namespace orthant::graph

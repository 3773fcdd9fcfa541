#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An HDF5 file of named, contiguous arrays that all ranks of a group write, or one in memory.
//
// HDF5 only lays the file out, in the memory of each rank and everywhere alike (hdf5_output.hpp): where an
// array lies is known without a word between ranks. Each rank writes its data to their place with pwrite,
// rank 0 writes the structure at the end, and the file gets its name when all of it is on the disk
// (staged_file.hpp). There is no collective HDF5 call, so a rank that fails, at whatever point, leaves no
// other one inside the library.

#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/staged_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orthant::runtime::detail {

// An HDF5 file driver that keeps what the library writes instead of writing it. The library lays out a file
// (superblock, groups, headers of arrays, attributes) and its caller writes that to the disk, with checks,
// retries and cleaning up of its own. So no failure of a disk ever happens inside HDF5, which cannot close a
// file that it could not write.

/// What HDF5 has written to one file. Data of arrays are in it only if they were written through HDF5.
struct Hdf5Recording {
  struct Write {
    std::int64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Write> writes;     // to be repeated in this order
  std::int64_t size = 0;         // of the whole file
  bool is_out_of_memory = false; // some writes are missing
};

/// Makes files that are created with the access properties `access` record into `recording`, which must
/// outlive them. Returns what H5Pset_driver does.
[[nodiscard]] int record_writes(std::int64_t access, Hdf5Recording& recording);

} // namespace orthant::runtime::detail

namespace orthant::runtime {

class Hdf5Output {
 public:
  using Extents = Hdf5File::Extents;

  /// A new file that becomes `path`. Collective; throws UserError on all ranks if it cannot be made.
  Hdf5Output(Communicator const& comm, std::filesystem::path const& path, std::string purpose);
  /// A file in this process's memory.
  explicit Hdf5Output(std::string name);
  Hdf5Output(Hdf5Output const&) = delete;
  Hdf5Output& operator=(Hdf5Output const&) = delete;

  /// Arrays and attributes must be made by all ranks in the same order and with the same arguments. These
  /// calls do not communicate.
  void create_array(std::string const& name, Hdf5Type type, Extents const& extents);
  template<class Value>
  void write_attribute(std::string const& owner, std::string const& name, Value const& value) {
    structure_.write_attribute(owner, name, value);
  }
  [[nodiscard]] Extents const& extents(std::string const& name) const { return place_of(name).extents; }

  /// Sets aside the disk space of all arrays made so far. UserError on all ranks if there is too little.
  /// Collective.
  void reserve_space();

  /// The box of `counts` elements from `begin`, row-major in `data`, whose type is the array's. Not
  /// collective; ranks must write disjoint boxes.
  template<class T>
  void write(std::string const& name, Extents const& begin, Extents const& counts, std::span<T const> data) {
    if (staged_.is_open())
      write_box(name, begin, counts, detail::hdf5_type_of<T>(), std::as_bytes(data));
    else
      structure_.write(name, begin, counts, data);
  }

  /// Writes the structure, and gives the file its name when all of it is on the disk. Returns its size in
  /// bytes. Collective; throws on all ranks if one of them fails.
  std::int64_t publish();

  /// What publish() does, in parts, for writers that agree among ranks by themselves. None of them
  /// communicates, and those of any thread call no HDF5.
  /// Any thread, every rank: what it wrote is on the disk.
  void sync() { staged_.file().sync(); }
  /// Every rank: HDF5 has no more to say. Arrays may still be written.
  void close_structure();
  /// Any thread, rank 0, when the others have done both: writes the structure and gives the file its name.
  /// Returns its size in bytes.
  std::int64_t commit();
  /// The other ranks: rank 0 alone removes the file if it cannot be completed.
  void leave_to_root() { staged_.keep(); }
  /// The file in memory, to be read.
  [[nodiscard]] Hdf5File take_memory() { return std::move(structure_); }

 private:
  struct Place {
    Hdf5Type type;
    Extents extents;
    std::int64_t offset_bytes;
  };
  [[nodiscard]] Place const& place_of(std::string const& name) const;
  void write_box(std::string const& name, Extents const& begin, Extents const& counts, Hdf5Type type,
                 std::span<std::byte const> data);
  void write_structure();

  Communicator const* comm_ = nullptr;
  StagedFile staged_;
  detail::Hdf5Recording recording_; // before the structure, which writes to it when it is closed
  Hdf5File structure_;
  std::map<std::string, Place> places_;
};

} // namespace orthant::runtime

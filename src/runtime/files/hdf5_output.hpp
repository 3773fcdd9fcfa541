#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An HDF5 file of named, contiguous arrays that all ranks of a group write, or one in memory.
//
// Every rank lets HDF5 lay out the same file in its own memory, so that all ranks know the place of each array without communication. Each
// rank writes its data with pwrite. Rank 0 writes the structure at the end, and the file gets its name when it is completely on the disk
// (staged_file.hpp). There are no collective HDF5 calls, so a rank that fails never leaves other ranks inside the library.

#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/staged_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace orthant::runtime::detail {

// An HDF5 file driver that records the library's writes instead of doing them. HDF5 lays out a file (superblock, groups, headers of arrays,
// attributes), and the caller writes the recording to the disk with its own checks, retries and cleanup. A disk failure then never happens
// inside HDF5, which cannot close a file that it could not write.

/// The writes of HDF5 to one file. They include data of arrays only if the data were written through HDF5.
struct Hdf5Recording {
  struct Write {
    std::int64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Write> writes;     // to be repeated in this order
  std::int64_t size = 0;         // of the whole file
  bool is_out_of_memory = false; // if true, some writes are missing
};

/// Sets the file driver of the access properties `access` to one that records into `recording`, which must outlive the files created with
/// them. Returns the result of H5Pset_driver.
[[nodiscard]] int record_writes(std::int64_t access, Hdf5Recording& recording);

} // namespace orthant::runtime::detail

namespace orthant::runtime {

class Hdf5Output {
 public:
  using Extents = Hdf5File::Extents;

  /// Creates a new file that becomes `path`. Collective; throws UserError on all ranks if it cannot be created.
  Hdf5Output(Communicator const& comm, std::filesystem::path const& path, std::string purpose);
  /// Creates a file in this process's memory.
  explicit Hdf5Output(std::string name);
  Hdf5Output(Hdf5Output const&) = delete;
  Hdf5Output& operator=(Hdf5Output const&) = delete;

  /// create_array() and write_attribute() must be called by all ranks in the same order and with the same arguments. They do not
  /// communicate.
  void create_array(std::string const& name, Hdf5Type type, Extents const& extents);
  template<class Value>
  void write_attribute(std::string const& owner, std::string const& name, Value const& value) {
    structure_.write_attribute(owner, name, value);
  }
  [[nodiscard]] Extents const& extents(std::string const& name) const { return place_of(name).extents; }

  /// Reserves the disk space of all arrays created so far. Throws UserError on all ranks if there is too little. Collective.
  void reserve_space();

  /// Writes the box of `counts` elements from `begin`, row-major in `data`, whose type must be the array's. Not collective; ranks must
  /// write disjoint boxes.
  template<class T>
  void write(std::string const& name, Extents const& begin, Extents const& counts, std::span<T const> data) {
    if (staged_.is_open())
      write_box(name, begin, counts, detail::hdf5_type_of<T>(), std::as_bytes(data));
    else
      structure_.write(name, begin, counts, data);
  }

  /// Writes the structure, and gives the file its name when it is completely on the disk. Returns its size in bytes. Collective; throws on
  /// all ranks if one of them fails.
  std::int64_t publish();

  /// The following functions are the parts of publish(), for writers that agree among ranks in their own way. They do not communicate, and
  /// the ones marked "any thread" do not call HDF5.
  /// Any thread, every rank: waits until this rank's data are on the disk.
  void sync() { staged_.file().sync(); }
  /// Every rank: closes the HDF5 structure. Arrays may still be written.
  void close_structure();
  /// Any thread, rank 0, after all ranks have called sync() and close_structure(): writes the structure and gives the file its name.
  /// Returns its size in bytes.
  std::int64_t commit();
  /// Ranks other than 0: leave it to rank 0 to remove the file if it cannot be completed.
  void leave_to_root() { staged_.keep(); }
  /// The file in memory, for reading.
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
  detail::Hdf5Recording recording_; // declared before the structure, which writes to it when it is closed
  Hdf5File structure_;
  std::map<std::string, Place> places_;
};

} // namespace orthant::runtime

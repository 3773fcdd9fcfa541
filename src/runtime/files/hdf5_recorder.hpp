#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// An HDF5 file driver that keeps what the library writes instead of writing it. The library lays out a file
// (superblock, groups, headers of arrays, attributes) and its caller writes that to the disk, with checks,
// retries and cleaning up of its own. So no failure of a disk ever happens inside HDF5, which cannot close a
// file that it could not write.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orthant::runtime::detail {

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

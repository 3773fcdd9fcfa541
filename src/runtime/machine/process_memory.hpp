#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Resident memory of this process, as the kernel counts it, and control of the memory that the allocator retains.

#include <cstdint>

namespace orthant::runtime {

/// Resident bytes now, and their maximum so far. 0 if the system does not report them.
[[nodiscard]] std::int64_t resident_bytes();
[[nodiscard]] std::int64_t peak_resident_bytes();

/// While an object exists, arrays of 128 KiB and more are mapped one by one, so that the system gets their memory back when they are freed.
/// Otherwise glibc's allocator retains the memory of large arrays that were freed, between arrays that stay, while a graph is read. After
/// the last object is gone, the allocator retains freed memory again, so that message buffers are not mapped anew in each step.
/// Does nothing with other allocators, nor if the user has set malloc's environment variables. Scopes may nest, and may overlap between
/// threads.
class MappedArrays {
 public:
  MappedArrays();
  ~MappedArrays();
  MappedArrays(MappedArrays const&) = delete;
  MappedArrays& operator=(MappedArrays const&) = delete;
};

} // namespace orthant::runtime

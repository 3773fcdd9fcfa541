#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Resident memory of this process, as the kernel counts it, and what the allocator keeps of it.

#include <cstdint>

namespace orthant::runtime {

/// Bytes resident now, and the most there ever were. 0 where the system does not say.
[[nodiscard]] std::int64_t resident_bytes();
[[nodiscard]] std::int64_t peak_resident_bytes();

/// While one exists, arrays of 128 KiB and more are mapped one by one, so the system gets their memory back when they are
/// freed. Otherwise the allocator of glibc keeps what large arrays leave behind while a graph is read, between arrays that
/// stay. After the last one it keeps freed memory again, so that buffers of messages are not mapped anew in each step. Does
/// nothing with other allocators, nor if the user has set malloc's environment variables. Scopes may nest, and overlap between threads.
class MappedArrays {
 public:
  MappedArrays();
  ~MappedArrays();
  MappedArrays(MappedArrays const&) = delete;
  MappedArrays& operator=(MappedArrays const&) = delete;
};

} // namespace orthant::runtime

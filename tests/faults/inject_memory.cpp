// SPDX-License-Identifier: Apache-2.0
//
// Allocations that fail: operator new, and those of Kokkos over 4 KiB.
#include "injection.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

extern "C" void* __libc_malloc(std::size_t bytes); // glibc's own, so that no look-up needs memory

namespace {

using injection::fails_alloc;

void* allocate(std::size_t bytes, char const* call) {
  auto* const memory = fails_alloc(call) ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* allocate_aligned(std::size_t bytes, std::size_t alignment, char const* call) {
  if (fails_alloc(call)) return nullptr;
  static auto* const real = injection::next(&::aligned_alloc, "aligned_alloc");
  return real(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Allocations of Kokkos over 4 KiB.
bool fails_kokkos(std::size_t bytes, void* caller, char const* call) {
  return bytes > 4096 && injection::is_watching() && injection::is_called_by(caller, false) &&
         fails_alloc(call);
}

} // namespace

// libstdc++ gives memory back by free, so operator delete stays as it is.
void* operator new(std::size_t bytes) {
  return allocate(bytes, "new");
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes, "new[]");
}
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  return fails_alloc("new nothrow") ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
}
void* operator new[](std::size_t bytes, std::nothrow_t const&) noexcept {
  return fails_alloc("new[] nothrow") ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new aligned"));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new[] aligned"));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new aligned nothrow");
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return allocate_aligned(bytes, static_cast<std::size_t>(alignment), "new[] aligned nothrow");
}

extern "C" {

void* malloc(std::size_t bytes) noexcept {
  if (bytes > 4096 && fails_kokkos(bytes, CALLER, "malloc of Kokkos")) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (fails_kokkos(bytes, CALLER, "posix_memalign of Kokkos")) return ENOMEM;
  REAL(posix_memalign);
  return real(memory, alignment, bytes);
}

} // extern "C"

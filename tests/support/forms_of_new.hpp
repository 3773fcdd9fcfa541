#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// For one file of a program that replaces `operator new(size_t)` and `operator delete(void*)`. The standard library gives
// the forms below by these two; an address sanitizer has forms of its own, which do not go with them.

#include <cstddef>
#include <new>

void* operator new[](std::size_t size) {
  return operator new(size);
}
void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
  try {
    return operator new(size);
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}
void operator delete(void* memory, std::nothrow_t const&) noexcept {
  operator delete(memory);
}
void operator delete[](void* memory) noexcept {
  operator delete(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  operator delete(memory);
}

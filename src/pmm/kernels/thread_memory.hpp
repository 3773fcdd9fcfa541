#pragma once
// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <memory>
#include <new>

namespace orthant::pmm {

/// The calling thread's memory for copies within one kernel, from a cache line on, as large as its largest request so far. Two
/// kernels of a thread share it, one after the other.
template<class T>
T* thread_memory(std::size_t count) {
  struct Delete {
    void operator()(T* numbers) const { ::operator delete[](numbers, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<T[], Delete> memory;
  thread_local std::size_t size = 0;
  if (size < count) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<T*>(::operator new[](count * sizeof(T), std::align_val_t{64})));
    size = count;
  }
  return memory.get();
}

} // namespace orthant::pmm

#pragma once
// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <memory>
#include <new>

namespace orthant::pmm {

/// Memory that holds nothing while this object lives: kernels that the calling thread launches may write copies there, in place of
/// memory of their own. Objects end in the reverse order.
class LentMemory {
 public:
  LentMemory(void* begin, std::size_t num_bytes) : begin_(begin), num_bytes_(num_bytes), outer_(innermost()) {
    innermost() = this;
  }
  LentMemory(LentMemory const&) = delete;
  LentMemory& operator=(LentMemory const&) = delete;
  ~LentMemory() { innermost() = outer_; }

  /// From a cache line on; null if none is large enough.
  [[nodiscard]] static void* find(std::size_t num_bytes) {
    for (auto const* lent = innermost(); lent != nullptr; lent = lent->outer_) {
      auto* begin = lent->begin_;
      auto room = lent->num_bytes_;
      if (std::align(64, num_bytes, begin, room) != nullptr) return begin;
    }
    return nullptr;
  }

 private:
  static LentMemory const*& innermost() {
    thread_local LentMemory const* lent = nullptr;
    return lent;
  }

  void* begin_;
  std::size_t num_bytes_;
  LentMemory const* outer_;
};

/// The calling thread's memory for copies within one kernel, from a cache line on: lent to it, or as large as its largest other
/// request so far. Two kernels of a thread share it, one after the other.
template<class T>
T* thread_memory(std::size_t count) {
  if (auto* const lent = LentMemory::find(count * sizeof(T))) return static_cast<T*>(lent);
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

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Parallel loops on host processors over contiguous parts, for kernels that take a range (row_kernels_host.hpp), and memory for them.

#include "runtime/arrays/views.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace orthant::pmm {

/// True if kernels run on host processors.
inline constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename runtime::DefaultExec::memory_space>::accessible;

/// True if other work can run while the ranks of `comm` communicate. Within a node, host processors transfer the messages themselves
/// and cannot do other work at the same time.
[[nodiscard]] inline bool can_hide_messages(runtime::Communicator const& comm) {
  return !runs_on_host || !comm.is_on_one_node();
}

/// Calls body(begin, end) on parts that cover [0, count): one part with one thread, otherwise a few parts per thread. Enqueues on exec;
/// does not fence. Must not be called in a build for devices, in which it does nothing.
template<class Body>
void for_each_part(runtime::DefaultExec const& exec, char const* label, std::int64_t count,
                   Body const& body) {
  if constexpr (runs_on_host) {
    auto const concurrency = static_cast<std::int64_t>(exec.concurrency());
    auto const num_parts = std::min(count, concurrency == 1 ? 1 : 4 * concurrency);
    Kokkos::parallel_for(label, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, num_parts),
                         [=](std::int64_t part) {
                           auto const mine = runtime::balanced_range(count, num_parts, part);
                           body(mine.begin, mine.end);
                         });
  }
}

/// Processes a block of `num_rows` rows of `rows.width` numbers. Calls rows.row(i) for each row on host processors, which read a whole
/// row at once, and rows.element(i, j) for each element on a device, where neighboring threads read neighboring numbers. Enqueues on
/// exec; does not fence.
template<class Rows>
void for_each_row_or_element(runtime::DefaultExec const& exec, char const* label, std::int64_t num_rows,
                             Rows const& rows) {
  if constexpr (runs_on_host) {
    for_each_part(exec, label, num_rows, [=](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        rows.row(i);
    });
  } else {
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, num_rows * rows.width),
        KOKKOS_LAMBDA(std::int64_t k) { rows.element(k / rows.width, k % rows.width); });
  }
}

/// Makes unused memory available while this object exists: kernels that the calling thread launches may write copies there instead of
/// allocating memory. Objects must be destroyed in the reverse order of their construction.
class LentMemory {
 public:
  LentMemory(void* begin, std::size_t num_bytes) : begin_(begin), num_bytes_(num_bytes), outer_(innermost()) {
    innermost() = this;
  }
  LentMemory(LentMemory const&) = delete;
  LentMemory& operator=(LentMemory const&) = delete;
  ~LentMemory() { innermost() = outer_; }

  /// Returns `num_bytes` bytes aligned to a cache line; null if no such memory is large enough.
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

/// Memory of the calling thread for copies within one kernel, aligned to a cache line. Taken from LentMemory, or else from an allocation
/// that grows to the thread's largest request. The next kernel of the thread reuses it.
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

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Buffers that operations share: a gathered operand, partial sums, packed rows. They are sized at set-up, so
// that a training step allocates nothing.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/error.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace orthant::pmm {

/// Purpose of a buffer. Operations that overlap in time must not share a workspace.
enum class Slot : std::uint8_t { left, right, result, sums };

inline constexpr std::size_t num_slots = 4;

/// Number of elements of `larger_bytes` each whose memory holds `num_elements` elements of `smaller_bytes` each.
[[nodiscard]] constexpr std::int64_t num_holding(std::int64_t num_elements, std::int64_t smaller_bytes,
                                                 std::int64_t larger_bytes) {
  return (num_elements * smaller_bytes + larger_bytes - 1) / larger_bytes;
}

template<class T>
class Workspace {
 public:
  /// Makes the slot at least `num_elements` long. Call at set-up only: growing discards the contents and invalidates
  /// all Views that lend() returned.
  void reserve(Slot slot, std::int64_t num_elements) {
    auto& buffer = buffers_[static_cast<std::size_t>(slot)];
    auto const length = static_cast<std::size_t>(num_elements);
    if (buffer.extent(0) >= length) return;
    runtime::MappedArrays const mapped; // a buffer that a larger batch replaces is returned to the system
    buffer = {};                        // free the old buffer before the new one is allocated
    buffer = runtime::make_zeros<T>("orthant::pmm::workspace", length);
  }

  /// View of the first `num_elements` elements of the slot. The View does not keep the memory alive. Throws Error if
  /// fewer elements are reserved.
  [[nodiscard]] runtime::Vector<T> lend(Slot slot, std::int64_t num_elements) const {
    auto const& buffer = buffers_[static_cast<std::size_t>(slot)];
    auto const length = static_cast<std::size_t>(num_elements);
    ORTHANT_REQUIRE(length <= buffer.extent(0), length, " elements were not reserved");
    return runtime::Vector<T>(buffer.data(), length);
  }

  /// reserve() and lend() for elements of another type U, which must not be larger than T: a buffer of floats holds
  /// twice as many 16-bit numbers.
  template<class U>
  void reserve_as(Slot slot, std::int64_t num_elements) {
    reserve(slot, num_holding(num_elements, sizeof(U), sizeof(T)));
  }
  template<class U>
  [[nodiscard]] runtime::Vector<U> lend_as(Slot slot, std::int64_t num_elements) const {
    auto const numbers = lend(slot, num_holding(num_elements, sizeof(U), sizeof(T)));
    return runtime::Vector<U>(reinterpret_cast<U*>(numbers.data()), static_cast<std::size_t>(num_elements));
  }

  /// Length of the slot, in elements of T.
  [[nodiscard]] std::int64_t num_elements(Slot slot) const {
    return static_cast<std::int64_t>(buffers_[static_cast<std::size_t>(slot)].extent(0));
  }
  [[nodiscard]] std::int64_t num_bytes() const {
    std::size_t count = 0;
    for (auto const& buffer : buffers_)
      count += buffer.extent(0);
    return static_cast<std::int64_t>(count * sizeof(T));
  }

 private:
  std::array<runtime::Vector<T>, num_slots> buffers_;
};

/// Lengths of the slots of a workspace, without its memory.
class WorkspacePlan {
 public:
  void reserve(Slot slot, std::int64_t num_elements) {
    auto& length = lengths_[static_cast<std::size_t>(slot)];
    length = std::max(length, num_elements);
  }
  [[nodiscard]] std::int64_t num_elements(Slot slot) const {
    return lengths_[static_cast<std::size_t>(slot)];
  }
  /// Adds the buffers to `step`.
  void list(StepPlan& step) const {
    for (auto const length : lengths_)
      step.add_array("orthant::pmm::workspace", step.scalar_bytes(length));
  }

 private:
  std::array<std::int64_t, num_slots> lengths_{};
};

} // namespace orthant::pmm

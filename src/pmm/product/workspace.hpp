#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Buffers that operations lend one another: a gathered operand, partial sums, packed rows. Sized at set-up,
// so that a training step allocates nothing.

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/error.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace orthant::pmm {

/// What a buffer is for. Operations that overlap in time must not share a workspace.
enum class Slot : std::uint8_t { left, right, result, sums };

inline constexpr std::size_t num_slots = 4;

/// How many numbers of `larger_bytes` each hold `num_elements` numbers of `smaller_bytes` each.
[[nodiscard]] constexpr std::int64_t num_holding(std::int64_t num_elements, std::int64_t smaller_bytes,
                                                 std::int64_t larger_bytes) {
  return (num_elements * smaller_bytes + larger_bytes - 1) / larger_bytes;
}

template<class T>
class Workspace {
 public:
  /// Makes the slot at least that long. At set-up only: its numbers, and what was lent of it, are gone if it grows.
  void reserve(Slot slot, std::int64_t num_elements) {
    auto& buffer = buffers_[static_cast<std::size_t>(slot)];
    auto const length = static_cast<std::size_t>(num_elements);
    if (buffer.extent(0) >= length) return;
    runtime::MappedArrays const mapped; // batches of other sizes may want other lengths
    buffer = {};                        // never both at once
    buffer = runtime::make_zeros<T>("orthant::pmm::workspace", length);
  }

  /// The first numbers of the slot. Shares the memory, and does not keep it alive.
  [[nodiscard]] runtime::Vector<T> lend(Slot slot, std::int64_t num_elements) const {
    auto const& buffer = buffers_[static_cast<std::size_t>(slot)];
    auto const length = static_cast<std::size_t>(num_elements);
    ORTHANT_REQUIRE(length <= buffer.extent(0), length, " elements were not reserved");
    return runtime::Vector<T>(buffer.data(), length);
  }

  /// The same for numbers of another type, no larger than T: a buffer of floats holds twice as many numbers of 16
  /// bits.
  template<class U>
  void reserve_as(Slot slot, std::int64_t num_elements) {
    reserve(slot, num_holding(num_elements, sizeof(U), sizeof(T)));
  }
  template<class U>
  [[nodiscard]] runtime::Vector<U> lend_as(Slot slot, std::int64_t num_elements) const {
    auto const numbers = lend(slot, num_holding(num_elements, sizeof(U), sizeof(T)));
    return runtime::Vector<U>(reinterpret_cast<U*>(numbers.data()), static_cast<std::size_t>(num_elements));
  }

  /// How long the slot is.
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

/// A workspace that does not exist: how long its slots will be.
class WorkspacePlan {
 public:
  void reserve(Slot slot, std::int64_t num_elements) {
    auto& length = lengths_[static_cast<std::size_t>(slot)];
    length = std::max(length, num_elements);
  }
  [[nodiscard]] std::int64_t num_elements(Slot slot) const {
    return lengths_[static_cast<std::size_t>(slot)];
  }
  /// Lists the buffers.
  void list(StepPlan& step) const {
    for (auto const length : lengths_)
      step.add_array("orthant::pmm::workspace", step.scalar_bytes(length));
  }

 private:
  std::array<std::int64_t, num_slots> lengths_{};
};

} // namespace orthant::pmm

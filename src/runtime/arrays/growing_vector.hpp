#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory for arrays whose lengths change from batch to batch. It is mapped, so that the system gets back what a smaller array leaves.

#include "runtime/arrays/huge_pages.hpp"
#include "runtime/machine/process_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orthant::runtime {

/// How long an array becomes that grows: a 32nd part more than is asked for, so that batches of nearly equal sizes soon ask for nothing.
/// With an eighth, a process with 8 experts on 2 ranks took 6 to 9 % more.
[[nodiscard]] constexpr std::size_t grown_length(std::size_t wanted) {
  return wanted + wanted / 32;
}

/// Grows, never shrinks. The first request is met exactly, later growth with room (grown_length()).
template<class T>
class GrowingVector {
 public:
  explicit GrowingVector(std::string label) : label_(std::move(label)) {}

  /// At least that many numbers, of any value; what was reserved before must be in use no more.
  [[nodiscard]] Vector<T> const& reserve(std::int64_t num_elements) {
    auto const wanted = static_cast<std::size_t>(num_elements);
    if (wanted > numbers_.extent(0)) {
      MappedArrays const mapped;
      auto const length = numbers_.extent(0) == 0 ? wanted : grown_length(wanted);
      numbers_ = {}; // the old memory goes before the new comes
      numbers_ = make_zeros<T>(label_, length);
    }
    return numbers_;
  }

  [[nodiscard]] std::int64_t num_bytes() const {
    return static_cast<std::int64_t>(numbers_.extent(0) * sizeof(T));
  }

 private:
  std::string label_;
  Vector<T> numbers_;
};

/// Sets the length; all numbers are then to be written. Where there is too little room, the old memory goes before the new comes, of
/// grown_length().
template<class T>
void resize_for_writing(std::vector<T>& numbers, std::size_t length) {
  if (length > numbers.capacity()) {
    MappedArrays const mapped;
    numbers = std::vector<T>();
    numbers.reserve(grown_length(length));
  }
  numbers.resize(length);
}

} // namespace orthant::runtime

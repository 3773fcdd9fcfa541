#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory for arrays whose lengths change from batch to batch. It is mapped, so that the system gets back what a smaller array leaves.

#include "runtime/arrays/growing_list.hpp"
#include "runtime/arrays/huge_pages.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace orthant::runtime {

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

} // namespace orthant::runtime

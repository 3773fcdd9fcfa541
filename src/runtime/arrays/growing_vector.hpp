#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Memory for arrays whose lengths change from batch to batch.

#include "runtime/arrays/huge_pages.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace orthant::runtime {

/// Grows, never shrinks. The first request is met exactly, later growth with an eighth more or another share, so that batches
/// of nearly equal sizes soon ask for nothing.
template<class T>
class GrowingVector {
 public:
  explicit GrowingVector(std::string label) : label_(std::move(label)) {}

  /// At least that many numbers, of any value; what was reserved before must be in use no more. Later growth with one part in
  /// `parts` more.
  [[nodiscard]] Vector<T> const& reserve(std::int64_t num_elements, std::size_t parts = 8) {
    auto const wanted = static_cast<std::size_t>(num_elements);
    if (wanted > numbers_.extent(0)) {
      auto const length = numbers_.extent(0) == 0 ? wanted : wanted + wanted / parts;
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

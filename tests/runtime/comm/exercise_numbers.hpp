#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a group send in the collective exercises, and what each operation must make of it, computed
// serially. The numbers are small integers, so sums are exact in every type and order; each group works with
// numbers of its own, so that a message that strays is seen.

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace orthant::testing {

template<class T>
class ExerciseNumbers {
 public:
  using Reduction = runtime::Reduction;
  using Length = std::int64_t;

  ExerciseNumbers(int group, int size) : group_(group), size_(size) {}

  [[nodiscard]] T entry(int owner, Length i) const {
    return static_cast<T>((group_ * 31 + owner * 17 + i * 7) % 101 - 50);
  }
  [[nodiscard]] std::vector<T> entries(int owner, Length length) const {
    std::vector<T> values(static_cast<std::size_t>(length));
    for (Length i = 0; i < length; ++i)
      values[static_cast<std::size_t>(i)] = entry(owner, i);
    return values;
  }
  [[nodiscard]] std::vector<T> blank(Length length) const {
    return std::vector<T>(static_cast<std::size_t>(length), T{99});
  }
  [[nodiscard]] T reduced(Length i, Reduction reduction) const {
    auto result = entry(0, i);
    for (int r = 1; r < size_; ++r) {
      auto const next = entry(r, i);
      result = reduction == Reduction::sum   ? result + next
               : reduction == Reduction::max ? std::max(result, next)
                                             : std::min(result, next);
    }
    return result;
  }
  /// Uneven parts, every third one empty.
  [[nodiscard]] std::vector<Length> uneven(Length length) const {
    std::vector<Length> counts;
    for (int r = 0; r < size_; ++r)
      counts.push_back((r + group_) % 3 == 1 ? 0 : length + 2 * r);
    return counts;
  }
  static Length sum_of(std::vector<Length> const& counts) {
    return std::accumulate(counts.begin(), counts.end(), Length{0});
  }

  [[nodiscard]] std::vector<T> gathered(std::vector<Length> const& counts) const {
    std::vector<T> all;
    for (int r = 0; r < size_; ++r) {
      auto const part = entries(r, counts[static_cast<std::size_t>(r)]);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  /// What `source` sends to `destination`.
  [[nodiscard]] std::vector<T> message(int source, int destination, Length length) const {
    return entries(source * size_ + destination, length);
  }
  template<class LengthOf>
  [[nodiscard]] std::vector<T> sent_by(int source, LengthOf const& length_of) const {
    std::vector<T> all;
    for (int r = 0; r < size_; ++r) {
      auto const part = message(source, r, length_of(source, r));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  template<class LengthOf>
  [[nodiscard]] std::vector<T> received_by(int destination, LengthOf const& length_of) const {
    std::vector<T> all;
    for (int r = 0; r < size_; ++r) {
      auto const part = message(r, destination, length_of(r, destination));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  int group_;
  int size_;
};

} // namespace orthant::testing

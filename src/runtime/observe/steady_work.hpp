#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Seconds of work that every step repeats, without what disturbs single steps: interrupts, other programs, caches that other ranks
// of an emulation have emptied. The slowest rank decides when a call ends, so that disturbances of one rank in many would add up to
// seconds that no rank needs:
//
//   steady seconds of the place-th piece of work in step t  =  median of its seconds in the steps t-8, .., t

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace orthant::runtime {

class SteadyWork {
 public:
  static constexpr std::size_t num_remembered = 9;

  /// The next piece is the first one of a step, which has the pieces of the step before in the same order.
  void begin_step() { place_ = 0; }

  /// Steady seconds of the next piece, which took `seconds` this time; of two in the middle the shorter one. Allocates only for a place
  /// that no step has had before.
  [[nodiscard]] double of(double seconds) {
    if (place_ == pieces_.size()) pieces_.emplace_back();
    auto& piece = pieces_[place_++];
    piece.seconds[piece.count++ % num_remembered] = seconds;
    auto sorted = piece.seconds;
    auto const remembered = std::min(piece.count, num_remembered);
    auto const middle = sorted.begin() + static_cast<std::ptrdiff_t>((remembered - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(remembered));
    return *middle;
  }

 private:
  struct Piece {
    std::array<double, num_remembered> seconds{}; // of the last steps, the oldest is replaced
    std::size_t count = 0;                        // of all steps
  };

  std::size_t place_ = 0; // of the next piece in its step
  std::vector<Piece> pieces_;
};

} // namespace orthant::runtime

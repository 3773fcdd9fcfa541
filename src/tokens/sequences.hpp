#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which tokens are in which sequence. A window is S tokens and the one behind each: it begins at any token of the
// training part that S others follow, so N tokens have W = N - S windows.
//
//   sequence i of a training:    window  pi_e(i mod W),  e = i div W
//
// pi_e is the keyed bijection of epoch e (runtime/numbers/bijection.hpp): an epoch takes every window once, and any
// rank knows any sequence of any step without a message. The validation part is cut from its first token on in
// windows that do not overlap, so each of its tokens but the first is predicted once.

#include "runtime/range.hpp"

#include <cstdint>

namespace orthant::tokens {

class TrainingWindows {
 public:
  /// Throws UserError unless there is a window: at least sequence + 1 tokens.
  TrainingWindows(std::int64_t num_tokens, std::int64_t sequence, std::uint64_t seed);

  /// W, the windows of an epoch.
  [[nodiscard]] std::int64_t size() const { return num_windows_; }
  /// The first token of sequence i of the training, from 0.
  [[nodiscard]] std::int64_t begin_of(std::int64_t i) const;

 private:
  std::int64_t num_windows_;
  std::uint64_t seed_;
};

/// The number of windows of a validation part; 0 if it has no token to predict.
[[nodiscard]] std::int64_t num_validation_windows(std::int64_t num_tokens, std::int64_t sequence);

} // namespace orthant::tokens

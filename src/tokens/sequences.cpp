// SPDX-License-Identifier: Apache-2.0
#include "tokens/sequences.hpp"

#include "runtime/error.hpp"
#include "runtime/numbers/bijection.hpp"
#include "runtime/numbers/random.hpp"

namespace orthant::tokens {

TrainingWindows::TrainingWindows(std::int64_t num_tokens, std::int64_t sequence, std::uint64_t seed)
    : num_windows_(num_tokens - sequence),
      seed_(seed) {
  if (num_windows_ < 1)
    runtime::throw_user(
        "--sequence {} needs {} training tokens, and the token file has {}: give a shorter one", sequence,
        sequence + 1, num_tokens);
}

std::int64_t TrainingWindows::begin_of(std::int64_t i) const {
  auto const epoch = static_cast<std::uint64_t>(i / num_windows_);
  runtime::RandomStream const stream(seed_, runtime::Purpose::tokens, epoch);
  runtime::KeyedBijection const windows(static_cast<std::uint64_t>(num_windows_), stream.key());
  return static_cast<std::int64_t>(windows(static_cast<std::uint64_t>(i % num_windows_)));
}

std::int64_t num_validation_windows(std::int64_t num_tokens, std::int64_t sequence) {
  auto const num_predicted = num_tokens > 0 ? num_tokens - 1 : 0;
  return (num_predicted + sequence - 1) / sequence;
}

} // namespace orthant::tokens

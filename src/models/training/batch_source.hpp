#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Source of the batches of a training. A step takes K batches per data group; an epoch has a fixed number of steps. A source belongs to a
// network and a loss, and prepares both for one batch after another.

#include "runtime/error.hpp"
#include "runtime/report/timer.hpp"

#include <cstdint>
#include <optional>

namespace orthant::models {

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Number of steps per epoch.
  [[nodiscard]] virtual std::int64_t num_steps() const = 0;
  /// K, the number of batches per step and data group.
  [[nodiscard]] virtual std::int64_t num_accumulated() const = 0;
  /// Approximate number of rows in the loss of a step. Gradients are divided by it until the rows of the step's batches have been
  /// counted. nullopt if all steps and groups have the same batch, whose count is known.
  [[nodiscard]] virtual std::optional<std::int64_t> nominal_count() const = 0;

  /// Whether all batches have the same sizes, so that each step does the same work (except for loads of experts).
  [[nodiscard]] virtual bool has_equal_batches() const { return false; }

  /// Makes the first batch of this step the next one. Epochs count from 1, steps from 0.
  virtual void start_at(std::int64_t epoch, std::int64_t step) = 0;
  /// Binds network and loss to the next batch. Returns the key of its dropout, which no other batch of the run has. Adds times to
  /// `phases`. Does not communicate.
  virtual std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& phases) = 0;
};

/// A single batch that never changes, such as a whole graph. An epoch is one step.
class OneBatch final : public BatchSource {
 public:
  [[nodiscard]] std::int64_t num_steps() const override { return 1; }
  [[nodiscard]] std::int64_t num_accumulated() const override { return 1; }
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override { return std::nullopt; }
  [[nodiscard]] bool has_equal_batches() const override { return true; }
  void start_at(std::int64_t /*epoch*/, std::int64_t step) override {
    ORTHANT_REQUIRE(step == 0, "step ", step, " of epochs that have one");
  }
  std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& /*phases*/) override {
    return static_cast<std::uint64_t>(epoch);
  }
};

} // namespace orthant::models

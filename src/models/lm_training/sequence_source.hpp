#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The sequences of the training part as batches. The unit that a training counts is the step: an epoch of the trainer is
// one step of B sequences, in K passes of B / K sequences over all data groups:
//
//   sequence s of pass k of step t = 1, 2, ..    is number ((t - 1) K + k) B / K + s    of the training
//
// which window that is says tokens/sequences.hpp. So neither the grid nor K changes which sequences a step has.

#include "models/lm_training/sequence_rows.hpp"
#include "models/training/batch_source.hpp"
#include "tokens/sequences.hpp"

namespace orthant::models {

struct SequenceSettings {
  std::int64_t sequence = 0;        // S, tokens
  std::int64_t global_batch = 0;    // B, sequences of a step
  std::int64_t num_accumulated = 1; // K; divides B
  std::uint64_t seed = 0;

  /// Of a pass, over all data groups.
  [[nodiscard]] std::int64_t num_sequences() const { return global_batch / num_accumulated; }
};

template<class T>
class SequenceSource final : public BatchSource {
 public:
  /// All references must outlive it. Throws UserError if the file has no such sequence.
  SequenceSource(pmm::ProcessGrid const& grid, SequenceRows<T>& rows, tokens::TokenFile const& file,
                 SequenceSettings const& settings);

  [[nodiscard]] std::int64_t num_steps() const override { return 1; }
  [[nodiscard]] std::int64_t num_accumulated() const override { return settings_.num_accumulated; }
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override {
    return settings_.global_batch * settings_.sequence;
  }
  [[nodiscard]] bool has_equal_batches() const override { return true; }
  void start_at(std::int64_t epoch, std::int64_t step) override;
  std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& phases) override;

 private:
  pmm::ProcessGrid const& grid_;
  SequenceRows<T>& rows_;
  SequenceSettings settings_;
  tokens::TrainingWindows windows_;
  std::int64_t k_ = 0; // of the next pass in its step
};

extern template class SequenceSource<float>;
extern template class SequenceSource<double>;

} // namespace orthant::models

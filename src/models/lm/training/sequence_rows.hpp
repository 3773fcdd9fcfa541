#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a pass and what they should be followed by, for the rows of this rank: read from a token file, and
// bound to a network and its loss.

#include "models/lm/transformer/transformer.hpp"
#include "models/training/batch_source.hpp"
#include "pmm/rows/row_loss.hpp"
#include "tokens/token_file.hpp"

#include <vector>

namespace orthant::models {

/// Lists the arrays of SequenceRows: for `num_rows` tokens of a pass on this rank.
void plan_sequence_rows_arrays(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_accumulated);

template<class T>
class SequenceRows {
 public:
  /// For steps of so many passes. All references must outlive it. Throws UserError if the file has more tokens in
  /// its vocabulary than the network.
  SequenceRows(Transformer<T>& network, pmm::RowLoss<T>& loss, tokens::TokenFile& file,
               std::int64_t num_accumulated);

  [[nodiscard]] std::int64_t sequence() const { return sequence_; }
  [[nodiscard]] runtime::Range sequences() const { return network_.sequences(); }

  /// Sequence `s` of this rank, from 0 := the window of the part that begins at token `begin`. What the part does not
  /// have, behind its end, is neither read nor predicted. Throws UserError if it cannot be read.
  void read(std::int64_t s, tokens::Part part, std::int64_t begin);
  /// Sequence `s` of this rank := nothing to predict.
  void clear(std::int64_t s);
  /// Binds network and loss to what was read, in pass k of a step. The kernels of pass k of the step before must have
  /// ended. Not collective.
  void bind(std::int64_t k);

 private:
  [[nodiscard]] std::span<std::int32_t> of_sequence(std::vector<std::int32_t>& rows, std::int64_t s) const;

  Transformer<T>& network_;
  pmm::RowLoss<T>& loss_;
  tokens::TokenFile& file_;
  std::int64_t sequence_;
  std::vector<std::int32_t> window_; // S + 1 tokens
  std::vector<std::int32_t> ids_, classes_;
  std::vector<std::int8_t> groups_;
  runtime::Vector<std::int8_t> device_groups_;
  std::vector<runtime::Vector<std::int32_t>> device_classes_; // of each pass of a step
};

extern template class SequenceRows<float>;
extern template class SequenceRows<double>;

// The sequences of the training part as batches. The unit that a training counts is the step: an epoch of the trainer is
// one step of B sequences, in K passes of B / K sequences over all data groups:
//
//   sequence s of pass k of step t = 1, 2, ..    is number ((t - 1) K + k) B / K + s    of the training
//
// which window that is says tokens/token_file.hpp. So neither the grid nor K changes which sequences a step has.

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

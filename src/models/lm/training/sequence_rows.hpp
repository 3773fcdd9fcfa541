#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Sequences of a token file as batches: the tokens and targets of this rank's rows in a pass, bound to a network and its loss,
// and the order of the sequences in training. Ranks along context read whole sequences and keep their own tokens (pmm::SequencePart), because
// targets, documents and a goldfish loss depend on tokens of other ranks.

#include "models/lm/transformer/transformer.hpp"
#include "models/training/batch_source.hpp"
#include "pmm/rows/row_loss.hpp"
#include "tokens/token_file.hpp"

#include <span>
#include <vector>

namespace orthant::models {

/// Goldfish loss: a token is left out of the loss of training if a hash of the `history` tokens before it is divisible by `one_in`. So some
/// tokens of each passage are never learned, and the network cannot repeat it word for word. Wherever a passage occurs, the same tokens are
/// left out. Tokens with fewer tokens before them in the training part are kept. Source: Hans et al. (arXiv 2406.10209).
struct Goldfish {
  std::int64_t one_in = 0;  // K; 0: no token is left out
  std::int64_t history = 0; // H

  [[nodiscard]] bool is_on() const { return one_in > 0; }
  /// Whether the token after these `history` tokens is left out.
  [[nodiscard]] bool leaves_out(std::span<std::int32_t const> tokens) const;
};

/// Adds the arrays of SequenceRows to `step`. `num_rows`: tokens per pass on this rank. `num_accumulated`: passes per step.
void plan_sequence_rows_arrays(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_accumulated);

template<class T>
class SequenceRows {
 public:
  /// `num_accumulated`: passes per step. All references must outlive this object. If the network masks documents, a document ends with the
  /// end token of the file or with its window. Throws UserError if the vocabulary of the file is larger than the network's, or if documents
  /// are masked and the file has no end token.
  SequenceRows(Transformer<T>& network, pmm::RowLoss<T>& loss, tokens::TokenFile& file,
               std::int64_t num_accumulated, Goldfish const& goldfish = {});

  /// Length of whole sequences.
  [[nodiscard]] std::int64_t sequence() const { return tokens_.whole(); }
  [[nodiscard]] runtime::Range sequences() const { return network_.sequences(); }

  /// Sequence `s` of this rank, counted from 0, := the window of `part` that begins at token `begin`. Positions after the end
  /// of the part are neither read nor predicted. Throws UserError if the file cannot be read.
  void read(std::int64_t s, tokens::Part part, std::int64_t begin);
  /// Clears sequence `s` of this rank, in which nothing is then predicted.
  void clear(std::int64_t s);
  /// Binds network and loss to these sequences, for pass k of a step. The kernels of pass k of the previous step must be
  /// complete. Not collective.
  void bind(std::int64_t k);

 private:
  void clear();
  void keep_own(std::int64_t s);

  Transformer<T>& network_;
  pmm::RowLoss<T>& loss_;
  tokens::TokenFile& file_;
  pmm::SequencePart tokens_;
  Goldfish goldfish_;
  std::vector<std::int32_t> window_; // S + 1 tokens, and those before them that a goldfish loss hashes
  std::vector<std::int32_t> whole_ids_, whole_classes_; // of one sequence
  std::vector<std::int32_t> ids_, classes_;             // of this rank's rows
  std::vector<std::int64_t> positions_; // of all tokens, in documents; empty unless these are masked
  std::int32_t end_token_ = -1;
  std::vector<std::int8_t> groups_;
  runtime::Vector<std::int8_t> device_groups_;
  std::vector<runtime::Vector<std::int32_t>> device_classes_; // one per pass of a step
};

extern template class SequenceRows<float>;
extern template class SequenceRows<double>;

// Batches of sequences of the training part. A training counts steps: an epoch of the trainer is one step of B sequences, in K
// passes of B / K sequences over all data groups:
//
//   sequence s of pass k of step t = 1, 2, ..    is number ((t - 1) K + k) B / K + s    of the training
//
// tokens/token_file.hpp maps this number to a window. Neither the grid nor K changes the sequences of a step.

struct SequenceSettings {
  std::int64_t sequence = 0;        // S, tokens per sequence
  std::int64_t global_batch = 0;    // B, sequences per step
  std::int64_t num_accumulated = 1; // K, passes per step; must divide B
  std::uint64_t seed = 0;
  Goldfish goldfish = {};

  /// Number of sequences per pass, over all data groups.
  [[nodiscard]] std::int64_t num_sequences() const { return global_batch / num_accumulated; }
};

template<class T>
class SequenceSource final : public BatchSource {
 public:
  /// `grid` and `rows` must outlive this object. Throws UserError if the training part is too short for a sequence and the
  /// token after it.
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
  std::int64_t k_ = 0; // pass of the step that next() prepares
};

extern template class SequenceSource<float>;
extern template class SequenceSource<double>;

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Link prediction: the outputs H of a network are embeddings, and the score of a link is the dot product of those of its ends
// (Kipf & Welling, arXiv 1611.07308, equation 2). With the E edges of A and as many negatives n_e of the epoch (link_step.hpp),
//
//   z_uv := <H_u, H_v>
//   loss := 1 / (2 E) ( sum_{edges uv} softplus(-z_uv) + sum_{negatives uw} softplus(z_uw) )
//
// A negative that happens to be an edge of A counts 0. link_step.hpp says what moves. A perceptron may give z_uv instead
// (link_decoder.hpp).

#include "models/gnn/links/link_decoder.hpp"
#include "models/gnn/links/link_step.hpp"
#include "models/training/batch_source.hpp"
#include "models/training/objective.hpp"
#include "models/training/vertex_loss.hpp"
#include "pmm/pairs/pair_layers.hpp"
#include "runtime/comm/communicator.hpp"

#include <memory>
#include <optional>
#include <span>

namespace orthant::models {

// How well scores tell links from pairs that are none, as the evaluator of the Open Graph Benchmark defines it (Hu et al., arXiv
// 2005.00687; its package ogb.linkproppred). With positives p and all negatives q of a split:
//
//   AUC      ( #(p > q) + #(p = q) / 2 ) / (n_p n_q)
//   rank_p   1 + ( #(q > p) + #(q >= p) ) / 2        the mean of the optimistic and the pessimistic rank of ties
//   MRR      mean of 1 / rank_p
//   Hits@K   share of the positives with p > the K-th largest q; 1 if there are fewer than K negatives
//
// The Open Graph Benchmark ranks each positive among negatives of its own for MRR; here all positives have the same ones.

/// Of the scores that all ranks give. Also the mean of binary cross-entropy, and how many scores have the right sign (0 is that of a
/// negative). If the loss is not finite, nothing is ranked. Every rank holds all negatives' scores, 8 bytes each. Cost: a sort of
/// them, and two searches for each of the rank's positives. Collective over `comm`.
[[nodiscard]] SplitScore score_links(runtime::Communicator const& comm, std::span<double const> positives,
                                     std::span<double const> negatives);

/// The most that it holds on a rank at a time, with the scores that it is given.
[[nodiscard]] std::int64_t bytes_of_link_scores(graph::StoreFacts const& facts);

template<class T>
class LinkLoss final : public Objective<T> {
 public:
  /// For outputs [{x,y,z},-] of that placement, whole rows with one owner each, with these roles of the axes. Reads this rank's
  /// block of A and the store's links. `seed` is that of the negatives of epochs. `grid` must outlive it. Collective over the grid's
  /// group. Throws UserError if the store has no held-out edges or no edge to train on.
  LinkLoss(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Roles const& roles,
           pmm::Placement const& outputs, std::uint64_t seed);

  /// Scores by this perceptron from now on, in place of dot products. Before anything is scored. Not collective.
  void use_decoder(DecoderParameters<T> parameters);

  /// Draws the negatives of an epoch; before its loss. What was enqueued on the last ones must be done. Not collective.
  void draw(std::uint64_t epoch);

  /// 2 E.
  [[nodiscard]] std::int64_t num_terms() const override { return 2 * num_edges_; }
  /// `loss` has one number, and `gradient` is another matrix than `outputs` (Error).
  void loss_and_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs,
                         pmm::DistMatrix<T> const& gradient, std::int64_t num_counted,
                         runtime::Vector<double> const& loss, double gradient_scale) override;
  /// Of valid and test (link_loss.hpp); train has counted nothing.
  [[nodiscard]] Scores evaluate(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs) override;
  [[nodiscard]] double scale_to_one(std::int64_t num_counted) const override;
  [[nodiscard]] bool repeats_itself() const override { return false; }
  [[nodiscard]] bool has_decoder() const override { return decoder_.has_value(); }

  [[nodiscard]] LinkPlan const& plan() const { return plan_; }
  /// Links of this rank's block: of the epoch that was drawn last.
  [[nodiscard]] LinkCounts counts() const;

 private:
  [[nodiscard]] pmm::Heads part() const { return {1, rows_.steps().part.columns()}; }
  void bring(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs);
  /// Scores of a list's links, this rank's addend, to scores[begin, ..). Returns where the next list's begin.
  std::int64_t score(runtime::DefaultExec const& exec, pmm::EdgeBlock const& block, std::int64_t begin) const;
  void sum_scores(runtime::DefaultExec const& exec, std::int64_t count) const;
  void count_product(std::int64_t num_links) const;
  /// loss(0) := the loss, and its scores := its derivatives by them.
  void find_loss(runtime::DefaultExec const& exec, std::int64_t num_links, double scale,
                 double gradient_scale, runtime::Vector<double> const& loss) const;
  /// Both, by the perceptron.
  void decode_loss_and_gradient(runtime::DefaultExec const& exec, runtime::Vector<T> const& dh, double scale,
                                double gradient_scale, runtime::Vector<double> const& loss) const;

  pmm::ProcessGrid const& grid_;
  LinkPlan plan_;
  std::int64_t num_edges_ = 0;           // E
  std::vector<pmm::PairLists> held_out_; // as held_out_lists
  std::optional<pmm::PairLists> positives_, negatives_;
  std::optional<NegativeLinks> drawer_;
  std::int64_t num_entries_ = 0; // of the block
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::BlockRows<T> rows_, columns_;
  runtime::Vector<T> x_memory_, y_memory_, gradient_memory_, second_gradient_;
  runtime::GrowingVector<T> scores_memory_;
  runtime::Vector<T> scores_;                 // of its memory
  runtime::Vector<T> x_, y_;                  // what the block reads, since bring()
  std::optional<LinkDecoder<T>> decoder_;     // none: dot products
  runtime::Vector<T> column_gradient_memory_; // of its
};

/// The whole graph with the negatives of one epoch after the other: an epoch is one step.
template<class T>
class LinkBatches final : public BatchSource {
 public:
  /// `loss` must outlive it.
  explicit LinkBatches(LinkLoss<T>& loss) : loss_(loss) {}
  [[nodiscard]] std::int64_t num_steps() const override { return 1; }
  [[nodiscard]] std::int64_t num_accumulated() const override { return 1; }
  [[nodiscard]] std::optional<std::int64_t> nominal_count() const override { return std::nullopt; }
  void start_at(std::int64_t /*epoch*/, std::int64_t step) override {
    ORTHANT_REQUIRE(step == 0, "step ", step, " of epochs that have one");
  }
  std::uint64_t next(std::int64_t epoch, runtime::PhaseTimes& /*phases*/) override {
    loss_.draw(static_cast<std::uint64_t>(epoch));
    return static_cast<std::uint64_t>(epoch);
  }

 private:
  LinkLoss<T>& loss_;
};

extern template class LinkLoss<float>;
extern template class LinkLoss<double>;

} // namespace orthant::models

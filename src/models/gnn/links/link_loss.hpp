#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Link prediction. The outputs H of a network are embeddings, and the score of a link is the dot product of the embeddings of its
// ends (Kipf & Welling, arXiv 1611.07308, equation 2). With the E edges of A and as many negatives per epoch (link_step.hpp):
//
//   z_uv := <H_u, H_v>
//   loss := 1 / (2 E) ( sum_{edges uv} softplus(-z_uv) + sum_{negatives uw} softplus(z_uw) )
//
// A negative that happens to be an edge of A contributes 0. link_step.hpp describes the communication. A perceptron may compute
// z_uv instead of the dot product (link_decoder.hpp).

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

// Measures of how well scores distinguish links from other pairs, as defined by the evaluator of the Open Graph Benchmark (Hu et al., arXiv
// 2005.00687; package ogb.linkproppred). With positives p and all negatives q of a split:
//
//   AUC      ( #(p > q) + #(p = q) / 2 ) / (n_p n_q)
//   rank_p   1 + ( #(q > p) + #(q >= p) ) / 2        the mean of the optimistic and the pessimistic rank of ties
//   MRR      mean of 1 / rank_p
//   Hits@K   share of the positives with p > the K-th largest q; 1 if there are fewer than K negatives
//
// For MRR the Open Graph Benchmark ranks each positive among its own negatives; here all positives have the same negatives.

/// Measures for the scores of all ranks together. Also the mean binary cross-entropy, and the number of scores with the right sign
/// (0 counts as negative). If the loss is not finite, nothing is ranked. Memory per rank: the scores of all negatives, 8 bytes
/// each. Cost: one sort of them, and two searches for each positive of the rank. Collective over `comm`.
[[nodiscard]] SplitScore score_links(runtime::Communicator const& comm, std::span<double const> positives,
                                     std::span<double const> negatives);

/// Largest memory of score_links() on a rank, including its arguments.
[[nodiscard]] std::int64_t bytes_of_link_scores(graph::StoreFacts const& facts);

template<class T>
class LinkLoss final : public Objective<T> {
 public:
  /// `outputs`: placement [{x,y,z},-] of the outputs, whose rows are whole and have one owner each. `roles`: roles of the axes.
  /// `seed`: seed of the negatives. Reads this rank's block of A and the store's links. `grid` must outlive this object. Collective
  /// over the grid's group. The store must have held-out edges, and an edge to train on; otherwise throws UserError.
  LinkLoss(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Roles const& roles,
           pmm::Placement const& outputs, std::uint64_t seed);

  /// Uses this perceptron for all scores, instead of dot products. Call it before the first score is computed. Not collective.
  void use_decoder(DecoderParameters<T> parameters);

  /// Draws the negatives of an epoch; call it before the epoch's loss. Work that uses the last negatives must be complete. Not collective.
  void draw(std::uint64_t epoch);

  /// Returns 2 E.
  [[nodiscard]] std::int64_t num_terms() const override { return 2 * num_edges_; }
  /// `loss` must have one element, and `gradient` must not be `outputs`; otherwise throws Error. Collective over the
  /// grid's group. Enqueues on exec.
  void loss_and_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs,
                         pmm::DistMatrix<T> const& gradient, std::int64_t num_counted,
                         runtime::Vector<double> const& loss, double gradient_scale) override;
  /// Scores of valid and test; the count of train is 0. Collective over the grid's group. Fences exec.
  [[nodiscard]] Scores evaluate(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs) override;
  [[nodiscard]] double scale_to_one(std::int64_t num_counted) const override;
  [[nodiscard]] bool repeats_itself() const override { return false; }
  [[nodiscard]] bool has_decoder() const override { return decoder_.has_value(); }

  [[nodiscard]] LinkPlan const& plan() const { return plan_; }
  /// Number of links in this rank's block, for the epoch drawn last.
  [[nodiscard]] LinkCounts counts() const;

 private:
  [[nodiscard]] pmm::Heads part() const { return {1, rows_.steps().part.columns()}; }
  void bring(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs);
  /// Writes this rank's partial scores of a list's links to scores[begin, ..). Returns the position of the next list's scores.
  std::int64_t score(runtime::DefaultExec const& exec, pmm::EdgeBlock const& block, std::int64_t begin) const;
  void sum_scores(runtime::DefaultExec const& exec, std::int64_t count) const;
  void count_product(std::int64_t num_links) const;
  /// loss(0) := the loss. Overwrites the scores by the derivatives of the loss.
  void find_loss(runtime::DefaultExec const& exec, std::int64_t num_links, double scale,
                 double gradient_scale, runtime::Vector<double> const& loss) const;
  /// Computes loss and gradient with the perceptron.
  void decode_loss_and_gradient(runtime::DefaultExec const& exec, runtime::Vector<T> const& dh, double scale,
                                double gradient_scale, runtime::Vector<double> const& loss) const;

  pmm::ProcessGrid const& grid_;
  LinkPlan plan_;
  std::int64_t num_edges_ = 0;           // E
  std::vector<pmm::PairLists> held_out_; // in the order of held_out_lists
  std::optional<pmm::PairLists> positives_, negatives_;
  std::optional<NegativeLinks> drawer_;
  std::int64_t num_entries_ = 0; // of the block
  std::shared_ptr<pmm::Workspace<T>> workspace_;
  pmm::BlockRows<T> rows_, columns_;
  runtime::Vector<T> x_memory_, y_memory_, gradient_memory_, second_gradient_;
  runtime::GrowingVector<T> scores_memory_;
  runtime::Vector<T> scores_;                 // view of scores_memory_
  runtime::Vector<T> x_, y_;                  // rows of H on the block, since bring()
  std::optional<LinkDecoder<T>> decoder_;     // nullopt: dot products
  runtime::Vector<T> column_gradient_memory_; // for the decoder
};

/// The whole graph with new negatives in each epoch. An epoch is one step.
template<class T>
class LinkBatches final : public BatchSource {
 public:
  /// `loss` must outlive this object.
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

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Objective of a training: a loss that depends on a network's outputs, its gradient by the outputs, and scores of the outputs. A
// loss per row (pmm/rows/row_loss.hpp) is one kind. Functions are collective over the grid's group.

#include "models/training/vertex_loss.hpp"

namespace orthant::models {

template<class T>
class Objective {
 public:
  virtual ~Objective() = default;

  /// Number of terms that the loss is a mean over, on all ranks.
  [[nodiscard]] virtual std::int64_t num_terms() const = 0;
  /// loss(0) := the loss; gradient := its derivative by the outputs, times `gradient_scale`. The divisor is `num_counted`,
  /// which differs from num_terms() if the step has terms elsewhere. If `loss` has two elements, loss(1) := the number of
  /// terms. Enqueues on exec; does not fence.
  virtual void loss_and_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs,
                                 pmm::DistMatrix<T> const& gradient, std::int64_t num_counted,
                                 runtime::Vector<double> const& loss, double gradient_scale) = 0;
  /// Scores by split. Fences exec.
  [[nodiscard]] virtual Scores evaluate(runtime::DefaultExec const& exec,
                                        pmm::DistMatrix<T> const& outputs) = 0;
  /// Power of two that scales a gradient to about one (RowLoss::scale_to_one).
  [[nodiscard]] virtual double scale_to_one(std::int64_t num_counted) const = 0;
  /// Whether all steps are equal except for the parameters. Such a step may be recorded and replayed.
  [[nodiscard]] virtual bool repeats_itself() const { return true; }
  /// Whether a decoder with its own parameters scores the outputs.
  [[nodiscard]] virtual bool has_decoder() const { return false; }
};

/// Adapter for a loss of rows, which must outlive it.
template<class T>
class RowObjective final : public Objective<T> {
 public:
  explicit RowObjective(pmm::RowLoss<T>& loss) : loss_(loss) {}

  [[nodiscard]] std::int64_t num_terms() const override { return loss_.num_rows(pmm::loss_row_group); }
  void loss_and_gradient(runtime::DefaultExec const& exec, pmm::DistMatrix<T> const& outputs,
                         pmm::DistMatrix<T> const& gradient, std::int64_t num_counted,
                         runtime::Vector<double> const& loss, double gradient_scale) override {
    loss_.loss_and_gradient(exec, outputs, gradient, num_counted, loss, gradient_scale);
  }
  [[nodiscard]] Scores evaluate(runtime::DefaultExec const& exec,
                                pmm::DistMatrix<T> const& outputs) override {
    return scores_of(loss_.evaluate(exec, outputs));
  }
  [[nodiscard]] double scale_to_one(std::int64_t num_counted) const override {
    return loss_.scale_to_one(num_counted);
  }

 private:
  pmm::RowLoss<T>& loss_;
};

} // namespace orthant::models

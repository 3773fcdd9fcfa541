#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The aggregation of a registered convolution (gnn/plan/gnn_model.hpp). It is a class template that derives from Aggregation:
//
//   template<class T>
//   class Mine final : public models::Aggregation<T> {
//    public:
//     explicit Mine(models::OwnAggregationParts<T> parts);
//     void forward(..) override;             // to := g(from)
//     void backward(..) override;            // reads the gradient of the result from `from`, writes that of the operand to `to`
//   };
//   models::register_convolution<Mine>({.name = "mine", .summary = "..", ..});
//
// The operand of g is the layer's whole input, with the placement of F; the result has the placement of A^ F. A layer calls forward()
// before backward(), and calls forward() once if it keeps g(X) of features that do not change. Each mini-batch has an object of its own.

#include "models/gnn/aggregation/aggregation.hpp"
#include "models/gnn/plan/gnn_model.hpp"
#include "runtime/error.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace orthant::models {

/// What an aggregation is made of.
template<class T>
struct OwnAggregationParts {
  pmm::ProcessGrid const& grid;
  NetworkLayerPlan const& plan;                 // valid during the construction only
  std::unique_ptr<Aggregation<T>> of_neighbors; // multiplies by A^, and by its adjoint in backward()
  /// Convolution::num_kept_inputs matrices with the placement of F, and num_kept_results matrices with the placement of A^ F. Their
  /// contents stay valid from forward() to the next backward(). They are not initialized.
  std::vector<pmm::DistMatrix<T>> kept_inputs, kept_results;
};

/// Registers a convolution whose aggregation is Mine<T>.
template<template<class> class Mine>
void register_convolution(Convolution convolution) {
  convolution.make_float = [](OwnAggregationParts<float> parts) {
    return std::make_unique<Mine<float>>(std::move(parts));
  };
  convolution.make_double = [](OwnAggregationParts<double> parts) {
    return std::make_unique<Mine<double>>(std::move(parts));
  };
  register_convolution(std::move(convolution));
}

/// Usual base class of Mine: an aggregation that starts from A^ F and does not communicate itself.
template<class T>
class OwnAggregation : public Aggregation<T> {
 public:
  explicit OwnAggregation(OwnAggregationParts<T> parts) : parts_(std::move(parts)) {}

  void forward_to_logits(runtime::DefaultExec const&, pmm::DistMatrix<T> const&,
                         pmm::DistMatrix<T> const&) final {
    ORTHANT_REQUIRE(false, "a registered convolution aggregates first");
  }

 protected:
  OwnAggregationParts<T> parts_;
};

/// Memory of the kept matrices of one layer. It never shrinks.
template<class T>
using OwnMemory = std::vector<GrowingVector<T>>;

/// Lists this memory.
void plan_own_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer);

/// Makes the aggregation of a layer with a registered convolution. `grid` and `memory` must outlive it.
template<class T>
[[nodiscard]] std::unique_ptr<Aggregation<T>>
make_own_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                     std::unique_ptr<Aggregation<T>> of_neighbors, OwnMemory<T>& memory);

} // namespace orthant::models

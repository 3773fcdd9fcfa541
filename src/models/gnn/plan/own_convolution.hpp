#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Convolutions that a program defines (docs/extend/convolution.md). With an aggregation g in place of A^ F a layer is
//
//   Q = g(F) W + b          or, with a weight for the vertex itself,          Q = g(F) W + F W' + b
//
// A registered convolution can be used like a built-in model: all options of a training, both schedules, mini-batches and weights files
// apply to it. g is an Aggregation (gnn/aggregation/own_aggregation.hpp), which usually computes A^ of its own operand.

#include "graph/store/store_format.hpp"
#include "pmm/cost/step_plan.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

struct NetworkLayerPlan;
template<class T>
class Aggregation;
template<class T>
struct OwnAggregationParts;

/// Adds the operations of g in one layer to a list, except those of A^.
using ListOwnOperations = std::function<void(pmm::StepPlan&, NetworkLayerPlan const&)>;
template<class T>
using MakeOwnAggregation = std::function<std::unique_ptr<Aggregation<T>>(OwnAggregationParts<T>)>;

/// Properties of a convolution that Orthant needs. register_convolution<Mine>() fills in the last two members.
struct Convolution {
  std::string name;                                     // of --model
  std::string summary;                                  // for the help of --model
  std::optional<graph::GraphOperator> graph_operator{}; // nullopt: --normalize and --self-loops choose it
  bool has_self_weights = false;                        // W'
  std::int64_t num_kept_inputs = 0;                     // matrices per layer with the placement of F
  std::int64_t num_kept_results = 0;                    // matrices per layer with the placement of g(F)
  /// Without these two, the lists of `plan` have the operations of A^ alone.
  ListOwnOperations list_forward{}, list_backward{};
  MakeOwnAggregation<float> make_float{};
  MakeOwnAggregation<double> make_double{};

  /// Whether orthant plan can list all operations of a layer.
  [[nodiscard]] bool is_listed() const { return list_forward && list_backward; }
};

/// Registers a convolution in this process. Call it before the command line is read. All ranks must register the same convolutions in the
/// same order. Throws Error if the name is taken. Not safe to call from two threads.
void register_convolution(Convolution convolution);

/// In the order in which they were registered.
[[nodiscard]] std::vector<std::shared_ptr<Convolution const>> const& registered_convolutions();

} // namespace orthant::models

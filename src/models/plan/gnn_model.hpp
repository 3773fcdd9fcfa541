#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What distinguishes the models of graphs: what a layer computes besides A^ F W, and what A^ is. With w_ij the weight of an
// edge, 1 if there are none, N(i) the neighbours of i, and A without self loops:
//
//   gcn        Q = A^ F W                              A^ is that of the store, or as --normalize asks
//   sage mean  Q = A^ F W + F W'                       A^ = D^-1 A: the mean of the neighbours, 0 if there are none
//   sage sum   Q = A^ F W + F W'                       A^ = A
//   gin        Q = (A^ F + (1 + epsilon) F) W          A^ = A; epsilon is learned, and relu(Q + b) W'' + b'' comes after it:
//              a perceptron of two layers, of which the head is the last one's second
//
// Sources: Kipf & Welling (arXiv 1609.02907); Hamilton, Ying & Leskovec (arXiv 1706.02216), the form without sampling,
// whose concatenation [F | A^ F] is multiplied by the two halves of its weight; Xu, Hu, Leskovec & Jegelka (arXiv 1810.00826).

#include "graph/store/store_format.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace orthant::models {

enum class Model : std::uint8_t { gcn, sage, gin };

/// How GraphSAGE puts neighbours together.
enum class Aggregator : std::uint8_t { mean, sum };

/// "gcn", "sage" or "gin", and "mean" or "sum". Throw UserError for another word.
[[nodiscard]] Model parse_model(std::string_view word);
[[nodiscard]] Aggregator parse_aggregator(std::string_view word);
[[nodiscard]] std::string_view name_of(Model model);
[[nodiscard]] std::string_view name_of(Aggregator aggregator);

struct ModelTraits {
  bool has_self_weights = false;                        // W' of each layer
  bool has_self_scales = false;                         // epsilon of each layer
  bool has_perceptrons = false;                         // W'' of each layer, the last one's is the head
  std::optional<graph::GraphOperator> graph_operator{}; // none: that of the store, or of the user
};
[[nodiscard]] ModelTraits traits_of(Model model, Aggregator aggregator);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Facts of graphs that need not exist, for plans.

#include "graph/store/store_reader.hpp"

#include <cstdint>

namespace orthant::testing {

/// A symmetric graph with dense features and one class per vertex. `num_nonzeros` counts those of A^, with a self loop per vertex.
inline graph::StoreFacts facts_of(std::int64_t num_vertices, std::int64_t num_nonzeros,
                                  std::int64_t num_features, std::int64_t num_classes) {
  graph::StoreFacts facts;
  facts.num_vertices = num_vertices;
  facts.num_entries = num_nonzeros - num_vertices;
  facts.is_symmetric = true;
  facts.feature_kind = graph::FeatureKind::dense;
  facts.num_features = num_features;
  facts.label_kind = graph::LabelKind::single;
  facts.num_classes = num_classes;
  return facts;
}

} // namespace orthant::testing

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The orders in which matrices of vertices are numbered: the two of the store (docs/design.md 2.2).

#include "graph/store/store_reader.hpp"
#include "pmm/grid/layout.hpp"
#include "runtime/error.hpp"

namespace orthant::models {

inline constexpr pmm::IndexOrder order_p1{"p1"};
inline constexpr pmm::IndexOrder order_p2{"p2"};

/// The store's name of an order of rows. Error for any other, in which no vertex is stored.
[[nodiscard]] inline graph::Order order_of(pmm::IndexOrder order) {
  ORTHANT_REQUIRE(order == order_p1 || order == order_p2, "no vertex is stored in order ", order.name);
  return order == order_p1 ? graph::Order::p1 : graph::Order::p2;
}

/// The function that gives the original ids of the vertices at some positions of an order. `store` must outlive
/// it. It is not collective, and throws UserError if the store cannot be read.
[[nodiscard]] inline auto original_ids_of(graph::GraphStore const& store) {
  return [&store](pmm::IndexOrder order, runtime::Range rows) {
    return store.read_original_ids(order_of(order), rows);
  };
}

} // namespace orthant::models

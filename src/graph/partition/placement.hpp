#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The positions of all vertices in orders p1 and p2, distributed by original id, and functions that move values to the owners of positions.

#include "graph/exchange.hpp"
#include "graph/partition/permutation.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/store_format.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// Positions of this rank's block of vertices, by original id.
struct Placement {
  std::int64_t num_vertices = 0;
  Range vertices;
  bool has_two_orders = false;
  std::array<std::vector<std::int64_t>, 2> positions; // in p1, and in p2 if there are two orders

  [[nodiscard]] std::vector<std::int64_t> const& of(Order order) const {
    return positions[has_two_orders && order == Order::p2 ? 1 : 0];
  }
};

/// Clusters of this rank's block of vertices: contiguous ranges of ids of equal size.
[[nodiscard]] std::vector<std::int32_t> clusters_by_id(runtime::Communicator const& comm,
                                                       std::int64_t num_vertices, std::int64_t num_clusters);

/// Computes the orders. `degrees`, and for PermutationKind::cluster and ::pieces also `clusters`, belong to this rank's block. For pieces,
/// the cluster numbers must ascend along the local order. The result does not depend on the number of ranks. Collective.
[[nodiscard]] Placement place_vertices(runtime::Communicator const& comm, std::int64_t num_vertices,
                                       PermutationKind kind, std::uint64_t seed,
                                       std::span<std::int64_t const> degrees,
                                       std::span<std::int32_t const> clusters);

/// values[i] belongs to the vertex at position positions[i]. result[k] is the value of the vertex at position
/// PositionOwners::range(rank).begin + k. Collective.
[[nodiscard]] std::vector<std::int64_t> to_positions(runtime::Communicator const& comm,
                                                     std::int64_t num_vertices,
                                                     std::span<std::int64_t const> positions,
                                                     std::span<std::int64_t const> values);

/// The entries `wanted` of an array that is distributed like Placement::positions (block owners). Collective; every rank requests its own
/// range, which may be empty.
[[nodiscard]] std::vector<std::int64_t> fetch_block(runtime::Communicator const& comm,
                                                    std::int64_t num_vertices,
                                                    std::span<std::int64_t const> mine, Range wanted);

/// Positions in p2 of the vertices at the positions `rows` of p1. Collective; every rank requests its own range.
[[nodiscard]] std::vector<std::int64_t> other_positions_of_rows(runtime::Communicator const& comm,
                                                                Placement const& placement, Range rows);

// Store arrays with one value per position of an order.

inline std::span<Order const> orders_of(Placement const& placement) {
  static constexpr std::array<Order, 2> both{Order::p1, Order::p2};
  return std::span(both).first(placement.has_two_orders ? 2 : 1);
}

inline std::string folder(char const* group, Order order) {
  return std::string(group) + (order == Order::p1 ? "/p1" : "/p2");
}

/// Writes this rank's share of a row of an array with one value per position, converted to T. Collective.
template<class T>
void write_row(StoreWriter& writer, std::string const& name, std::int64_t row, Placement const& placement,
               std::span<std::int64_t const> values) {
  auto const& comm = writer.comm();
  auto const mine = PositionOwners{placement.num_vertices, comm.size()}.range(comm.rank());
  runtime::together(comm, [&] {
    std::vector<T> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(),
                   [](std::int64_t value) { return static_cast<T>(value); });
    writer.write(name, row, mine.begin, std::span<T const>(narrow));
  });
}

/// Creates an array of one row and writes this rank's share of it, like the function above. Collective.
template<class T>
void write_column(StoreWriter& writer, std::string const& name, runtime::Hdf5Type type,
                  Placement const& placement, std::span<std::int64_t const> values) {
  writer.create_array(name, type, {placement.num_vertices});
  write_row<T>(writer, name, 0, placement, values);
}

/// Writes 32-bit integers if all values are below `bound` and `bound` fits, otherwise 64-bit integers. Collective.
inline void write_integers(StoreWriter& writer, std::string const& name, Placement const& placement,
                           std::span<std::int64_t const> values, std::int64_t bound) {
  if (bound <= std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1)
    write_column<std::int32_t>(writer, name, runtime::Hdf5Type::int32, placement, values);
  else
    write_column<std::int64_t>(writer, name, runtime::Hdf5Type::int64, placement, values);
}

} // namespace orthant::graph

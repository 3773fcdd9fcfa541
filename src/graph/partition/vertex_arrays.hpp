#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of a store with one value for each position of an order.

#include "graph/partition/placement.hpp"
#include "graph/store/store_writer.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

inline std::span<Order const> orders_of(Placement const& placement) {
  static constexpr std::array<Order, 2> both{Order::p1, Order::p2};
  return std::span(both).first(placement.has_two_orders ? 2 : 1);
}

inline std::string folder(char const* group, Order order) {
  return std::string(group) + (order == Order::p1 ? "/p1" : "/p2");
}

/// Writes this rank's share of an array of one value a position, converted to T. Collective.
template<class T>
void write_column(StoreWriter& writer, std::string const& name, runtime::Hdf5Type type,
                  Placement const& placement, std::span<std::int64_t const> values) {
  auto const& comm = writer.comm();
  writer.create_array(name, type, {placement.num_vertices});
  auto const mine = PositionOwners{placement.num_vertices, comm.size()}.range(comm.rank());
  runtime::together(comm, [&] {
    std::vector<T> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(),
                   [](std::int64_t value) { return static_cast<T>(value); });
    writer.write(name, 0, mine.begin, std::span<T const>(narrow));
  });
}

/// In 32 bits where all values are below `bound` and that fits.
inline void write_integers(StoreWriter& writer, std::string const& name, Placement const& placement,
                           std::span<std::int64_t const> values, std::int64_t bound) {
  if (bound <= std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1)
    write_column<std::int32_t>(writer, name, runtime::Hdf5Type::int32, placement, values);
  else
    write_column<std::int64_t>(writer, name, runtime::Hdf5Type::int64, placement, values);
}

} // namespace orthant::graph

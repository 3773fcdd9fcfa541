#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A collective that an operation is going to make. What is listed before a run equals what the ledgers count
// in it (DESIGN 2.4).

#include "runtime/communicator.hpp"
#include "runtime/wire.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orthant::pmm {

using runtime::Wire;

struct PlannedCall {
  runtime::Operation operation{};
  std::string axis;       // name of the communicator: "x", "y", "z", "data", "group"
  std::int64_t bytes = 0; // of this rank, as its ledger counts them

  friend bool operator==(PlannedCall const&, PlannedCall const&) = default;
};

/// Bytes of a number of type T on the wire.
template<class T>
[[nodiscard]] constexpr std::int64_t wire_bytes(Wire wire) {
  return wire == Wire::native ? static_cast<std::int64_t>(sizeof(T)) : 2;
}

/// Appends the call, unless the group has one rank and communicates nothing.
template<class T>
void plan_call(std::vector<PlannedCall>& calls, runtime::Communicator const& comm,
               runtime::Operation operation, std::int64_t num_elements, Wire wire = Wire::native) {
  if (comm.size() > 1) calls.push_back({operation, comm.axis(), num_elements * wire_bytes<T>(wire)});
}

} // namespace orthant::pmm

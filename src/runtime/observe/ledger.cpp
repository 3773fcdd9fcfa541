// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/ledger.hpp"

#include "runtime/range.hpp"

namespace orthant::runtime {

std::string_view name_of(Operation operation) {
  switch (operation) {
  case Operation::all_reduce:
    return "all_reduce";
  case Operation::all_gather:
    return "all_gather";
  case Operation::reduce_scatter:
    return "reduce_scatter";
  case Operation::exclusive_scan:
    return "exclusive_scan";
  case Operation::broadcast:
    return "broadcast";
  case Operation::all_to_all:
    return "all_to_all";
  case Operation::send:
    return "send";
  case Operation::receive:
    return "receive";
  case Operation::barrier:
    return "barrier";
  }
  return "unknown";
}

std::int64_t sent_bytes(Operation operation, std::int64_t bytes, int rank, int size) {
  auto const share_of = [&](std::int64_t total) { return balanced_range(total, size, rank).size(); };
  switch (operation) {
  case Operation::all_reduce:
    return share_of(2 * (size - 1) * bytes);
  case Operation::all_gather:
  case Operation::reduce_scatter:
  case Operation::exclusive_scan:
  case Operation::broadcast:
    return share_of((size - 1) * bytes);
  case Operation::all_to_all:
  case Operation::send:
    return bytes;
  case Operation::receive:
  case Operation::barrier:
    return 0;
  }
  return 0;
}

void Ledger::add_calls(Ledger const& other) {
  for (std::size_t i = 0; i < num_operations; ++i) {
    auto counted = other.entries_[i];
    counted.seconds = 0;
    entries_[i] += counted;
  }
}

LedgerEntry Ledger::total() const {
  LedgerEntry sum;
  for (auto const& entry : entries_)
    sum += entry;
  return sum;
}

} // namespace orthant::runtime

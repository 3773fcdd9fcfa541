// SPDX-License-Identifier: Apache-2.0
#include "runtime/ledger.hpp"

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

LedgerEntry Ledger::total() const {
  LedgerEntry sum;
  for (auto const& entry : entries_)
    sum += entry;
  return sum;
}

} // namespace orthant::runtime

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a sparse product's operand can be gathered with: rows at random places of as large an array, added up in
// registers (gather_loop.hpp), by all ranks at once. A product also reads its matrix and writes its result; the
// vertices that many others name stay in a nearer cache, which random places do not, so that a product can exceed it.

#include "runtime/comm/communicator.hpp"

#include <cstdint>
#include <map>
#include <utility>

namespace orthant::cli {

class GatherRoof {
 public:
  explicit GatherRoof(runtime::Communicator const& world) : world_(world) {}

  /// Bytes / s, summed over ranks, from `num_rows` rows of `row_bytes` on each (the most of all ranks count): with the
  /// best of some distances of prefetch. 0 on a device: not
  /// measured. Takes some 20 ms for each new operand. Collective.
  [[nodiscard]] double bytes_per_second(std::int64_t num_rows, std::int64_t row_bytes);

 private:
  [[nodiscard]] double measure(std::int64_t num_rows, std::int64_t lines) const;

  runtime::Communicator const& world_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> measured_; // by rows and bytes of a row
};

} // namespace orthant::cli

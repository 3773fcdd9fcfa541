#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Entries with relations and operands of the tests in this folder.

#include "pmm/relations/relation_block.hpp"
#include "support/reference.hpp"

#include <cstdint>
#include <iterator>
#include <vector>

namespace orthant::testing {

/// Adds the entries (row, column, relation) that `has` names, of these columns. `given` has sizes, and no entries.
template<class Has>
pmm::TypedEntries filled(pmm::TypedEntries given, pmm::Range columns, Has const& has) {
  given.num_columns = columns.size();
  given.row_offsets = {0};
  for (std::int64_t i = 0; i < given.num_rows; ++i) {
    for (auto j = columns.begin; j < columns.end; ++j)
      for (std::int64_t r = 0; r < given.num_relations; ++r)
        if (has(r, i, j)) {
          given.columns.push_back(static_cast<std::int32_t>(j - columns.begin));
          given.relations.push_back(static_cast<std::uint16_t>(r));
        }
    given.row_offsets.push_back(std::ssize(given.columns));
  }
  return given;
}

template<class Number>
std::vector<Number> reals(std::uint64_t seed, std::int64_t rows, std::int64_t columns) {
  std::vector<Number> numbers;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      numbers.push_back(small_real(seed, i, j));
  return numbers;
}

} // namespace orthant::testing

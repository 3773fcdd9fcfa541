#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Targets of all rows, of which a rank takes a part.

#include "pmm/rows/row_loss.hpp"
#include "support/dist_checks.hpp"

#include <cstdint>
#include <vector>

namespace orthant::testing {

using pmm::Block;
using pmm::Matrix;
using pmm::max_row_groups;
using pmm::RowTargets;

/// Whole targets: about as many rows in each group as in none, some without label.
struct WholeTargets {
  std::vector<std::int8_t> groups;
  std::vector<std::int32_t> classes;
  Dense indicator;

  WholeTargets(std::int64_t rows, std::int64_t num_classes, int num_groups = max_row_groups)
      : indicator(rows, num_classes) {
    for (std::int64_t i = 0; i < rows; ++i) {
      groups.push_back(static_cast<std::int8_t>(
          static_cast<int>(mixed(51, i) % static_cast<std::uint64_t>(num_groups + 1)) - 1));
      classes.push_back(mixed(52, i) % 5 == 0 ? -1
                                              : static_cast<std::int32_t>(
                                                    mixed(53, i) % static_cast<std::uint64_t>(num_classes)));
      for (std::int64_t j = 0; j < num_classes; ++j)
        indicator(i, j) = mixed(54, i, j) % 5 == 0 ? -1.0 : static_cast<double>(mixed(55, i, j) % 2);
    }
  }

  [[nodiscard]] RowTargets part(Block const& block) const {
    auto const rows = block.stored_rows;
    RowTargets targets;
    targets.groups = device_copy(std::vector(groups.begin() + rows.begin, groups.begin() + rows.end));
    targets.classes = device_copy(std::vector(classes.begin() + rows.begin, classes.begin() + rows.end));
    targets.indicator = Matrix<std::int8_t>("indicator", static_cast<std::size_t>(rows.size()),
                                            static_cast<std::size_t>(block.columns.size()));
    auto const host = Kokkos::create_mirror_view(targets.indicator);
    for (std::int64_t i = 0; i < rows.size(); ++i)
      for (std::int64_t j = 0; j < block.columns.size(); ++j)
        host(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) =
            static_cast<std::int8_t>(indicator(rows.begin + i, block.columns.begin + j));
    Kokkos::deep_copy(targets.indicator, host);
    return targets;
  }

  [[nodiscard]] int group(std::int64_t i) const { return groups[static_cast<std::size_t>(i)]; }
  [[nodiscard]] int label(std::int64_t i) const { return classes[static_cast<std::size_t>(i)]; }
};

} // namespace orthant::testing

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which sizes of a language model waste work on a grid. Matrix units multiply in tiles of at least 64 x 64 numbers and load 16
// bytes at a time, 8 numbers of 16 bits; a size that is no multiple is rounded up to one. And parts of a size that the grid cuts
// unevenly wait for the largest.

#include "models/lm/experts/transformer_settings.hpp"
#include "models/lm/training/sequence_rows.hpp"
#include "pmm/grid/process_grid.hpp"

#include <string>
#include <vector>

namespace orthant::models {

/// One line for each size, with one that would be better; none if nothing is wasted.
[[nodiscard]] std::vector<std::string> advice_on_shapes(pmm::GridShape const& shape,
                                                        TransformerSettings const& model,
                                                        SequenceSettings const& sequences);

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Labels that are not the numbers of classes: targets of regression, names of classes, and numbers that serve as names.

#include "graph/arrays/npy_streams.hpp"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace orthant::graph {

/// True if a finite number in these rows of an array of floating-point numbers is not an integer.
[[nodiscard]] bool has_fractions(NpyArray array, Range rows);
/// Targets: [N] or [N, T] of floating-point numbers, nan = none.
[[nodiscard]] std::unique_ptr<LabelStream> read_npy_targets(OpenArray const& labels, Range rows,
                                                            std::int64_t batch_rows);

/// The different texts in these rows of an array [N] or [N, 1], without the empty one. Throws UserError if there are more than
/// most_class_names.
[[nodiscard]] std::set<std::string> read_npy_names(NpyArray array, Range rows);
/// Classes from an array of texts: the class is the index of the text in `names`, which must ascend; -1 for the empty text.
[[nodiscard]] std::unique_ptr<LabelStream>
read_npy_named_classes(OpenArray const& labels, Range rows,
                       std::shared_ptr<std::vector<std::string> const> names, std::int64_t batch_rows);

/// Converts the labels to classes: the class is the index of the label in `numbers`, which must ascend and contain all labels.
[[nodiscard]] std::unique_ptr<LabelStream>
renumbered(std::unique_ptr<LabelStream> labels, std::shared_ptr<std::vector<std::int64_t> const> numbers);

} // namespace orthant::graph

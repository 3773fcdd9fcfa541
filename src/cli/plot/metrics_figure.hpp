#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From metrics files (docs/metrics.md) to a figure: loss, accuracy, and the time of epochs or the throughput.

#include "cli/plot/figure.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace orthant::cli {

enum class XAxis : std::uint8_t {
  steps,  // epochs of `train`, steps of `train-lm`
  seconds // of training, without evaluations
};

/// A run is what one training wrote, however often it was stopped and went on. It is named after its file. Figures of one run show
/// all splits, others the loss of training and the validation. A number that was not finite, which files have as null, or that is larger than largest_plotted is left
/// out. Throws UserError if a file cannot be read or is no metrics file, if there is no epoch or step, and if some
/// runs have epochs and others steps.
[[nodiscard]] Figure figure_of_metrics(std::span<std::string const> paths, XAxis x);

} // namespace orthant::cli

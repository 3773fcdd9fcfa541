// SPDX-License-Identifier: Apache-2.0
#include "models/lm/training/shape_advice.hpp"

#include <fmt/format.h>
#include <string_view>

namespace orthant::models {
namespace {

constexpr std::int64_t tile = 64;       // rows and columns of the smallest efficient one
constexpr std::int64_t of_one_load = 8; // numbers of 16 bits in 16 bytes

/// A size that a grid cuts, in whole parts that are to be multiples of a tile.
struct CutSize {
  std::string_view name;
  std::int64_t size = 0;
  std::string_view axes; // that cut it
  std::int64_t num_parts = 1;
  std::int64_t multiple = 1; // of each part
};

std::int64_t rounded_up(std::int64_t size, std::int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

} // namespace

std::vector<std::string> advice_on_shapes(pmm::GridShape const& shape, TransformerSettings const& model,
                                          SequenceSettings const& sequences) {
  auto const num_batch_parts = std::int64_t{shape.size(pmm::batch_axes(shape).with(pmm::Axis::z))};
  std::vector<std::string> advice;
  for (auto const& [name, size, axes, num_parts, multiple] :
       {CutSize{"the vocabulary", model.vocabulary, "x", shape.x, tile},
        {"--hidden", model.hidden, "y", shape.y, tile},
        {"--feed-forward", model.feed_forward, "x", shape.x, tile},
        {"the width of a head (--hidden / --heads)", model.head_dim(), "", 1, of_one_load},
        {"--sequence", sequences.sequence, "", 1, of_one_load},
        {"--global-batch / --accumulate", sequences.num_sequences(), "data x z", num_batch_parts, 1}}) {
    auto const better = rounded_up(size, num_parts * multiple);
    if (better == size) continue;
    auto const of_a_part = (size + num_parts - 1) / num_parts; // of the largest
    auto const used =
        static_cast<double>(size) / static_cast<double>(num_parts * rounded_up(of_a_part, multiple));
    auto const what =
        size % num_parts != 0 ? fmt::format("{} ranks along {} cut it unevenly", num_parts, axes)
        : num_parts > 1 ? fmt::format("a part along {} is {}, no multiple of {}", axes, of_a_part, multiple)
                        : fmt::format("it is no multiple of {}", multiple);
    advice.push_back(fmt::format("{} {}: {}, so {:.1f} % of the work is of use; {} would be even", name, size,
                                 what, 100 * used, better));
  }
  return advice;
}

} // namespace orthant::models

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Gradients of a mean over n vertices are about 1 / n. From n = 10^7 on that is less than the smallest number of
// fp16, 2^-24, and the 16-bit wire would carry zeros, as 16-bit operands would be zeros. So the gradient of the loss
// is multiplied by a power of two near n / 256, which leaves 2^24 above it and 2^16 below; every gradient that
// follows from it is as much larger, and the step that ends with the optimizer divides by it. Multiplying by a power
// of two is exact. bf16 has the exponents of fp32 and needs none of this.

#include "models/training/objective.hpp"
#include "runtime/numbers/wire.hpp"

#include <algorithm>

namespace orthant::models {

/// What the gradient of a loss over `num_counted` vertices is multiplied by: 1 unless gradients pass
/// through fp16 (Network::narrowest_format). The same on all ranks.
template<class T>
[[nodiscard]] double gradient_scale(runtime::Wire format, Objective<T> const& loss,
                                    std::int64_t num_counted) {
  constexpr double headroom =
      256; // gradients of hubs and of small activations are larger than those of the loss
  return format == runtime::Wire::fp16 ? std::max(loss.scale_to_one(num_counted) / headroom, 1.0) : 1.0;
}

} // namespace orthant::models

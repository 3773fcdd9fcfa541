#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a product is besides its form and its placements: what happens to the old result, what its numbers are
// held in, and how they travel.

#include "pmm/cost/step_plan.hpp"

#include <cstdint>

namespace orthant::pmm {

/// What becomes of the result's old numbers.
///
///   assign   C := A B
///   add      C := C + A B
///
/// The partial products of the ranks along C's third axis are summed first. Then each rank adds the sum to the
/// numbers that it stores, so the old result is added once, and a 16-bit wire does not round it. If nothing is
/// summed over ranks, the local product adds to C as it runs.
enum class Update : std::uint8_t { assign, add };

struct ProductOptions {
  Wire operand_wire = Wire::native;
  Wire result_wire = Wire::native;
  std::int64_t num_chunks = 1; // row chunks of a replicated result, each reduced while the next is computed
  Update update = Update::assign;
  /// What the numbers are held in. Native is the scalar of training. A 16-bit format needs fp32 training, and
  /// operands in it travel as they are (operand_wire is native). A 16-bit result needs operands in the same
  /// format, and is rounded once, after the sum over ranks, which is in fp32.
  Wire operand_format = Wire::native;
  Wire result_format = Wire::native;
};

/// Throws Error if the formats do not fit one another. `scalar_bytes`: of the scalar of training.
void require_formats(ProductOptions const& options, std::int64_t scalar_bytes);

} // namespace orthant::pmm

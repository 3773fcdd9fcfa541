#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which numbers in a file of labels say that a vertex has none.

namespace orthant::graph {

/// -1, or -100, the class that PyTorch's losses ignore. Elsewhere in Orthant it is -1.
template<class Number>
[[nodiscard]] constexpr bool is_no_label(Number number) {
  return number == Number{-1} || number == Number{-100};
}

} // namespace orthant::graph

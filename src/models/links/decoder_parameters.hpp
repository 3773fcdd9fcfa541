#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a perceptron that scores links, as its kernels use them: whole on every rank, with this rank's addends of their
// gradients. They lie in the network's array of all parameters, so its passes bring the numbers and sum the addends.

#include "runtime/arrays/views.hpp"

namespace orthant::models {

template<class T>
struct DecoderParameters {
  struct Layer {
    runtime::Vector<T> weight, weight_gradient; // [inputs x outputs], row-major
    runtime::Vector<T> bias, bias_gradient;     // [outputs], or empty
  };
  Layer hidden; // W_1 [width of H x K], b_1
  Layer output; // w_2 [K], b_2

  /// K; 0: there is none.
  [[nodiscard]] std::int64_t hidden_width() const {
    return static_cast<std::int64_t>(output.weight.extent(0));
  }
  [[nodiscard]] bool has_bias() const { return hidden.bias.extent(0) > 0; }
};

} // namespace orthant::models

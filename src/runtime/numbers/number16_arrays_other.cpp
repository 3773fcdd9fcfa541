// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64: the baseline is what the compiler's target has.
#include "runtime/numbers/number16_arrays.hpp"

namespace orthant::runtime {

template<class Number>
std::vector<Number16Arrays<Number>> supported_number16_arrays() {
  return {number16_arrays_baseline<Number>()};
}

template std::vector<Number16Arrays<Bf16Number>> supported_number16_arrays();
template std::vector<Number16Arrays<Fp16Number>> supported_number16_arrays();

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/number16_arrays_kernel.inc"

namespace orthant::runtime {

template<class Number>
Number16Arrays<Number> number16_arrays_baseline() {
  return number16_arrays<Number>;
}

template Number16Arrays<Bf16Number> number16_arrays_baseline();
template Number16Arrays<Fp16Number> number16_arrays_baseline();

} // namespace orthant::runtime

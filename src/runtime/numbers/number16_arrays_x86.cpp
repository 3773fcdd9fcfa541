// SPDX-License-Identifier: Apache-2.0
#include "runtime/numbers/number16_arrays.hpp"

namespace orthant::runtime {

template<class Number>
std::vector<Number16Arrays<Number>> supported_number16_arrays() {
  std::vector<Number16Arrays<Number>> arrays{number16_arrays_baseline<Number>()};
  if (__builtin_cpu_supports("avx2")) arrays.push_back(number16_arrays_avx2<Number>());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    arrays.push_back(number16_arrays_avx512<Number>());
  return arrays;
}

template std::vector<Number16Arrays<Bf16Number>> supported_number16_arrays();
template std::vector<Number16Arrays<Fp16Number>> supported_number16_arrays();

} // namespace orthant::runtime

// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine/processor.hpp"

namespace orthant::runtime {

std::string_view name_of(Vectors vectors) {
  switch (vectors) {
  case Vectors::unknown:
    break;
  case Vectors::sse:
    return "SSE";
  case Vectors::avx:
    return "AVX";
  case Vectors::avx2:
    return "AVX2";
  case Vectors::avx512:
    return "AVX-512";
  }
  return "unknown";
}

} // namespace orthant::runtime

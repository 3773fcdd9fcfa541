// SPDX-License-Identifier: Apache-2.0
//
// For builds without LIBXSMM; otherwise libxsmm_library.cpp takes its place.
#include "pmm/gemm/dense_library.hpp"

namespace orthant::pmm::detail {

DenseLibrary const* libxsmm_library() {
  return nullptr;
}

} // namespace orthant::pmm::detail

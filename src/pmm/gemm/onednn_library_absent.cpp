// SPDX-License-Identifier: Apache-2.0
//
// For builds without oneDNN; otherwise onednn_library.cpp takes its place.
#include "pmm/gemm/dense_library.hpp"

namespace orthant::pmm::detail {

DenseLibrary const* onednn_library() {
  return nullptr;
}

} // namespace orthant::pmm::detail

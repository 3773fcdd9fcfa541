// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/blas_library.hpp"

// Only OpenBLAS has these functions. They are weak, so that another BLAS may take its place.
extern "C" {
[[gnu::weak]] char* openblas_get_corename();
[[gnu::weak]] char* openblas_get_config();
}

namespace orthant::pmm {

BlasLibrary find_blas_library() {
  if (openblas_get_corename == nullptr || openblas_get_config == nullptr) return {"unknown", "", false};
  std::string_view const config = openblas_get_config(); // "OpenBLAS 0.3.21 DYNAMIC_ARCH .. MAX_THREADS=64"
  std::string name = "OpenBLAS";
  if (auto const space = config.find(' '); config.starts_with("OpenBLAS ") && space != std::string_view::npos)
    name = config.substr(0, config.find(' ', space + 1));
  return {name, openblas_get_corename(), config.find("DYNAMIC_ARCH") != std::string_view::npos};
}

} // namespace orthant::pmm

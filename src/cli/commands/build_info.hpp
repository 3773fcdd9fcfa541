#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What this program was built from and with.

#include <nlohmann/json.hpp>
#include <string>

namespace orthant::cli {

/// "0.1.0 (v0.1.0-3-gabcdef)": version and the commit it was built from.
[[nodiscard]] std::string version();

/// {"build":..,"compiler":..,"kokkos":..,"spaces":[..],"mpi":..,"nccl":..,"hdf5":..,
/// "gemm_math":[..],"blas":"OpenBLAS 0.3.21","blas_core":"SkylakeX",
/// "dense_libraries":["OpenBLAS 0.3.21 (SkylakeX)","oneDNN 2.6.3"],"processor":..,"vectors":"AVX-512"}, of this rank
[[nodiscard]] nlohmann::ordered_json backends();

/// The same for people; the text of --version.
[[nodiscard]] std::string describe_build();

} // namespace orthant::cli

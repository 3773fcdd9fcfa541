#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Version, compiler and libraries of this program, for --version, `info` and the metrics.

#include <nlohmann/json.hpp>
#include <string>

namespace orthant::cli {

/// Version and commit: "0.1.0 (v0.1.0-3-gabcdef)".
[[nodiscard]] std::string version();

/// {"build":..,"compiler":..,"kokkos":..,"spaces":[..],"mpi":..,"nccl":..,"hdf5":..,
/// "gemm_math":[..],"blas":"OpenBLAS 0.3.21","blas_core":"SkylakeX",
/// "dense_libraries":["OpenBLAS 0.3.21 (SkylakeX)","oneDNN 2.6.3"],"processor":..,"vectors":"AVX-512"} on this rank
[[nodiscard]] nlohmann::ordered_json backends();

/// The facts of backends() as text: the output of --version.
[[nodiscard]] std::string describe_build();

} // namespace orthant::cli

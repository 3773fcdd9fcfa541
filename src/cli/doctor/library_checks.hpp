#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The libraries that multiply and communicate, and the files that configure them.

#include "cli/doctor/launch_checks.hpp"
#include "pmm/gemm/blas_library.hpp"

namespace orthant::cli {

/// Whether the kernels of OpenBLAS have narrower vectors than the processor.
[[nodiscard]] Diagnosis check_blas(pmm::BlasLibrary const& library, runtime::Processor const& processor,
                                   Variable const& variable);
/// Whether MPI reads device memory itself. On host processors it need not.
[[nodiscard]] Diagnosis check_device_mpi(bool has_devices, bool is_device_aware);
/// Whether the network plug-in of NCCL that the environment names, or a Slingshot network needs, can be loaded.
[[nodiscard]] Diagnosis check_nccl(bool has_nccl, int num_hosts, bool has_slingshot, Variable const& variable,
                                   std::function<bool(std::string const&)> const& can_load);
/// Whether the files are there that the environment and `machine` name for machine and network.
[[nodiscard]] Diagnosis check_fabric_files(std::string const& machine, Variable const& variable);

/// Whether a machine of that name comes with Orthant or its file is there.
[[nodiscard]] bool is_known_machine(std::string const& name_or_path);

} // namespace orthant::cli

# SPDX-License-Identifier: Apache-2.0

import os

from spack.package import *


class Orthant(CMakePackage, CudaPackage, ROCmPackage):
    """Trains graph neural networks on supercomputers: full-graph with 3D parallel matrix
    multiplication, mini-batch with communication-free sampling on a four-dimensional grid."""

    # The repository in which this recipe lies.
    git = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))

    license("Apache-2.0")

    version("main", branch="main")

    variant("openmp", default=False, description="Threads of the host through Kokkos")
    variant("nccl", default=False, description="Collectives of device buffers through NCCL or RCCL")
    variant("onednn", default=True, description="Dense products of the host through oneDNN too")
    variant("libxsmm", default=True, description="Dense products of the host through LIBXSMM too")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("python@3.9:", type=("build", "test"))

    depends_on("mpi")
    depends_on("hdf5@1.10: +mpi")
    depends_on("metis@5.1: ~int64 ~real64")
    depends_on("openblas")
    depends_on("onednn@2.6: cpu_runtime=omp", when="+onednn")
    depends_on("libxsmm@1.17", when="+libxsmm")
    depends_on("zlib-api")
    depends_on("libzip")
    depends_on("cli11@2.1:")
    depends_on("tomlplusplus@3.3:")
    depends_on("fmt@9:")
    depends_on("spdlog@1.10: +fmt_external")
    depends_on("nlohmann-json@3.11:")

    # 4.6.01 is the release that Orthant was run with.
    depends_on("kokkos@4.6.01 +serial")
    depends_on("kokkos +openmp", when="+openmp")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos +cuda +wrapper cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    for arch in ROCmPackage.amdgpu_targets:
        depends_on(f"kokkos +rocm amdgpu_target={arch}", when=f"+rocm amdgpu_target={arch}")
    depends_on("hipblas", when="+rocm")
    depends_on("rocsparse", when="+rocm")
    depends_on("nccl", when="+nccl +cuda")
    depends_on("rccl", when="+nccl +rocm")

    conflicts("+cuda", when="+rocm", msg="a build is for NVIDIA devices or for AMD devices")
    conflicts("+nccl", when="~cuda ~rocm", msg="NCCL moves buffers of devices: choose +cuda or +rocm")
    conflicts("%gcc@:11", msg="Orthant is C++20; GCC 12 is the oldest that it was built with")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define_from_variant("ORTHANT_ENABLE_NCCL", "nccl"),
            self.define_from_variant("ORTHANT_ENABLE_ONEDNN", "onednn"),
            self.define_from_variant("ORTHANT_ENABLE_LIBXSMM", "libxsmm"),
            self.define("BUILD_TESTING", self.run_tests),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CXX_COMPILER", self["kokkos"].kokkos_cxx))
        if self.spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["hip"].hipcc))
        return args

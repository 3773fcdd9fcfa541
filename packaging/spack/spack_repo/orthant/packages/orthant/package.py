# SPDX-License-Identifier: Apache-2.0

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *


class Orthant(CMakePackage, CudaPackage, ROCmPackage):
    """Trains graph neural networks and language models on supercomputers. Every rank owns one
    block of the matrices on a four-dimensional grid. Graphs are trained as a whole with 3D
    parallel matrix multiplication, or in mini-batches that are sampled without communication."""

    # The checkout that holds this recipe.
    git = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 6))

    license("Apache-2.0")

    version("main", branch="main")

    variant("openmp", default=False, description="Use threads of the host through Kokkos")
    variant("nccl", default=False, description="Use NCCL or RCCL for device buffers")
    variant("onednn", default=True, description="Use oneDNN for dense products of the host")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("python@3.9:", type="test")
    depends_on("googletest +gmock", type="test")

    depends_on("mpi")
    depends_on("hdf5@1.10: +mpi")
    depends_on("metis@5.1: ~int64 ~real64")
    depends_on("openblas")
    depends_on("onednn@2.6: cpu_runtime=omp", when="+onednn")
    depends_on("zlib-api")
    depends_on("libzip")
    depends_on("cli11@2.1:")
    depends_on("tomlplusplus@3.3:")
    depends_on("fmt@9:")
    depends_on("spdlog@1.10:")
    depends_on("nlohmann-json@3.11:")

    # 4.6.01 is the release that scripts/bootstrap.sh builds.
    depends_on("kokkos@4.6.01 +serial cxxstd=20")
    depends_on("kokkos +openmp", when="+openmp")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos +cuda +wrapper cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"nccl +cuda cuda_arch={arch}", when=f"+nccl +cuda cuda_arch={arch}")
    for arch in ROCmPackage.amdgpu_targets:
        depends_on(f"kokkos +rocm amdgpu_target={arch}", when=f"+rocm amdgpu_target={arch}")
    depends_on("hipblas", when="+rocm")
    depends_on("hipsparse", when="+rocm")
    depends_on("rccl", when="+nccl +rocm")

    conflicts("+cuda", when="+rocm", msg="a build is for NVIDIA devices or for AMD devices")
    conflicts("cuda_arch=none", when="+cuda", msg="choose cuda_arch, such as cuda_arch=80")
    conflicts("amdgpu_target=none", when="+rocm", msg="choose amdgpu_target, such as gfx90a")
    conflicts("+nccl", when="~cuda ~rocm", msg="NCCL needs devices: choose +cuda or +rocm")
    conflicts("%gcc@:11", msg="Orthant is C++20; GCC 12 is the oldest that was tested")

    def cmake_args(self):
        args = [
            self.define_from_variant("ORTHANT_ENABLE_NCCL", "nccl"),
            self.define_from_variant("ORTHANT_ENABLE_ONEDNN", "onednn"),
            self.define("BUILD_TESTING", self.run_tests),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CXX_COMPILER", self["kokkos"].kokkos_cxx))
        if self.spec.satisfies("+rocm"):
            args.append(self.define("CMAKE_CXX_COMPILER", self.spec["hip"].hipcc))
        return args

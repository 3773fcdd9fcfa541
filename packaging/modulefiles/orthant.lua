-- SPDX-License-Identifier: Apache-2.0
--
-- Template of an Lmod module for an installed Orthant: copy it to MODULEPATH/orthant/VERSION.lua and set the lines
-- marked `set this`.

help([[
Orthant trains graph neural networks on supercomputers.
  orthant --help              the subcommands
  orthant info                build, devices and bindings
]])
whatis("Name: Orthant")
whatis("Description: trains graph neural networks on supercomputers")

-- set this: the prefix of `cmake --install BUILD --prefix DIR`
local prefix = "/opt/orthant"

-- set this: the modules with which Orthant was built, such as these of a Cray system with NVIDIA devices
-- depends_on("PrgEnv-gnu", "cudatoolkit", "cray-hdf5-parallel", "nccl")

prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
-- set this: with devices and Cray MPICH, which then takes device memory as it is
-- setenv("MPICH_GPU_SUPPORT_ENABLED", "1")

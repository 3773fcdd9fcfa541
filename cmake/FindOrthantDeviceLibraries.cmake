# The vendor's dense and sparse products: cuBLAS and cuSPARSE, or hipBLAS and hipSPARSE where Kokkos was built for HIP.
# Defines the target orthant_device_libraries. CUDA_ROOT and ROCM_PATH say where to look besides the usual places.
include(FindPackageHandleStandardArgs)
if(Kokkos_DEVICES MATCHES "HIP")
  set(_places ${ROCM_PATH} $ENV{ROCM_PATH} /opt/rocm)
  set(_suffixes lib lib64)
  set(_blas hipblas)
  set(_sparse hipsparse)
  set(_runtime amdhip64)
  set(_header hip/hip_runtime_api.h)
  set(_blas_header hipblas/hipblas.h)
  set(_definitions ORTHANT_ENABLE_HIP __HIP_PLATFORM_AMD__)
else()
  set(_places ${CUDA_ROOT} $ENV{CUDA_ROOT} $ENV{CUDA_HOME} /usr/local/cuda)
  set(_suffixes lib lib64 targets/x86_64-linux/lib targets/sbsa-linux/lib)
  set(_blas cublas)
  set(_sparse cusparse)
  set(_runtime cudart)
  set(_header cuda_runtime_api.h)
  set(_blas_header cublas_v2.h)
  set(_definitions "")
endif()
find_path(ORTHANT_DEVICE_INCLUDE_DIR ${_header} HINTS ${_places} PATH_SUFFIXES include)
find_path(ORTHANT_DEVICE_BLAS_INCLUDE_DIR ${_blas_header} HINTS ${_places} PATH_SUFFIXES include)
find_library(ORTHANT_DEVICE_LIBRARY ${_runtime} HINTS ${_places} PATH_SUFFIXES ${_suffixes})
find_library(ORTHANT_DEVICE_BLAS_LIBRARY ${_blas} HINTS ${_places} PATH_SUFFIXES ${_suffixes})
find_library(ORTHANT_DEVICE_SPARSE_LIBRARY ${_sparse} HINTS ${_places} PATH_SUFFIXES ${_suffixes})
find_package_handle_standard_args(OrthantDeviceLibraries
  REQUIRED_VARS ORTHANT_DEVICE_BLAS_LIBRARY ORTHANT_DEVICE_SPARSE_LIBRARY ORTHANT_DEVICE_LIBRARY ORTHANT_DEVICE_INCLUDE_DIR
                ORTHANT_DEVICE_BLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "load the CUDA or ROCm module, or set CUDA_ROOT or ROCM_PATH")
if(OrthantDeviceLibraries_FOUND AND NOT TARGET orthant_device_libraries)
  add_library(orthant_device_libraries INTERFACE IMPORTED)
  target_include_directories(orthant_device_libraries SYSTEM INTERFACE "${ORTHANT_DEVICE_INCLUDE_DIR}"
                                                                       "${ORTHANT_DEVICE_BLAS_INCLUDE_DIR}")
  target_link_libraries(orthant_device_libraries INTERFACE
    "${ORTHANT_DEVICE_BLAS_LIBRARY}" "${ORTHANT_DEVICE_SPARSE_LIBRARY}" "${ORTHANT_DEVICE_LIBRARY}")
  target_compile_definitions(orthant_device_libraries INTERFACE ${_definitions})
endif()
mark_as_advanced(ORTHANT_DEVICE_INCLUDE_DIR ORTHANT_DEVICE_BLAS_INCLUDE_DIR ORTHANT_DEVICE_LIBRARY
                 ORTHANT_DEVICE_BLAS_LIBRARY ORTHANT_DEVICE_SPARSE_LIBRARY)

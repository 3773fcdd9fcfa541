# orthant_add_library(NAME [HOST_ONLY] SOURCES .. [PUBLIC_LINK ..] [PRIVATE_LINK ..]): one library a folder of src, exported as
# orthant::NAME. HOST_ONLY: none of it includes Kokkos, so the host compiler has all of it (see orthant_host_sources).
add_library(orthant_warnings INTERFACE)
target_compile_options(orthant_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wpedantic
                                                  $<$<BOOL:${ORTHANT_ENABLE_WERROR}>:-Werror>
                                                  # of a unity source GCC takes every anonymous namespace for a header's
                                                  $<$<BOOL:${CMAKE_UNITY_BUILD}>:-Wno-subobject-linkage>)

# A host function that a kernel calls gives anything; nvcc only warns of it.
if(CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
  target_compile_options(orthant_warnings INTERFACE -Werror=cross-execution-space-call)
endif()

function(orthant_add_library name)
  cmake_parse_arguments(arg "HOST_ONLY" "" "SOURCES;PUBLIC_LINK;PRIVATE_LINK" ${ARGN})
  if(arg_SOURCES)
    add_library(orthant_${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    if(arg_HOST_ONLY)
      orthant_host_sources(${arg_SOURCES})
    endif()
    target_link_libraries(orthant_${name} PRIVATE $<BUILD_INTERFACE:orthant_warnings> ${arg_PRIVATE_LINK})
  else()
    add_library(orthant_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(orthant::${name} ALIAS orthant_${name})
  set_target_properties(orthant_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(orthant_${name} ${scope} cxx_std_20)
  target_include_directories(orthant_${name} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                                      $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
                                                      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/orthant>)
  target_link_libraries(orthant_${name} ${scope} ${arg_PUBLIC_LINK})
  set_property(GLOBAL APPEND PROPERTY ORTHANT_LIBRARIES orthant_${name})
endfunction()

# orthant_host_sources(FILE ..): sources without kernels whose headers (toml++) or vector types are too much for nvcc. Kokkos's
# nvcc_wrapper gives them to the host compiler; elsewhere nothing changes.
function(orthant_host_sources)
  if(CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS --host-only)
  endif()
endfunction()

# orthant_unity_groups(TARGET "FOLDER FOLDER .." ..): with CMAKE_UNITY_BUILD the sources of these sub-folders are compiled together, and
# those of any other sub-folder by themselves. Names of anonymous namespaces must differ within a group.
function(orthant_unity_groups target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    set(group "${target}")
    if(NOT folder STREQUAL "" AND NOT IS_ABSOLUTE "${folder}")
      set(group "${folder}")
    endif()
    foreach(folders IN LISTS ARGN)
      string(REPLACE " " ";" list "${folders}")
      if(folder IN_LIST list)
        string(REPLACE " " "_" group "${folders}")
      endif()
    endforeach()
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endforeach()
endfunction()

# orthant_kernel_sources(RESULT PREFIX [NO_BASELINE] AVX2 option .. AVX512 option .. [ALL option ..]): sources that compile
# src/PREFIX_kernel.inc once for each instruction set (src/runtime/instruction_sets.hpp), with its options and then those of ALL. Processors
# other than x86-64 have the baseline alone.
function(orthant_kernel_sources result prefix)
  cmake_parse_arguments(PARSE_ARGV 2 arg "NO_BASELINE" "" "AVX2;AVX512;ALL")
  set(bytes_baseline 16)
  set(bytes_avx2 32)
  set(bytes_avx512 64)
  set(sets baseline)
  if(arg_NO_BASELINE)
    set(sets "")
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets avx2 avx512)
  endif()
  set(sources "")
  foreach(set IN LISTS sets)
    string(TOUPPER ${set} options)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/kernels/${prefix}_${set}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#define ORTHANT_INSTRUCTION_SET ${set}
#define ORTHANT_VECTOR_BYTES ${bytes_${set}}
#include \"${prefix}_kernel.inc\"
")
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "${arg_${options}};${arg_ALL}" SKIP_UNITY_BUILD_INCLUSION ON)
    list(APPEND sources "${source}")
  endforeach()
  orthant_host_sources(${sources}) # too much for nvcc, and nothing for a device
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

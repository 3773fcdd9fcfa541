# Finds any sound Kokkos >= 3.4 and defines the target orthant_kokkos that the build links.
#
# Upstream's own package exports Kokkos::kokkos and is used as it is. Debian 12's (Kokkos 3.4 inside Trilinos 13.2)
# exports a Kokkos::kokkos with a wrong include directory, or none at all; there the target is built from
# Kokkos_INCLUDE_DIRS and Kokkos_LIBRARIES, which are right. Kokkos_ROOT chooses among several installations.
find_package(Kokkos CONFIG QUIET)

set(_orthant_kokkos_sound FALSE)
if(TARGET Kokkos::kokkos)
  get_target_property(_includes Kokkos::kokkos INTERFACE_INCLUDE_DIRECTORIES)
  set(_orthant_kokkos_sound TRUE)
  foreach(_directory IN LISTS _includes)
    if(_directory MATCHES "^/" AND NOT EXISTS "${_directory}")
      set(_orthant_kokkos_sound FALSE)
    endif()
  endforeach()
endif()

set(ORTHANT_KOKKOS_VERSION "${Kokkos_VERSION}")
if(Kokkos_INCLUDE_DIRS AND NOT _orthant_kokkos_sound)
  # Trilinos gives its own version (13.2) as the package's; the Kokkos inside names itself in a header.
  find_file(_orthant_kokkos_config KokkosCore_config.h PATHS ${Kokkos_INCLUDE_DIRS} NO_DEFAULT_PATH)
  file(STRINGS "${_orthant_kokkos_config}" _line REGEX "define KOKKOS_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+$" _number "${_line}")
  if(_number)
    math(EXPR _major "${_number} / 10000")
    math(EXPR _minor "${_number} / 100 % 100")
    math(EXPR _patch "${_number} % 100")
    set(ORTHANT_KOKKOS_VERSION "${_major}.${_minor}.${_patch}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OrthantKokkos
  REQUIRED_VARS Kokkos_DIR
  VERSION_VAR ORTHANT_KOKKOS_VERSION
  REASON_FAILURE_MESSAGE "run scripts/bootstrap.sh, or set Kokkos_ROOT to an installed Kokkos >= 3.4")

if(OrthantKokkos_FOUND AND ORTHANT_KOKKOS_VERSION VERSION_LESS 3.4)
  message(FATAL_ERROR "Kokkos ${ORTHANT_KOKKOS_VERSION} at ${Kokkos_DIR} is too old: Orthant needs 3.4 or newer")
endif()

if(OrthantKokkos_FOUND AND NOT TARGET orthant_kokkos)
  add_library(orthant_kokkos INTERFACE IMPORTED)
  if(_orthant_kokkos_sound)
    target_link_libraries(orthant_kokkos INTERFACE Kokkos::kokkos)
  else()
    target_include_directories(orthant_kokkos SYSTEM INTERFACE ${Kokkos_INCLUDE_DIRS})
    target_link_libraries(orthant_kokkos INTERFACE ${Kokkos_LIBRARIES})
  endif()
  if(Kokkos_DEVICES MATCHES "CUDA")
    # nvcc takes fmt 9's consteval format strings, but not together with the functions that fmt hides from it.
    target_compile_definitions(orthant_kokkos INTERFACE FMT_USE_CONSTEXPR=1)
    if(CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
      # std::bit_cast and the like in kernels. No warnings of long doubles (20208: fmt has them, no kernel has), nor of a
      # [[nodiscard]] class that is assigned to (2810: `request = start(..)` drops no request).
      target_compile_options(orthant_kokkos INTERFACE --expt-relaxed-constexpr "SHELL:-Xcudafe --diag_suppress=20208"
                             "SHELL:-Xcudafe --diag_suppress=2810")
    endif()
  endif()
endif()
if(OrthantKokkos_FOUND AND NOT OrthantKokkos_ANNOUNCED)
  message(STATUS "Kokkos ${ORTHANT_KOKKOS_VERSION} at ${Kokkos_DIR} (devices: ${Kokkos_DEVICES})")
  set(OrthantKokkos_ANNOUNCED TRUE CACHE INTERNAL "")
endif()

# Refuses a pair of Kokkos and compiler that crashes when one View is assigned to another, as the development version of
# June 2025 (4.6.99) does with GCC 12. The program beside this file says so once; the answer is kept for later configurations.
# Needs the target orthant_kokkos, ORTHANT_KOKKOS_VERSION and Kokkos_DIR.
set(_pair "Kokkos ${ORTHANT_KOKKOS_VERSION} at ${Kokkos_DIR} with ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
file(TIMESTAMP "${Kokkos_DIR}/KokkosConfig.cmake" _installed UTC)
if(CMAKE_CROSSCOMPILING)
  message(STATUS "${_pair}: not checked, since programs do not run here")
elseif(NOT ORTHANT_KOKKOS_CHECKED STREQUAL "${_pair}, ${_installed}")
  try_run(_run _compiled SOURCES "${CMAKE_CURRENT_LIST_DIR}/OrthantKokkosCheck.cpp" LINK_LIBRARIES orthant_kokkos
          CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON COMPILE_OUTPUT_VARIABLE _said RUN_OUTPUT_VARIABLE _said_at_run)
  unset(_run CACHE)
  string(REPLACE "assigning\nassigned\n" "" _rest "${_said_at_run}")
  if(NOT _compiled)
    message(WARNING "${_pair}: a program that assigns Views does not compile\n${_said}")
  elseif(_rest MATCHES "assigning")
    message(FATAL_ERROR "${_pair}: a program that assigns one View to another crashes. Take a release of Kokkos that does not "
                        "(4.6.01), or configure this Kokkos with -DKokkos_ENABLE_IMPL_VIEW_LEGACY=ON, or compile with clang")
  elseif(_rest MATCHES "done")
    message(STATUS "${_pair}: Views can be assigned")
    set(ORTHANT_KOKKOS_CHECKED "${_pair}, ${_installed}" CACHE INTERNAL "")
  else() # such as a device's Kokkos whose driver is not on this machine
    message(STATUS "${_pair}: not checked, since its programs do not start here")
  endif()
endif()

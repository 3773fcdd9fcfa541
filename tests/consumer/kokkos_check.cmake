# Configures the project beside this file with Kokkos as it should not be: what the build refuses, and what it only mentions.
function(configure way expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/kokkos_check" -B "${SCRATCH_DIR}/${way}" -G "${GENERATOR}"
                          "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCHECK=${CHECK}" "-DWAY=${way}" ${ARGN}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " said "${output}${errors}") # CMake wraps its errors
  if(NOT "${status} ${said}" MATCHES "${expected}")
    message(FATAL_ERROR "${way}: status ${status} and\n${said}\nlack /${expected}/")
  endif()
  set(said "${said}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${SCRATCH_DIR}")
set(refused "^1 .*Kokkos 9\\.9\\.9 at .* crashes\\. .*4\\.6\\.01.*-DKokkos_ENABLE_IMPL_VIEW_LEGACY=ON, or compile with clang")
foreach(way CRASHES CRASHES_IF_MANAGED FORGETS)
  configure(${way} "${refused}")
endforeach()
configure(CRASHES "${refused}") # a refusal is not forgotten
configure(FOR_DEVICE "^0 .*Views can be assigned") # without a device
configure(CANNOT_START "^0 .*not checked, since its programs do not start here")
configure(SOUND "^0 .*Views can be assigned")
configure(SOUND "^0 ")
if(said MATCHES "Views")
  message(FATAL_ERROR "is checked twice: ${said}")
endif()
configure(SOUND_ELSEWHERE "^0 .*not checked, since programs do not run here" -DCMAKE_SYSTEM_NAME=Linux)

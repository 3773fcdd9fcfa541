# Installs the build tree BUILD_DIR into a scratch prefix, builds the program beside this file against that and runs it.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "'${ARGV}' left with ${status}")
  endif()
endfunction()

set(prefix "${SCRATCH_DIR}/prefix")
set(program "${SCRATCH_DIR}/program")
file(REMOVE_RECURSE "${prefix}" "${program}")
run(${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${prefix}")

set(flags "")
if(SANITIZERS)
  set(flags "-fsanitize=${SANITIZERS}")
endif()
run(${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/program" -B "${program}" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${prefix}"
    "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_BUILD_TYPE=${BUILD_TYPE}"
    "-DCMAKE_CXX_FLAGS=${flags}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run(${CMAKE_COMMAND} --build "${program}")

separate_arguments(mpirun UNIX_COMMAND "$ENV{ORTHANT_MPIRUN}")
run(${mpirun} 2 "${program}/consumer")

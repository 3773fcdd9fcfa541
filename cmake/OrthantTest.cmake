# Tests that run on several ranks, in two tiers: what shows that an installation is right (orthant_default_tests builds it, and
# scripts/test.sh runs it), and the rest, with the label `large` (scripts/test.sh --all).
#
# orthant_add_test(NAME runtime.random SOURCES random_test.cpp LINK orthant::runtime [RANKS 1 2] [LARGE_RANKS 4] [SOAK_RANKS 3 8]
#                  [LABELS slow ..] [TIMEOUT seconds] [DEFINITIONS X=1 ..] [APART])
#   builds one executable with tests/support/mpi_main.cpp and adds one ctest entry per rank count: runtime.random.np1 ..
#   Those of LARGE_RANKS are `large`. Those of SOAK_RANKS have the label `soak`, too, with which --all leaves them out: they prove on
#   more grids what others prove (ctest -L soak: before a release).
#   The labels always hold the part of the name before the first dot. An entry of which every test was skipped is
#   reported as skipped. In unity builds the sources are compiled together; APART: they have names in common.
#
# orthant_add_script_test(NAME cli.help COMMAND python3 driver.py .. [LABELS ..] [TIMEOUT s] [RANKS n])
#   runs a driver that starts its own jobs: $ORTHANT_MPIRUN followed by a number of ranks and a program. It skips by
#   exit status 77. RANKS is the most ranks that it starts at once.
#   All but those named below are `large`: they take long, or need another program than orthant. With the label `soak` they draw
#   hundreds of random faults, take all data sets or parse every file once more, in an hour or more: ctest -L soak, before a release.
find_package(GTest CONFIG REQUIRED)
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

set(ORTHANT_DEFAULT_DRIVERS
    graph.mistakes graph.metis
    cli.help cli.run cli.relations cli.samplers cli.terminal cli.combinations.pyg cli.combinations.few
    cli.checkpoints.goes_on cli.language_models.on_grids cli.language_models.goes_on
    cli.study_points docs.snippet docs.checker docs.links extend.snippets examples.full_graph datasets.list datasets.karate datasets.cora datasets.wordnet datasets.wordnet_files
    slurm.trains
    hygiene.folders hygiene.lengths hygiene.includes hygiene.names hygiene.kernels hygiene.format hygiene.text hygiene.checkers)

# Drivers whose jobs mostly wait for one another, and which watch no clock: two of them run at a time.
set(ORTHANT_SHARING_DRIVERS "^(cli[.](help|run|bench|plan|mistakes|weights_exchange|graph_models|norms|attention|links|operators|predictions|scores|plots\
|generated_stores|planned_trainings|samplers|combinations[.].*|simulation|folders|checkpoints[.].*|language_models[.].*|lengths[.].*|expert_runs[.].*|limits[.].*|outputs[.]distinct)\
|graph[.](mistakes|round_trip|metis|cells|balance|chosen_order)|docs[.].*|examples[.].*|datasets[.].*)$")

add_custom_target(orthant_default_tests)
add_dependencies(orthant_default_tests orthant)

set(ORTHANT_TEST_TIMEOUT_FACTOR 1 CACHE STRING "Multiplies every test's time limit (sanitizers, slow machines)")
set(ORTHANT_DATA "$ENV{ORTHANT_DATA}" CACHE PATH "Folder whose datasets/ the tests read; tests skip without it")
if(NOT ORTHANT_DATA AND IS_DIRECTORY "${PROJECT_SOURCE_DIR}/../shared/datasets")
  get_filename_component(_data "${PROJECT_SOURCE_DIR}/../shared" ABSOLUTE)
  set_property(CACHE ORTHANT_DATA PROPERTY VALUE "${_data}")
endif()

# mpirun as the tests need it. Open MPI refuses more ranks than cores unless asked; the other libraries know no such flag.
set(ORTHANT_MPIRUN "${MPIEXEC_EXECUTABLE}")
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE _mpi_version ERROR_VARIABLE _mpi_version)
if(_mpi_version MATCHES "Open MPI|OpenRTE")
  list(APPEND ORTHANT_MPIRUN --oversubscribe --bind-to none)
  # All ranks are on one machine. Looking for networks takes half of the seconds of a short job, and the tests start thousands.
  set(_one_machine OMPI_MCA_pml=ob1 OMPI_MCA_osc=^ucx)
endif()
list(APPEND ORTHANT_MPIRUN ${MPIEXEC_NUMPROC_FLAG})

# A waiting rank must give its core away, or eight ranks on two cores take a hundred times as long.
set(ORTHANT_TEST_ENVIRONMENT ${_one_machine} OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
                             OMP_NUM_THREADS=1 OMP_PROC_BIND=false OPENBLAS_NUM_THREADS=1
                             "ORTHANT_TEST_SOURCES=${PROJECT_SOURCE_DIR}/tests")
if(ORTHANT_DATA)
  list(APPEND ORTHANT_TEST_ENVIRONMENT "ORTHANT_DATA=${ORTHANT_DATA}")
endif()
set(_allocator "allocator_may_return_null=1") # what is too large fails as it does without sanitizers
if(ORTHANT_ENABLE_SANITIZERS)
  list(APPEND ORTHANT_TEST_ENVIRONMENT
       "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
       "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/lsan.supp:print_suppressions=0"
       "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp:print_suppressions=0:ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1:${_allocator}")
endif()
set(_asan_options "${_allocator}:detect_stack_use_after_return=1:strict_init_order=1:check_initialization_order=1")

# Sets what every entry has in common. `ranks` is the number of processes that it starts at once.
function(_orthant_configure_test entry name ranks timeout labels)
  if(NOT timeout)
    set(timeout 120)
  endif()
  math(EXPR timeout "${timeout} * ${ORTHANT_TEST_TIMEOUT_FACTOR}")
  set(processors ${ranks})
  if(processors GREATER 2)
    set(processors 2) # oversubscribed anyway; ctest -j2 then runs it alone on a two-core machine
  endif()
  string(REGEX REPLACE "\\..*" "" folder "${name}")
  set_tests_properties(${entry} PROPERTIES TIMEOUT ${timeout} PROCESSORS ${processors} LABELS "${folder};${labels}"
                                           ENVIRONMENT "${ORTHANT_TEST_ENVIRONMENT}")
endfunction()

function(orthant_add_test)
  cmake_parse_arguments(arg "APART" "NAME;TIMEOUT" "SOURCES;LINK;RANKS;LARGE_RANKS;SOAK_RANKS;LABELS;DEFINITIONS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES OR NOT (arg_RANKS OR arg_LARGE_RANKS))
    message(FATAL_ERROR "orthant_add_test(NAME .. SOURCES .. RANKS ..): bad call for '${arg_NAME}' ${arg_UNPARSED_ARGUMENTS}")
  endif()
  string(REPLACE "." "_" target "test_${arg_NAME}")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LINK} orthant_test_main orthant_warnings)
  target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
  if(NOT Kokkos_DEVICES MATCHES "CUDA|HIP")
    target_precompile_headers(${target} REUSE_FROM orthant_test_main)
    if(NOT arg_APART)
      set_target_properties(${target} PROPERTIES UNITY_BUILD "$CACHE{CMAKE_UNITY_BUILD}" UNITY_BUILD_BATCH_SIZE 0)
    endif()
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(arg_RANKS)
    add_dependencies(orthant_default_tests ${target})
  endif()
  foreach(ranks IN LISTS arg_RANKS arg_LARGE_RANKS arg_SOAK_RANKS)
    set(entry ${arg_NAME}.np${ranks})
    set(labels ${arg_LABELS})
    if(NOT ranks IN_LIST arg_RANKS)
      list(APPEND labels large)
    endif()
    if(ranks IN_LIST arg_SOAK_RANKS)
      list(APPEND labels soak)
    endif()
    add_test(NAME ${entry} COMMAND ${ORTHANT_MPIRUN} ${ranks} $<TARGET_FILE:${target}>)
    _orthant_configure_test(${entry} ${arg_NAME} ${ranks} "${arg_TIMEOUT}" "${labels}")
    set_property(TEST ${entry} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=${_asan_options}:detect_leaks=1")
    set_tests_properties(${entry} PROPERTIES SKIP_REGULAR_EXPRESSION "orthant: every test was skipped")
  endforeach()
endfunction()

function(orthant_add_script_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT;RANKS" "COMMAND;LABELS" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_COMMAND)
    message(FATAL_ERROR "orthant_add_script_test(NAME .. COMMAND ..): bad call for '${arg_NAME}' ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1)
  endif()
  if(NOT arg_NAME IN_LIST ORTHANT_DEFAULT_DRIVERS)
    list(APPEND arg_LABELS large)
  endif()
  if(arg_NAME MATCHES "${ORTHANT_SHARING_DRIVERS}")
    set(arg_RANKS 1)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  _orthant_configure_test(${arg_NAME} ${arg_NAME} ${arg_RANKS} "${arg_TIMEOUT}" "${arg_LABELS}")
  list(JOIN ORTHANT_MPIRUN " " mpirun)
  # Leaks are looked for in the test programs alone: only those keep Open MPI's plug-ins loaded, without which its own
  # leaks cannot be told from ours (tests/support/keep_modules.cpp).
  set_property(TEST ${arg_NAME} APPEND PROPERTY ENVIRONMENT "ORTHANT_MPIRUN=${mpirun}"
                                                           "ASAN_OPTIONS=${_asan_options}:detect_leaks=0")
  set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

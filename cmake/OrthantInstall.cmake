# Installs the program, the libraries with their headers, and the package that find_package(orthant) finds.
include(CMakePackageConfigHelpers)

get_property(_libraries GLOBAL PROPERTY ORTHANT_LIBRARIES)
install(TARGETS ${_libraries} EXPORT orthantTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(_library IN LISTS _libraries)
  string(REPLACE "orthant_" "" _folder ${_library})
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/${_folder}" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/orthant
          FILES_MATCHING PATTERN "*.hpp")
endforeach()
# The commands as a library: of its headers a program needs one.
install(TARGETS orthant_commands EXPORT orthantTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET orthant_machine_loops)
  install(TARGETS orthant_machine_loops EXPORT orthantTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES "${PROJECT_SOURCE_DIR}/src/cli/program.hpp" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/orthant/cli)
if(TARGET orthant)
  install(TARGETS orthant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/orthant)
install(EXPORT orthantTargets NAMESPACE orthant:: DESTINATION ${_package})
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/orthantConfig.cmake.in" "${PROJECT_BINARY_DIR}/orthantConfig.cmake"
                              INSTALL_DESTINATION ${_package})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/orthantConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/orthantConfig.cmake" "${PROJECT_BINARY_DIR}/orthantConfigVersion.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/OrthantDependencies.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindOrthantKokkos.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/OrthantKokkosCheck.cmake" "${CMAKE_CURRENT_LIST_DIR}/OrthantKokkosCheck.cpp"
              "${CMAKE_CURRENT_LIST_DIR}/FindOrthantLibzip.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindOrthantMETIS.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindOrthantNCCL.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindOrthantOneDNN.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindOrthantDeviceLibraries.cmake"
        DESTINATION ${_package})

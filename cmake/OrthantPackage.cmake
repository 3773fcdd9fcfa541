# Debian packages by `cpack` in the build folder: orthant holds the program, and liborthant-dev holds what
# find_package(orthant) finds. They depend on Debian's packages of the libraries, so the build must have used those.
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/orthant RENAME copyright
        COMPONENT program)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/liborthant-dev RENAME copyright)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Orthant developers <orthant@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has one of its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program Unspecified) # OrthantInstall.cmake names the component of the program only
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)

# The packages of MPI libraries do not hold mpirun.
set(_mpi openmpi)
set(_mpirun openmpi-bin)
if("${MPI_C_LIBRARIES}" MATCHES "mpich")
  set(_mpi mpich)
  set(_mpirun mpich)
endif()

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME orthant)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS ${_mpirun})
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "training of graph neural networks on supercomputers
Orthant trains graph neural networks and language models with MPI and Kokkos.
Every rank owns one block of the matrices on a four-dimensional grid. Graphs are
trained as a whole or in mini-batches. srun or mpirun starts the program.")

set(_headers lib${_mpi}-dev libhdf5-${_mpi}-dev libfmt-dev libmetis-dev libopenblas-dev libspdlog-dev
             libtomlplusplus-dev libzip-dev nlohmann-json3-dev zlib1g-dev)
if(ORTHANT_HAS_ONEDNN)
  list(APPEND _headers libdnnl-dev)
endif()
list(JOIN _headers ", " CPACK_DEBIAN_UNSPECIFIED_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME liborthant-dev)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_RECOMMENDS libtrilinos-kokkos-dev)
set(CPACK_COMPONENT_UNSPECIFIED_DESCRIPTION "headers and static libraries of Orthant
The CMake package of Orthant with its headers and static libraries, for programs
that call find_package(orthant).")
include(CPack)

# METIS 5 has no CMake package of its own. Defines the imported target orthant_METIS.
find_path(METIS_INCLUDE_DIR metis.h HINTS ${METIS_ROOT} $ENV{METIS_ROOT} PATH_SUFFIXES include)
find_library(METIS_LIBRARY metis HINTS ${METIS_ROOT} $ENV{METIS_ROOT} PATH_SUFFIXES lib lib64)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OrthantMETIS REQUIRED_VARS METIS_LIBRARY METIS_INCLUDE_DIR)
if(OrthantMETIS_FOUND AND NOT TARGET orthant_METIS)
  add_library(orthant_METIS UNKNOWN IMPORTED)
  set_target_properties(orthant_METIS PROPERTIES IMPORTED_LOCATION "${METIS_LIBRARY}"
                                                 INTERFACE_INCLUDE_DIRECTORIES "${METIS_INCLUDE_DIR}")
endif()
mark_as_advanced(METIS_INCLUDE_DIR METIS_LIBRARY)

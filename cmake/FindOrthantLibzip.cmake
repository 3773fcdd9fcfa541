# libzip. Defines libzip::zip, the name that its own package gives. That package is not asked: Debian 12's stops with an
# error unless the programs zipcmp, zipmerge and ziptool, of other packages, are installed as well.
find_path(LIBZIP_INCLUDE_DIR zip.h HINTS ${LIBZIP_ROOT} $ENV{LIBZIP_ROOT} PATH_SUFFIXES include)
find_library(LIBZIP_LIBRARY zip HINTS ${LIBZIP_ROOT} $ENV{LIBZIP_ROOT} PATH_SUFFIXES lib lib64)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OrthantLibzip REQUIRED_VARS LIBZIP_LIBRARY LIBZIP_INCLUDE_DIR)
if(OrthantLibzip_FOUND AND NOT TARGET libzip::zip)
  add_library(libzip::zip UNKNOWN IMPORTED)
  set_target_properties(libzip::zip PROPERTIES IMPORTED_LOCATION "${LIBZIP_LIBRARY}"
                                               INTERFACE_INCLUDE_DIRECTORIES "${LIBZIP_INCLUDE_DIR}")
endif()
mark_as_advanced(LIBZIP_INCLUDE_DIR LIBZIP_LIBRARY)

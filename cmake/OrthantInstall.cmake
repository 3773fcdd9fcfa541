# Installs the program, the libraries with their headers, and a package that find_package(orthant) understands.
include(CMakePackageConfigHelpers)

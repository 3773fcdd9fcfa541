# Writes OUTPUT, a header with the commit that SOURCE_DIR stands at; touches it only when that changes.
find_package(Git QUIET)
set(description "no git")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C "${SOURCE_DIR}" describe --always --dirty --tags
                  OUTPUT_VARIABLE out RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0 AND out)
    set(description "${out}")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT [[#pragma once
// Written by the build.
namespace orthant::cli {
inline constexpr char const* git_description = "@description@";
}
]] @ONLY)

// SPDX-License-Identifier: Apache-2.0
//
// Processors other than x86-64, which are described by their architecture only.
#include "runtime/machine/processor.hpp"

#include <sys/utsname.h>

namespace orthant::runtime {

Processor find_processor() {
  utsname system{};
  return {uname(&system) == 0 ? system.machine : "unknown", "", Vectors::unknown};
}

} // namespace orthant::runtime

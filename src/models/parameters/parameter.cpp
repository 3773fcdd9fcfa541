// SPDX-License-Identifier: Apache-2.0
#include "models/parameters/parameter.hpp"

#include <fmt/format.h>

namespace orthant::models {

std::string shape_text(runtime::Hdf5File::Extents const& extents) {
  return extents.size() == 1   ? fmt::format("{}", extents[0])
         : extents.size() == 2 ? fmt::format("{} x {}", extents[0], extents[1])
                               : fmt::format("of {} dimensions", extents.size());
}

} // namespace orthant::models

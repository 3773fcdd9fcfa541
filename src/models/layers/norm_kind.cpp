// SPDX-License-Identifier: Apache-2.0
#include "models/layers/norm_kind.hpp"

#include "runtime/error.hpp"

#include <array>
#include <utility>

namespace orthant::models {
namespace {

constexpr std::array<std::pair<Norm, std::string_view>, 4> norm_names{
    {{Norm::none, "none"}, {Norm::rms, "rms"}, {Norm::layer, "layer"}, {Norm::batch, "batch"}}};

} // namespace

Norm parse_norm(std::string_view word) {
  for (auto const& [norm, name] : norm_names)
    if (name == word) return norm;
  runtime::throw_user("--norm is layer, batch, rms or none, not '{}'", word);
}

std::string_view name_of(Norm norm) {
  for (auto const& [known, name] : norm_names)
    if (known == norm) return name;
  return {};
}

} // namespace orthant::models

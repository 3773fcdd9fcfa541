// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/plan/own_convolution.hpp"

#include "models/gnn/plan/gnn_model.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

std::vector<std::shared_ptr<Convolution const>>& convolutions() {
  static std::vector<std::shared_ptr<Convolution const>> all;
  return all;
}

} // namespace

void register_convolution(Convolution convolution) {
  auto const names = model_names();
  ORTHANT_REQUIRE(!convolution.name.empty() && std::ranges::find(names, convolution.name) == names.end(),
                  "a convolution named '", convolution.name, "' exists already, or its name is empty");
  ORTHANT_REQUIRE(convolution.make_float && convolution.make_double, convolution.name,
                  " has no aggregation: call register_convolution<Mine>()");
  convolutions().push_back(std::make_shared<Convolution const>(std::move(convolution)));
}

std::vector<std::shared_ptr<Convolution const>> const& registered_convolutions() {
  return convolutions();
}

} // namespace orthant::models

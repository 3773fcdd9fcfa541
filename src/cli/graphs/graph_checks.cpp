// SPDX-License-Identifier: Apache-2.0
#include "cli/graphs/graph_checks.hpp"

#include "graph/checks/data_check.hpp"

namespace orthant::cli {

void require_operator(Context const& context, graph::GraphStore const& store, graph::OperatorUse const& use) {
  auto const found = graph::check_operator(context.world(), store, use);
  if (!found.refusal.empty()) runtime::throw_user("{}", found.refusal);
  if (!found.warning.empty() && context.world().is_root()) context.log().warn("{}", found.warning);
}

void require_operator(Context const& context, graph::GraphStore const& store,
                      models::NetworkSettings const& settings, graph::Precision precision,
                      graph::Neighborhood neighbors) {
  auto const is_of_model = models::traits_of(settings.model, settings.aggregator).graph_operator.has_value();
  require_operator(context, store, graph::OperatorUse{precision, neighbors, is_of_model});
}

void warn_of_data(Context const& context, graph::GraphStore const& store) {
  for (auto const& warning : graph::check_data(context.world(), store))
    if (context.world().is_root()) context.log().warn("{}: {}", store.name(), warning);
}

} // namespace orthant::cli

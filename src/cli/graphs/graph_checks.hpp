#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What commands say of a graph before they work on it.

#include "cli/options/command.hpp"
#include "graph/checks/operator_check.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/plan/network_settings.hpp"

#include <type_traits>

namespace orthant::cli {

template<class T>
inline constexpr auto precision_of =
    std::is_same_v<T, float> ? graph::Precision::fp32 : graph::Precision::fp64;

/// Throws UserError if the store's operator (models::use_operator) cannot be made; warns if it does nothing. Collective.
void require_operator(Context const& context, graph::GraphStore const& store, graph::OperatorUse const& use);
void require_operator(Context const& context, graph::GraphStore const& store,
                      models::NetworkSettings const& settings, graph::Precision precision,
                      graph::Neighborhood neighbors = graph::Neighborhood::whole);

/// Warns of data that a network learns little from. Collective.
void warn_of_data(Context const& context, graph::GraphStore const& store);

} // namespace orthant::cli

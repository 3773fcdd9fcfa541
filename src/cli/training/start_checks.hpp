#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What commands say of a graph before they work on it.
//
// Work that cannot fit is refused before it begins, with the figures, unless --force-memory is given.

#include "cli/options/command.hpp"
#include "graph/checks/operator_check.hpp"
#include "graph/partition/partition.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/plan/network_settings.hpp"

#include <functional>
#include <memory>
#include <string_view>
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

/// --force-memory.
void add_force_memory_option(Command& command, bool& is_forced);

/// Throws UserError on all ranks if what a model will hold does not fit: on a host in the memory of its node,
/// on a device in what is free there, each summed over the ranks that share it. `what` needs it: "train".
/// Collective.
void require_memory(Context const& context, std::string_view what, models::MemoryEstimate const& estimate);

/// Bytes that every rank may hold if all hold as many: of arrays in what is free of a device, or of everything in the memory of
/// a host. Collective.
[[nodiscard]] std::int64_t memory_of_rank(Context const& context);

/// A graph that was made in the memory of this process: what that took at its peak, and what stays.
struct GraphInMemory {
  std::int64_t making_bytes = 0;
  std::int64_t bytes = 0;
};
/// How much resident memory has grown since construction, at its peak. Only one at a time: the process has one peak.
class ResidentPeak {
 public:
  ResidentPeak();
  /// Of a graph with these facts that was made since then.
  [[nodiscard]] GraphInMemory of(graph::StoreFacts const& facts) const;

 private:
  std::int64_t before_;
};
/// Bytes that a rank takes at most: for the graph, and for its training by the estimate.
[[nodiscard]] std::int64_t peak_with_graph(models::MemoryEstimate const& estimate,
                                           GraphInMemory const& graph);

/// A graph that every rank makes and keeps in its own memory (graph::partition_in_memory). Collective. Throws
/// UserError on all ranks if those of a node do not fit there, unless forced.
[[nodiscard]] graph::GraphStore make_graph_in_memory(
    runtime::Communicator const& world,
    std::function<std::unique_ptr<graph::GraphSource>(runtime::Communicator const&)> const& make_source,
    graph::PartitionOptions const& how, bool is_forced);

} // namespace orthant::cli

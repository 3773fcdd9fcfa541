#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks of a graph and of the memory before work begins: work that cannot fit in memory is refused, with the figures, unless
// --force-memory is given.

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

struct TrainOptions;

template<class T>
inline constexpr auto precision_of =
    std::is_same_v<T, float> ? graph::Precision::fp32 : graph::Precision::fp64;

/// Throws UserError if the matrix that the network multiplies by (models::use_operator) cannot be made from the store; warns if
/// normalization has no effect. Collective.
void require_operator(Context const& context, graph::GraphStore const& store, graph::OperatorUse const& use);
void require_operator(Context const& context, graph::GraphStore const& store,
                      models::NetworkSettings const& settings, graph::Precision precision,
                      graph::Neighborhood neighbors = graph::Neighborhood::whole);

/// Warns about data that a network can learn little from. Collective.
void warn_of_data(Context const& context, graph::GraphStore const& store);

/// Declares --force-memory.
void add_force_memory_option(Command& command, bool& is_forced);

/// Throws UserError on all ranks if the estimated memory does not fit. On the host, the sum over the ranks of a node must fit in its
/// memory; on a device, the sum over the ranks that share it must fit in its free memory. `what`: command for the message, such as
/// "train".
/// Collective.
void require_memory(Context const& context, std::string_view what, models::MemoryEstimate const& estimate);

/// Bytes that each rank may hold if all ranks hold equally many: on a device, arrays in its free memory; on the host, everything.
/// Collective.
[[nodiscard]] std::int64_t memory_of_rank(Context const& context);

/// Memory of a graph that was made in this process: peak while it was made, and size afterwards.
struct GraphInMemory {
  std::int64_t making_bytes = 0;
  std::int64_t bytes = 0;
};
/// Measures how much resident memory has grown since construction, at its peak. Only one object may exist at a time, because the process
/// has one peak counter.
class ResidentPeak {
 public:
  ResidentPeak();
  /// Memory of a graph with these facts that was made since construction.
  [[nodiscard]] GraphInMemory of(graph::StoreFacts const& facts) const;

 private:
  std::int64_t before_;
};
/// Peak bytes of a rank: the larger of making the graph, and of the graph together with its training.
[[nodiscard]] std::int64_t peak_with_graph(models::MemoryEstimate const& estimate,
                                           GraphInMemory const& graph);

/// Makes a graph on every rank, which keeps it in its own memory (graph::partition_in_memory). Collective. Throws UserError on all ranks
/// if the graphs of a node's ranks do not fit in its memory, unless `is_forced`.
[[nodiscard]] graph::GraphStore make_graph_in_memory(
    runtime::Communicator const& world,
    std::function<std::unique_ptr<graph::GraphSource>(runtime::Communicator const&)> const& make_source,
    graph::PartitionOptions const& how, bool is_forced);

/// Throws UserError if --task, --loss or another option does not go with the labels of the store: classes, or targets of regression.
void require_fitting_labels(graph::GraphStore const& store, TrainOptions const& options);

} // namespace orthant::cli

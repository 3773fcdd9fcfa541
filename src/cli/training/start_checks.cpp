// SPDX-License-Identifier: Apache-2.0
#include "cli/training/start_checks.hpp"

#include "cli/machine/device_memory.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"
#include "graph/partition/input_summary.hpp"
#include "graph/store/store_file.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <fstream>
#include <malloc.h>

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
  if (store.ignores_weights() && context.world().is_root())
    context.log().warn("{}: {} ignores the weights of edges", store.name(),
                       models::weighs_neighbours(settings)
                           ? fmt::format("--model {}", models::name_of(settings.model))
                           : std::string("--aggregator max"));
  if (store.ignores_edge_features() && context.world().is_root())
    context.log().warn("{}: --model {} does not read the features of edges; gat and gatv2 do", store.name(),
                       models::name_of(settings.model));
}

void warn_of_data(Context const& context, graph::GraphStore const& store) {
  for (auto const& warning : graph::check_data(context.world(), store))
    if (context.world().is_root()) context.log().warn("{}: {}", store.name(), warning);
}

namespace {

/// Communicator of the ranks that share this rank's device: same host and same device id. Collective.
runtime::Communicator sharers_of_device(Context const& context) {
  auto const& binding = context.environment.binding();
  auto const place = std::string(binding.host.data()) + " " + binding.device_id.data();
  auto const color = static_cast<int>(std::hash<std::string>{}(place)&0x7fffffffU);
  return context.world().split(color, context.world().rank(), "device");
}

void require_device_memory(Context const& context, std::string_view what, std::int64_t needed) {
  auto const& world = context.world();
  auto const sharers = sharers_of_device(context);
  auto const sum = runtime::all_reduced(sharers, needed);
  auto const available = runtime::all_reduced(sharers, free_device_bytes(), runtime::Reduction::min);
  runtime::together(world, [&] {
    if (sum > available)
      runtime::throw_user(
          "{} needs about {} of the memory of a device, but {} is free; use more devices, make "
          "it smaller, or give --force-memory to start anyway",
          what, bytes_text(sum), bytes_text(available));
  });
}

} // namespace

void add_force_memory_option(Command& command, bool& is_forced) {
  command.flag("--force-memory", is_forced, "Start even if the predicted memory does not fit");
}

void require_memory(Context const& context, std::string_view what, models::MemoryEstimate const& estimate) {
  if constexpr (pmm::runs_on_host)
    runtime::require_memory(context.world(), what, estimate.peak());
  else
    require_device_memory(context, what, estimate.arrays);
}

std::int64_t memory_of_rank(Context const& context) {
  if constexpr (pmm::runs_on_host) return runtime::memory_of_rank(context.world());
  auto const sharers = sharers_of_device(context);
  return runtime::all_reduced(context.world(), free_device_bytes() / sharers.size(), runtime::Reduction::min);
}

ResidentPeak::ResidentPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << '5'; // resets the peak of the process if permitted
  before_ = runtime::resident_bytes();
}

GraphInMemory ResidentPeak::of(graph::StoreFacts const& facts) const {
  return {runtime::peak_resident_bytes() - before_, graph::bytes_of_arrays(facts)};
}

std::int64_t peak_with_graph(models::MemoryEstimate const& estimate, GraphInMemory const& graph) {
  return std::max(graph.making_bytes, graph.bytes + estimate.peak());
}

graph::GraphStore make_graph_in_memory(
    runtime::Communicator const& world,
    std::function<std::unique_ptr<graph::GraphSource>(runtime::Communicator const&)> const& make_source,
    graph::PartitionOptions const& how, bool is_forced) {
  if (!is_forced) {
    auto const needed = runtime::together(world, [&] {
      runtime::Communicator const self(MPI_COMM_SELF, "self");
      auto const estimate = graph::estimate_partition(self, *make_source(self), how.permutation);
      return estimate.memory_bytes + estimate.disk_bytes; // the store is also in memory
    });
    runtime::require_memory(world, "a graph that each rank makes for itself", needed);
  }
  return graph::partition_in_memory(world, make_source, how);
}

void require_fitting_labels(graph::GraphStore const& store, TrainOptions const& o) {
  auto const kind = store.facts().label_kind;
  if (o.task == "links" && (o.monitor == "r2" || o.monitor == "mae"))
    runtime::throw_user("--monitor {} is for targets of regression: leave it out with --task links",
                        o.monitor);
  if (o.task == "links" || kind == graph::LabelKind::none) return;
  auto const is_real = kind == graph::LabelKind::real;
  auto const* const held = is_real ? "targets of regression" : "classes";
  if (o.task == (is_real ? "classification" : "regression"))
    runtime::throw_user("--task {}: {} has {}{}; leave it out", o.task, store.name(), held,
                        is_real ? "" : ", and targets are numbers that are not all integers");
  auto const is_of_numbers = [](std::string const& word) {
    return word == "mse" || word == "mae" || word == "huber" || word == "r2";
  };
  auto const refuse_unless = [&](bool fits, std::string const& option) {
    if (!fits)
      runtime::throw_user("{} is for {}, and {} has {}: leave it out", option,
                          is_real ? "classes" : "targets of regression", store.name(), held);
  };
  refuse_unless(o.loss == "auto" || is_of_numbers(o.loss) == is_real, "--loss " + o.loss);
  refuse_unless(is_real || !is_of_numbers(o.monitor), "--monitor " + o.monitor);
  refuse_unless(!is_real || o.class_weights == "none", "--class-weights " + o.class_weights);
  refuse_unless(!is_real || o.label_smoothing == 0, fmt::format("--label-smoothing {}", o.label_smoothing));
  refuse_unless(!is_real || !o.roc_auc, "--roc-auc");
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_settings.hpp"

#include "cli/training/train_modes.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/plan/network_parameters.hpp"

#include <array>
#include <string_view>

namespace orthant::cli {
namespace {

/// Options that may change in a resumed training of a graph network because they only affect its speed, or because another part of the
/// identity covers them: the fingerprint covers the data set, parts_of() batches and decoder.
constexpr std::array<std::string_view, 21> free_options{
    "graph",   "dataset",        "mode",        "epochs", "finish-full", "overlap",
    "order",   "schedule",       "gather",      "batch",  "accumulate",  "batch-train-fraction",
    "sampler", "batch-edges",    "prune",       "trace",  "normalize",   "self-loops",
    "preset",  "decoder-hidden", "batch-source"};

models::Identity parts_of(TrainOptions const& o, nlohmann::ordered_json const& run_record,
                          pmm::ProcessGrid const& grid, graph::GraphStore const& store) {
  auto const& facts = store.facts();
  models::Identity identity{
      {"number of vertices", fmt::format("{}", facts.num_vertices)},
      {"number of non-zeros", fmt::format("{}", facts.num_entries)},
      {"normalization", std::string(graph::name_of(facts.normalization))},
      {"self loops", std::string(graph::name_of(facts.graph_operator().self_loops)), models::if_both_have_it},
      {"fingerprint of the data set", graph::fingerprint_of(grid.world(), store)}};
  auto const of_options = identity_of_options(run_record, free_options);
  identity.insert(identity.end(), of_options.begin(), of_options.end());
  if (auto const width = o.decoder_width(); width > 0) // by default the width of --embedding
    identity.push_back({"--decoder-hidden", fmt::format("{}", width), {}, width == o.embedding});
  for (auto const& [name, value] :
       {std::pair(std::string("--mode"), o.mode),
        std::pair(std::string("--epochs"), fmt::format("{}", o.epochs)),
        std::pair(std::string("--finish-full"), fmt::format("{}", o.finish_full))})
    identity.push_back(part_of_length(name, value));
  if (o.mode == "minibatch") {
    auto const num_batches = grid.size(pmm::Axis::data) * o.accumulate;
    for (auto const& [name, value] :
         {std::pair(std::string("--batch"), fmt::format("{}", batch_size_of(o, grid.shape(), facts))),
          std::pair(std::string("--sampler"), o.sampler),
          std::pair(std::string("--batch-edges"), batch_edges_of(o, facts)),
          std::pair(std::string("number of batches per step (data groups x --accumulate)"),
                    fmt::format("{}", num_batches)),
          std::pair(std::string("--batch-train-fraction"), fmt::format("{}", o.batch_train_fraction))})
      identity.push_back({name, value, models::if_both_have_it});
    if (o.sampler == "clusters")
      identity.push_back({"clusters of the store", graph::fingerprint_of_clusters(grid.world(), store),
                          models::if_both_have_it});
  }
  return identity;
}

/// Throws UserError if the checkpoint was written within an epoch of mini-batches, and this training would run that epoch on the full
/// graph.
void require_fitting_epoch(TrainOptions const& options, std::filesystem::path const& path,
                           models::TrainProgress const& progress) {
  if (progress.step == 0) return;
  if (options.mode != "minibatch")
    runtime::throw_user(
        "'{}' was written within epoch {}, at step {} of its mini-batches; go on with --mode minibatch",
        path.string(), progress.epoch, progress.step);
  if (progress.epoch > options.epochs - options.finish_full)
    runtime::throw_user(
        "'{}' was written within epoch {}, at step {} of its mini-batches; with --epochs {} and "
        "--finish-full {} that epoch is on the full graph",
        path.string(), progress.epoch, progress.step, options.epochs, options.finish_full);
}

} // namespace

void identify(Checkpoints& checkpoints, TrainOptions const& options, pmm::ProcessGrid const& grid,
              graph::GraphStore const& store) {
  if (!checkpoints.is_on()) return;
  checkpoints.identify({parts_of(options, checkpoints.context().run_record, grid, store),
                        decays_to_the_end(options), [&options](auto const& path, auto const& facts) {
                          require_fitting_epoch(options, path, facts.progress);
                        }});
}

template<class T>
std::int64_t host_copy_bytes(pmm::ProcessGrid const& grid, models::NetworkPlan const& plan,
                             models::NetworkSettings const& settings, bool writes_checkpoints) {
  pmm::StepPlan const step(grid.shape(), grid.coordinates(), sizeof(T));
  return host_copy_bytes(step, models::lengths_of(step, models::parameters_of(plan, settings)),
                         writes_checkpoints);
}

models::Architecture architecture_of_init(TrainOptions const& options,
                                          models::NetworkSettings const& settings) {
  auto parts = models::architecture_of(settings);
  if (models::matches_any("features", options.init_skip))
    std::erase_if(parts, [](auto const& part) { return part.first == "trained_features"; });
  return parts;
}

template std::int64_t host_copy_bytes<float>(pmm::ProcessGrid const&, models::NetworkPlan const&,
                                             models::NetworkSettings const&, bool);
template std::int64_t host_copy_bytes<double>(pmm::ProcessGrid const&, models::NetworkPlan const&,
                                              models::NetworkSettings const&, bool);

} // namespace orthant::cli

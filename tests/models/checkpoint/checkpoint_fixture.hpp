#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Trainings on grids of fewer ranks than the job has, with the state that a checkpoint keeps of them.

#include "models/gnn/batches/mini_batch.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "models/models_fixture.hpp"
#include "models/training/checkpoint/checkpointer.hpp"
#include "support/scratch_folder.hpp"

#include <array>
#include <optional>
#include <vector>

namespace orthant::testing {

constexpr auto graph_text = "sbm:vertices=103,edges=500,features=13,classes=5";
using Shape = std::array<int, 4>;

/// The grids of the pairs that are tested, as far as the job has ranks for them.
inline std::vector<Shape> grids_up_to(int num_ranks, std::vector<Shape> shapes) {
  std::erase_if(shapes, [&](Shape const& s) { return s[0] * s[1] * s[2] * s[3] > num_ranks; });
  return shapes;
}

/// A grid on the first ranks of the job, if this one is among them.
class Part {
 public:
  Part(runtime::Communicator const& world, Shape const& shape)
      : num_ranks_(shape[0] * shape[1] * shape[2] * shape[3]),
        comm_(world.split(world.rank() < num_ranks_ ? 0 : 1, world.rank(), "part")) {
    if (world.rank() < num_ranks_)
      grid_.emplace(comm_, pmm::GridShape{shape[0], shape[1], shape[2], shape[3]});
  }
  [[nodiscard]] pmm::ProcessGrid const* grid() const { return grid_ ? &*grid_ : nullptr; }

 private:
  int num_ranks_;
  runtime::Communicator comm_;
  std::optional<pmm::ProcessGrid> grid_;
};

inline models::NetworkSettings model_with_features(models::Schedule schedule) {
  models::NetworkSettings model;
  model.set_layers(3, 9);
  model.norm = models::Norm::rms;
  model.has_residuals = true;
  model.trains_features = true;
  model.dropout = 0.3;
  model.schedule = schedule;
  model.seed = 7;
  return model;
}

/// A network on the full graph, and its training.
struct FullTraining {
  using Update = models::ParameterUpdate<double>;
  FullTraining(pmm::ProcessGrid const& grid, models::NetworkSettings const& model,
               models::TrainSettings const& settings,
               graph::PermutationKind permutation = graph::PermutationKind::twofold)
      : store(store_of_dataset(grid.world(), graph_text, permutation)),
        network(grid, store, model),
        loss(models::make_vertex_loss<double>(grid, store, network.plan().logits())),
        update(std::make_shared<Update>(grid, network.parameters(), settings)),
        trainer(grid, network, loss, settings, update),
        state(grid, network.parameters(), *update) {}
  graph::GraphStore store;
  models::GraphNetwork<double> network;
  pmm::RowLoss<double> loss;
  std::shared_ptr<Update> update;
  models::Trainer<double> trainer;
  models::TrainingState<double> state;
};

/// A network on mini-batches, and its training.
struct BatchTraining {
  BatchTraining(pmm::ProcessGrid const& grid, models::NetworkSettings const& model,
                models::TrainSettings const& settings, models::MiniBatchSettings const& batches)
      : store(store_of_dataset(grid.world(), graph_text)),
        trainer(grid, store, model, settings, batches),
        state(grid, trainer.parameters(), trainer.update()) {}
  graph::GraphStore store;
  models::MiniBatchNetwork<double> trainer;
  models::TrainingState<double> state;
};

/// Epochs from `start` on, until `num_steps` steps are made (or all).
struct TrainedRun {
  std::vector<runtime::EpochRecord> records;
  models::TrainResult result;
};
template<class Training>
TrainedRun run_until(Training& training, std::int64_t num_steps, models::TrainProgress const& start = {},
                     models::StopRequest const& after_step = {}) {
  TrainedRun run;
  run.result = training.trainer.run([&](auto const& record) { run.records.push_back(record); }, start,
                                    [&](models::TrainProgress const& progress) {
                                      if (after_step) static_cast<void>(after_step(progress));
                                      return --num_steps == 0;
                                    });
  return run;
}

inline models::CheckpointSettings checkpoints_in(std::string const& folder) {
  models::CheckpointSettings settings;
  settings.folder = folder;
  settings.interval.epochs = 1;
  settings.is_asynchronous = false;
  settings.facts.training = "0123456789abcdef";
  settings.facts.identity = {{"--seed", "7"}};
  return settings;
}

inline void allow_all(std::filesystem::path const&, models::CheckpointFacts const&) {}

/// Checkpoint 1 of a training that has come so far.
inline void save(models::TrainingState<double>& state, std::string const& folder,
                 models::TrainProgress const& progress) {
  models::Checkpointer<double> checkpointer(state, checkpoints_in(folder));
  checkpointer.after_step(progress); // which keeps the best epoch
  checkpointer.save(progress);
  checkpointer.finish();
}

} // namespace orthant::testing

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Trainings of formula_batches.hpp that are written to a checkpoint and go on from it.

#include "models/lm/formula_batches.hpp"
#include "models/training/checkpoint/checkpointer.hpp"

namespace orthant::testing {

/// Trains `num_steps` steps and writes the checkpoint `path`. Returns how far the training is. Collective over `world`.
inline models::TrainProgress train_to_checkpoint(runtime::Communicator const& world,
                                                 pmm::ProcessGrid const& grid, LmTrainer& training,
                                                 int num_steps, std::string const& path) {
  models::TrainProgress progress;
  auto num_done = 0;
  training.trainer().train_epoch(progress, [&](auto const&) { return ++num_done == num_steps; });
  auto const update = training.trainer().update();
  models::TrainingState<double> const state(grid, training.network().parameters(), *update);
  models::CheckpointFacts facts;
  facts.progress = progress;
  facts.num_steps = update->num_steps();
  models::CheckpointOutput<double> output(world, path, facts, state, {});
  output.write();
  output.agree();
  if (world.is_root())
    output.commit();
  else
    output.leave_to_root();
  ORTHANT_MPI(MPI_Barrier(MPI_COMM_WORLD));
  return progress;
}

/// Goes on from the checkpoint to the end, and returns the losses of these steps. Collective over the ranks of the grid.
inline std::vector<double> train_from_checkpoint(pmm::ProcessGrid const& grid, LmTrainer& training,
                                                 std::string const& path) {
  models::TrainingState<double> state(grid, training.network().parameters(), *training.trainer().update());
  auto const point = models::resume_from(path, state, [](auto const&, auto const&) {});
  training.trainer().run([](auto const&) {}, point.facts.progress);
  return training.trainer().step_losses();
}

} // namespace orthant::testing

// SPDX-License-Identifier: Apache-2.0
//
// What is in a checkpoint, and what is wrong with one that was damaged or is of another training.
#include "models/checkpoint/checkpoint_fixture.hpp"

#include "models/gnn/files/network_weights.hpp"
#include "models/training/checkpoint/checkpointer.hpp"
#include "support/user_messages.hpp"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

namespace fs = std::filesystem;

void flip_byte(std::string const& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  auto const byte = static_cast<char>(file.get() ^ 1);
  file.seekp(offset);
  file.put(byte);
}

class CheckpointFile : public ::testing::Test {
 protected:
  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  pmm::ProcessGrid grid_{world_, pmm::near_cubic(world_.size())};
  test::ScratchFolder scratch_{MPI_COMM_WORLD};
  models::TrainSettings settings_;
  models::NetworkSettings model_ = model_with_features(models::Schedule::rows);

  void barrier() { ORTHANT_MPI(MPI_Barrier(MPI_COMM_WORLD)); }
  /// Checkpoints 1 and 2, after epochs 1 and 2. Returns the losses of epochs 2 and 3.
  std::array<double, 2> save_two() {
    settings_.eval_every = 1;
    settings_.num_epochs = 3;
    FullTraining training(grid_, model_, settings_);
    models::Checkpointer<double> checkpointer(training.state, checkpoints_in(scratch_.file("")));
    auto const run = run_until(training, 2, {}, [&](auto const& progress) {
      checkpointer.after_step(progress);
      return false;
    });
    checkpointer.finish();
    auto const last = run_until(training, 1, run.result.progress);
    return {run.records.at(1).loss, last.records.at(0).loss};
  }
  std::string path(std::int64_t number) {
    return models::checkpoint_path(scratch_.file(""), number).string();
  }
};

TEST_F(CheckpointFile, AFlippedByteOfAnyArrayIsFoundAndTheOneBeforeIsUsed) {
  auto const losses = save_two();
  auto const names = runtime::Hdf5File::open(path(2)).array_names();
  EXPECT_EQ(names.size(),
            4 * 9U + 2); // parameters of 3 layers and features, their moments, the best ones; facts
  for (auto const& name : names) {
    SCOPED_TRACE(name);
    auto const array = runtime::Hdf5File::open(path(2)).describe(name);
    auto const middle = array.offset_bytes + static_cast<std::int64_t>(models::num_elements(array.extents) *
                                                                       runtime::size_of(array.type) / 2);
    barrier();
    if (world_.is_root()) flip_byte(path(2), middle);
    barrier();
    FullTraining after(grid_, model_, settings_);

    auto const mistake =
        test::message_of([&] { static_cast<void>(models::resume_from(path(2), after.state, allow_all)); });
    auto const point = models::resume_newest(scratch_.file(""), after.state, allow_all);

    EXPECT_NE(mistake.find("is damaged"), std::string::npos) << mistake;
    auto const named = name == "/facts_crc32" ? "/facts" : name;
    EXPECT_NE(mistake.find(named), std::string::npos) << mistake;
    ASSERT_TRUE(point.has_value());
    EXPECT_EQ(point->path.string(), path(1));
    EXPECT_EQ(point->facts.progress.epoch, 2);
    auto const next = run_until(after, 1, point->facts.progress);
    EXPECT_NEAR(next.records.at(0).loss, losses[0], rounding);
    barrier();
    if (world_.is_root()) flip_byte(path(2), middle);
    barrier();
  }
  FullTraining after(grid_, model_, settings_);
  auto const point = models::resume_newest(scratch_.file(""), after.state, allow_all);
  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(point->facts.progress.epoch, 3);
  EXPECT_NEAR(run_until(after, 1, point->facts.progress).records.at(0).loss, losses[1], rounding);
}

TEST_F(CheckpointFile, ATruncatedOneIsDamagedAndTheOneBeforeIsUsed) {
  save_two();
  barrier();
  if (world_.is_root()) fs::resize_file(path(2), fs::file_size(path(2)) / 2);
  barrier();
  FullTraining after(grid_, model_, settings_);

  auto const point = models::resume_newest(scratch_.file(""), after.state, allow_all);

  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(point->path.string(), path(1));
  barrier();
  if (world_.is_root()) fs::resize_file(path(1), 100);
  barrier();
  EXPECT_FALSE(models::resume_newest(scratch_.file(""), after.state, allow_all).has_value());
}

TEST_F(CheckpointFile, AnotherModelIsRefusedByNameAndShape) {
  save_two();
  auto const mistake_with = [&](models::NetworkSettings const& model, models::OptimizerKind kind) {
    auto settings = settings_;
    settings.optimizer.kind = kind;
    FullTraining other(grid_, model, settings);
    return test::message_of(
        [&] { static_cast<void>(models::resume_newest(scratch_.file(""), other.state, allow_all)); });
  };
  auto wider = model_;
  wider.set_layers(3, 11);
  EXPECT_NE(mistake_with(wider, models::OptimizerKind::adam)
                .find("its /parameters/layer0.weight has shape 13 x 9, but this one needs 13 x 11"),
            std::string::npos);
  auto deeper = model_;
  deeper.set_layers(4, 9);
  EXPECT_NE(mistake_with(deeper, models::OptimizerKind::adam).find("of another training"), std::string::npos);
  auto without_norm = model_;
  without_norm.norm = models::Norm::none;
  EXPECT_NE(
      mistake_with(without_norm, models::OptimizerKind::adam).find("layer0.norm, and this one has none"),
      std::string::npos);
  EXPECT_NE(mistake_with(model_, models::OptimizerKind::sgd).find("it has no /optimizer/momentum_buffer/"),
            std::string::npos);
}

TEST_F(CheckpointFile, IsAWeightsFileOfNaturalOrder) {
  settings_.num_epochs = 2;
  model_.trains_features = false;
  FullTraining training(grid_, model_, settings_);
  auto const run = run_until(training, 2);
  save(training.state, scratch_.file(""), run.result.progress);

  FullTraining loaded(grid_, model_, settings_);
  models::load_weights(grid_, path(2), loaded.network.parameters());

  EXPECT_EQ(loaded.trainer.evaluate()[1].loss, training.trainer.evaluate()[1].loss);
}

TEST_F(CheckpointFile, AnotherPrecisionIsConverted) {
  save_two();
  auto const store = store_of_dataset(world_, graph_text);
  models::GraphNetwork<float> network(grid_, store, model_);
  models::ParameterUpdate<float> update(grid_, network.parameters(), settings_);
  models::TrainingState<float> state(grid_, network.parameters(), update);

  auto const point = models::resume_newest(scratch_.file(""), state, allow_all);

  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(update.num_steps(), 2);
  FullTraining training(grid_, model_, settings_);
  static_cast<void>(models::resume_newest(scratch_.file(""), training.state, allow_all));
  for (std::size_t p = 0; p < state.parameters().size(); ++p) {
    std::vector<float> found;
    std::vector<double> expected;
    models::copy_to_host(state.parameters()[p].value(), found);
    models::copy_to_host(training.state.parameters()[p].value(), expected);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], static_cast<float>(expected[i])) << state.parameters()[p].name;
  }
}

TEST(CheckpointFacts, SurviveTheirText) {
  models::CheckpointFacts facts;
  facts.progress.begin_epoch(12);
  facts.progress.step = 3;
  facts.progress.loss_sum = 0.1 + 0.2;
  facts.progress.loss_count = 7;
  facts.progress.last =
      models::Scores{{{{5, 3, 1.0 / 3}, {}, {}}, {{6, 2, 1e-300}, 0.75, {}}, {{7, 1, 2.5}, {}, {}}}};
  facts.progress.best = {8, *facts.progress.last};
  facts.progress.records = {0.875, 1e-301};
  facts.progress.num_without_gain = 4;
  facts.num_steps = 99;
  facts.identity = {{"--lr", "0.1", "learning-rate"}};
  facts.tensors = {{"/parameters/a", {2, 3}, 0xfedcba9876543210ULL}, {"/parameters/b", {4}, 1}};

  auto const found = models::CheckpointFacts::from_json(facts.to_json(), "a.h5");

  EXPECT_EQ(found.to_json(), facts.to_json());
  EXPECT_EQ(found.progress.loss_sum, facts.progress.loss_sum);
  EXPECT_EQ(found.progress.last->at(1).loss, 1e-300);
  EXPECT_EQ(found.progress.last->at(0).roc_auc, std::nullopt);
  EXPECT_EQ(found.progress.last->at(1).roc_auc, 0.75);
  EXPECT_EQ(found.progress.records->merit, 0.875);
  EXPECT_EQ(found.progress.records->loss, 1e-301);
  EXPECT_EQ(found.progress.num_without_gain, 4);
  EXPECT_EQ(found.tensors[0].sum, facts.tensors[0].sum);
  facts.tensors[0].sum = 0;
  EXPECT_EQ(facts.to_json().size(), found.to_json().size());
  EXPECT_NE(test::message_of([] {
              static_cast<void>(models::CheckpointFacts::from_json("{}", "a.h5"));
            }).find("damaged"),
            std::string::npos);
  auto newer = facts.to_json();
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_NE(test::message_of([&] {
              static_cast<void>(models::CheckpointFacts::from_json(newer, "a.h5"));
            }).find("version 2, and this program reads versions up to 1"),
            std::string::npos);
}

TEST(Identity, DifferencesAreNamed) {
  models::Identity const recorded{
      {"--dropout", "0.5"}, {"--lr", "0.1"}, {"--batch", "8", models::if_both_have_it}};
  auto const message_with = [&](std::string const& dropout, std::string const& lr,
                                std::vector<std::string> const& may_differ,
                                models::Identity const& more = {}) {
    return test::message_of([&] {
      models::Identity wanted{
          {"--dropout", dropout}, {"--lr", lr, "learning-rate"}, {"--new", "2", "", true}};
      wanted.insert(wanted.end(), more.begin(), more.end());
      models::require_same_training("c.h5", recorded, wanted, may_differ);
    });
  };
  std::string const head = "'c.h5' is a checkpoint of another training: ";
  EXPECT_EQ(message_with("0.5", "0.1", {}), "no UserError");
  EXPECT_EQ(message_with("0.5", "0.2", {"learning-rate"}), "no UserError");
  EXPECT_EQ(message_with("0.50", "1e-1", {}), "no UserError");
  EXPECT_EQ(message_with("0.5", "0.2", {"precision"}),
            head + "its --lr is 0.1, here it is 0.2 (--resume-override learning-rate goes on all the same)");
  EXPECT_EQ(message_with("0.3", "0.2", {}),
            head + "its --dropout is 0.5, here it is 0.3; its --lr is 0.1, here it is 0.2");
  EXPECT_EQ(message_with("0.5", "0.1", {}, {{"--clip-norm", "1"}}),
            head + "its --clip-norm is not given, here it is 1");
  EXPECT_EQ(message_with("0.5", "0.1", {}, {{"--batch", "9", models::if_both_have_it}}),
            head + "its --batch is 8, here it is 9");
  EXPECT_EQ(test::message_of([&] {
              models::require_same_training("c.h5", {{"--clip-norm", "1"}}, {}, {});
            }),
            head + "its --clip-norm is 1, here it is not given");
}

TEST(CheckpointFolder, KeepsTheNewest) {
  test::ScratchFolder const scratch(MPI_COMM_SELF);
  fs::path const folder = scratch.file("");
  for (std::int64_t const number : {1, 2, 5, 7})
    test::write_file(models::checkpoint_path(folder, number), "x");
  for (auto const* name : {"checkpoint-3.h5", "checkpoint-000000.h5", "checkpoint-00000a.h5", "other.h5",
                           "checkpoint-000004.h5.partial-0123456789abcdef"})
    test::write_file(folder / name, "x");
  EXPECT_EQ(models::checkpoint_numbers(folder), (std::vector<std::int64_t>{1, 2, 5, 7}));
  EXPECT_TRUE(models::checkpoint_numbers(folder / "none").empty());

  models::point_latest_to(folder, 2);
  models::point_latest_to(folder, 5);
  models::remove_older_checkpoints(folder, 5, 2);

  EXPECT_EQ(fs::read_symlink(folder / "latest"), "checkpoint-000005.h5");
  EXPECT_EQ(models::checkpoint_numbers(folder), (std::vector<std::int64_t>{2, 5, 7}));
}

TEST(CheckpointFolder, LaterCheckpointsGetOtherNames) {
  test::ScratchFolder const scratch(MPI_COMM_SELF);
  using Numbers = std::vector<std::int64_t>;
  struct Case {
    Numbers there;
    std::int64_t resumed = 0; // the number of the file; 0: none
    std::int64_t step = 0;
    Numbers left;
    std::size_t num_renamed = 0;
  };
  auto number = 0;
  for (auto const& [there, resumed, step, left, num_renamed] :
       {Case{{20, 40, 60}, 60, 60, {20, 40, 60}, 0}, Case{{20, 40, 60}, 40, 40, {20, 40}, 1},
        Case{{20, 40}, 0, 0, {}, 2}, // all are damaged
        Case{{1, 2, 3}, 2, 20, {1, 2}, 1},
        Case{{8, 9, 100}, 100, 100, {8, 9, 100}, 0}, // numbers of earlier versions
        Case{{1, 2, 9, 10}, 10, 2, {1, 2}, 2}}) {    // 10 was written after a return to 1, and holds step 2
    SCOPED_TRACE(number);
    fs::path const folder = scratch.file(fmt::format("{}", number++));
    fs::create_directories(folder);
    for (auto const each : there)
      test::write_file(models::checkpoint_path(folder, each), fmt::format("{}", each));
    models::point_latest_to(folder, there.back());

    auto const renamed = models::set_aside_later_checkpoints(
        folder, step, resumed > 0 ? models::checkpoint_path(folder, resumed) : fs::path());

    EXPECT_EQ(models::checkpoint_numbers(folder), left);
    EXPECT_EQ(renamed.size(), num_renamed);
    for (auto const& name : renamed)
      EXPECT_TRUE(fs::is_regular_file(name) && name.extension() == ".1") << name;
    EXPECT_EQ(fs::exists(fs::symlink_status(folder / "latest")), !left.empty());
    if (left.empty()) continue;
    EXPECT_EQ(fs::read_symlink(folder / "latest"), models::checkpoint_path("", left.back()));
    if (resumed > step) {
      EXPECT_EQ(test::text_of_file(models::checkpoint_path(folder, step).string()), "10");
    }
  }
}

TEST(CheckpointFolder, LosesWhatKilledWritersHaveLeft) {
  test::ScratchFolder const scratch(MPI_COMM_SELF);
  fs::path const folder = scratch.file("new/folder");
  models::require_writable_folder(folder);
  for (auto const* name : {"checkpoint-000040.h5.partial-0123456789abcdef", "checkpoint-000041.h5.1",
                           "x.h5.partial-0123456789abcdef", "checkpoint-000042.h5.partial-0"})
    test::write_file(folder / name, "x");

  models::require_writable_folder(folder);

  EXPECT_FALSE(fs::exists(folder / "checkpoint-000040.h5.partial-0123456789abcdef"));
  for (auto const* name :
       {"checkpoint-000041.h5.1", "x.h5.partial-0123456789abcdef", "checkpoint-000042.h5.partial-0"})
    EXPECT_TRUE(fs::exists(folder / name)) << name;
}

} // namespace
} // namespace orthant::testing

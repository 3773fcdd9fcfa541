// SPDX-License-Identifier: Apache-2.0
#include "cli/training/weight_files.hpp"

#include "cli/training/checkpoints.hpp"
#include "runtime/files/staged_file.hpp"

#include <array>
#include <filesystem>

namespace orthant::cli {
namespace {

/// "runs/w.h5" -> "runs/w-best.h5".
std::string beside(std::string const& weights) {
  std::filesystem::path path(weights);
  path.replace_filename(path.stem().string() + "-best" + path.extension().string());
  return path.string();
}

/// Refuses the options that need a best epoch. `why`: "{option} {why}".
void require_none_of_best(TrainOptions const& options, std::string const& why) {
  if (!options.save_best.empty()) runtime::throw_user("--save-best {}", why);
  if (options.patience > 0) runtime::throw_user("--patience {}", why);
}

} // namespace

WeightFiles::WeightFiles(Context const& context, TrainOptions const& options) : options_(options) {
  auto const& world = context.world();
  if (options.eval_every == 0)
    require_none_of_best(options, "goes by evaluations; give --eval-every the number of epochs between them");
  if (!options.save_weights.empty()) runtime::require_writable(world, options.save_weights, "weights");
  best_ = options.save_best;
  if (best_.empty() && !options.save_weights.empty() && options.eval_every > 0) {
    best_ = beside(options.save_weights);
    std::array<FileOption, 3> const files{
        {{"--save-weights, for the best epoch,", FileOption::Use::output, &best_},
         {"--graph", FileOption::Use::input, &options.graph},
         {"--init-from", FileOption::Use::input, &options.init_from}}};
    require_distinct_files(world, files);
    if (!context.replaces_outputs)
      require_new_files(world, files, [&] { return goes_on_from_checkpoint(options); });
  }
  if (!best_.empty()) runtime::require_writable(world, best_, "weights");
}

void WeightFiles::judge_by(graph::GraphStore const& store) {
  if (store.facts().split_sizes[static_cast<std::size_t>(graph::Split::valid)] > 0) return;
  require_none_of_best(
      options_, fmt::format("goes by the accuracy of validation vertices, and {} has none; leave it out",
                            store.name()));
  best_.clear();
}

} // namespace orthant::cli

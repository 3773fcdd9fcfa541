// SPDX-License-Identifier: Apache-2.0
#include "cli/training/weight_files.hpp"

#include "cli/training/checkpoints.hpp"
#include "runtime/files/staged_file.hpp"

#include <filesystem>

namespace orthant::cli {
namespace {

/// Default path of the best weights: "runs/w-best.h5" for "runs/w.h5".
std::string beside(std::string const& weights) {
  std::filesystem::path path(weights);
  path.replace_filename(path.stem().string() + "-best" + path.extension().string());
  return path.string();
}

} // namespace

/// Throws UserError if an option needs a best epoch. The message is "{option} {why}".
void WeightFiles::require_none_of_best(std::string const& why) const {
  if (!options_.save_best.empty()) runtime::throw_user("--save-best {}", why);
  if (patience_ > 0) runtime::throw_user("--patience {}", why);
}

WeightFiles::WeightFiles(Context const& context, WeightOptions const& options, WeightRules const& rules)
    : context_(context),
      options_(options),
      patience_(rules.patience) {
  auto const& world = context.world();
  if (rules.eval_every == 0)
    require_none_of_best(
        fmt::format("goes by evaluations; give --eval-every the number of {}s between them", rules.unit));
  if (!options.save_weights.empty()) runtime::require_writable(world, options.save_weights, "weights");
  best_ = options.save_best;
  if (best_.empty() && !options.save_weights.empty() && rules.eval_every > 0) {
    best_ = beside(options.save_weights);
    auto files = rules.inputs;
    files.push_back({"--save-weights, for the best epoch,", FileOption::Use::output, &best_});
    files.push_back({"--init-from", FileOption::Use::input, &options.init_from});
    require_distinct_files(world, files);
    if (!context.replaces_outputs)
      require_new_files(world, files, [&] { return goes_on_from_checkpoint(rules.checkpoints); });
  }
  if (!best_.empty()) runtime::require_writable(world, best_, "weights");
}

void WeightFiles::judge_by_nothing(std::string const& why) {
  auto const& sources = context_.run_record.at("sources");
  if (patience_ > 0 && sources.value("patience", std::string()) == "preset") {
    if (context_.world().is_root())
      context_.log().info("--patience {} of the preset has no effect: it {}", patience_,
                          why.substr(0, why.rfind(';')));
    patience_ = 0;
  }
  require_none_of_best(why);
  best_.clear();
}

} // namespace orthant::cli

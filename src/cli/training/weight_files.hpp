#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --save-weights and --save-best: which files get weights at the end of a training. `--save-weights w.h5` writes
// the last ones to w.h5 and those of the best epoch to w-best.h5, unless --save-best names another file or there is
// nothing to judge by.

#include "cli/options/command.hpp"
#include "cli/options/shared_options.hpp"
#include "models/training/checkpoint/training_state.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// What decides which weights are kept, beside the options that name files.
struct WeightRules {
  std::string_view unit;       // what the training counts, "epoch" or "step"
  std::int64_t eval_every = 0; // 0: nothing is ever evaluated, so there is no best
  std::int64_t patience = 0;
  std::vector<FileOption> inputs; // that no file of weights may be
  CheckpointOptions const& checkpoints;
};

class WeightFiles {
 public:
  /// Throws UserError, the same on all ranks, if a file cannot be written, is there already or is another one of
  /// the options, or if an option needs evaluations and there are none. Collective.
  WeightFiles(Context const& context, WeightOptions const& options, WeightRules const& rules);

  /// There is nothing to validate on, as `why` says: "goes by .., and .. has none; leave it out". Throws UserError if
  /// an option of the user needs it; without such an option nothing is the best then. Not collective.
  void judge_by_nothing(std::string const& why);
  /// Whether the weights of the best epoch are to be kept.
  [[nodiscard]] bool keeps_best() const { return !best_.empty(); }
  /// True if save() writes a file, if there is a best epoch or not.
  [[nodiscard]] bool writes(bool has_best) const {
    return !options_.save_weights.empty() || (keeps_best() && has_best);
  }

  /// Writes the files; the parameters are those of the best epoch afterwards, if `best` is not null. Collective
  /// over the grid's world. Throws UserError.
  template<class T>
  void save(pmm::ProcessGrid const& grid, std::vector<models::Parameter<T>> const& parameters,
            models::Architecture const& architecture, models::HostCopy<T> const* best) const {
    if (!options_.save_weights.empty())
      models::save_weights(grid, options_.save_weights, parameters, architecture);
    if (best_.empty() || best == nullptr) return;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      models::copy_from_host((*best)[p], parameters[p].value());
    models::save_weights(grid, best_, parameters, architecture);
  }

 private:
  void require_none_of_best(std::string const& why) const;

  Context const& context_;
  WeightOptions const& options_;
  std::int64_t patience_;
  std::string best_; // empty: none
};

} // namespace orthant::cli

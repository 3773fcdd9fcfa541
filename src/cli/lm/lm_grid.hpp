#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --grid auto of language models: the grid whose step takes least on a machine, of those that fit into the memory of a rank.

#include "cli/options/command.hpp"
#include "models/lm/training/language_model_cost.hpp"
#include "models/training/training_run.hpp"
#include "tokens/token_file.hpp"

#include <string>

namespace orthant::cli {

struct LanguageGridQuestion {
  std::string grid = "auto";
  std::string machine; // empty: the assumed one
  models::TransformerSettings const& model;
  models::SequenceSettings const& sequences;
  models::OptimizerSettings const& optimizer;
  std::int64_t num_candidates = 0; // --measure-top
  int expert_axis = 1;             // its ranks: a factor of the data groups
};

/// The fastest grids, as many as are to be measured, at least one; if none fits, the fastest one of all, which a check of memory will
/// refuse. T is the scalar of training. The same on all ranks. Collective. Throws UserError.
template<class T>
[[nodiscard]] std::vector<models::LanguageModelCost>
rank_language_grids(Context const& context, LanguageGridQuestion const& question);

struct ChosenLanguageGrid {
  pmm::GridShape shape;
  nlohmann::ordered_json record; // of the metrics; empty if nothing was measured
};

/// The first of them, or by --measure-top the fastest in fact. Collective. Throws UserError.
template<class T>
[[nodiscard]] ChosenLanguageGrid
choose_language_grid(Context const& context, LanguageGridQuestion const& question,
                     models::TrainSettings const& settings, tokens::TokenFile& file);

} // namespace orthant::cli

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Factories of all subcommands, and what several of them share.

#include "cli/options/command.hpp"
#include "graph/generate/generators.hpp"
#include "models/parameters/weights_file.hpp"

#include <memory>
#include <string>
#include <vector>

namespace orthant::cli {

std::unique_ptr<Command> make_generate();
std::unique_ptr<Command> make_partition();
std::unique_ptr<Command> make_export();
std::unique_ptr<Command> make_export_weights();
std::unique_ptr<Command> make_import_weights();
std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_evaluate();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_plan_lm();
std::unique_ptr<Command> make_plot();
std::unique_ptr<Command> make_tokenize();
std::unique_ptr<Command> make_train_lm();
std::unique_ptr<Command> make_evaluate_lm();
std::unique_ptr<Command> make_complete();
std::unique_ptr<Command> make_bench_collectives();
std::unique_ptr<Command> make_bench_spmm();
std::unique_ptr<Command> make_bench_gemm();
std::unique_ptr<Command> make_bench_epoch();
std::unique_ptr<Command> make_bench_machine();
std::unique_ptr<Command> make_study_init();
std::unique_ptr<Command> make_study_submit();
std::unique_ptr<Command> make_study_status();
std::unique_ptr<Command> make_study_collect();
std::unique_ptr<Command> make_study_report();
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_info();

// Check of network options against the weights that `evaluate` and `evaluate-lm` read: they accept the command lines of trainings.

/// Throws UserError if the user or an applied preset has set an option of the network to another value than `of_weights`, the record of
/// the file at `path`. Names in the record are option names with underscores: "kv_heads" is --kv-heads. Not collective; same result on
/// all ranks.
void require_given_network(Context const& context, std::string const& path,
                           models::Architecture const& of_weights, std::vector<std::string> const& idle = {});

// Options of generated graphs, which go to files (`generate`) or into a store (`partition --generate`).

/// Names of the kinds of graphs that graph::parse_generator_kind() accepts.
[[nodiscard]] std::vector<std::string> generator_kinds();

struct GeneratorOptions {
  std::string kind;
  std::int64_t vertices = 10'000;
  std::int64_t edges = 0;
  std::int64_t features = 64;
  std::int64_t classes = 8;
};

/// Declares all options except the kind, which each command names differently.
void add_generator_options(Command& command, GeneratorOptions& options);

[[nodiscard]] graph::GeneratorOptions generator_of(GeneratorOptions const& options, std::int64_t seed);

} // namespace orthant::cli

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Factories of all subcommands.

#include "cli/options/command.hpp"

#include <memory>
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

} // namespace orthant::cli

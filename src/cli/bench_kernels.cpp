// SPDX-License-Identifier: Apache-2.0
//
// orthant bench spmm, gemm and epoch: kernels and whole epochs against what the machine can do.

#include "cli/subcommands.hpp"

namespace orthant::cli {
namespace {

std::unique_ptr<Command> make_unbuilt(std::string const& name, std::string const& description) {
  auto command = std::make_unique<Command>(name, description + " (not built yet)");
  command->set_run([name](Context&) -> int { refuse_unbuilt("orthant " + name); });
  return command;
}

} // namespace

std::unique_ptr<Command> make_bench_spmm() {
  return make_unbuilt("bench spmm", "Time the sparse matrix product");
}

std::unique_ptr<Command> make_bench_gemm() {
  return make_unbuilt("bench gemm", "Time the dense matrix products");
}

std::unique_ptr<Command> make_bench_epoch() {
  return make_unbuilt("bench epoch", "Time whole epochs");
}

} // namespace orthant::cli

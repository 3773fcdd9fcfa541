// SPDX-License-Identifier: Apache-2.0
//
// A command line, a word a line: the options of every command, and the small languages of their values
// (grids, lists).

#include "cli/commands/subcommands.hpp"
#include "fuzz/fuzz_target.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/store/store_format.hpp"
#include "pmm/grid/process_grid.hpp"

#include <memory>
#include <sstream>
#include <vector>

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::vector<std::string> words;
  for (std::string line; std::getline(lines, line);)
    words.push_back(line);
  return words;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  using fuzz::accept_or_refuse;
  auto const words = words_of(fuzz::text_of(data, size));
  for (auto* make : {cli::make_generate, cli::make_partition, cli::make_train, cli::make_evaluate,
                     cli::make_bench_collectives, cli::make_info})
    accept_or_refuse([&] {
      auto const command = make();
      command->add_common_options();
      if (command->parse(words)) static_cast<void>(command->resolved());
    });
  for (auto const& word : words) {
    accept_or_refuse([&] {
      auto const shape = pmm::parse_grid(word, 12);
      if (shape.data * shape.x * shape.y * shape.z != 12) __builtin_trap();
    });
    accept_or_refuse([&] { static_cast<void>(graph::parse_input_format(word)); });
    accept_or_refuse([&] { static_cast<void>(graph::parse_permutation(word)); });
  }
  return 0;
}

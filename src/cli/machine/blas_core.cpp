// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/blas_core.hpp"

#include "pmm/gemm/blas_library.hpp"

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace orthant::cli {
namespace {

constexpr auto coretype_variable = "OPENBLAS_CORETYPE";
// Holds OpenBLAS's own choice; set together with coretype_variable before the program executes itself again.
constexpr auto replaced_variable = "ORTHANT_REPLACED_BLAS_CORE";

std::optional<std::string> variable(char const* name) {
  auto const* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// Command line as the system received it. With a loader (`ld.so program ..`) it has more words than main's argv.
std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');)
    words.push_back(word);
  return words;
}

} // namespace

void restart_with_better_core() noexcept {
  try {
    auto const library = pmm::find_blas_library();
    auto const core = pmm::better_core(library, runtime::find_processor(), variable(coretype_variable));
    auto words = command_line();
    if (!core || words.empty()) return;
    std::vector<char*> arguments;
    for (auto& word : words)
      arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (setenv(replaced_variable, library.core.c_str(), 1) != 0 ||
        setenv(coretype_variable, core->c_str(), 1) != 0)
      return; // without both, the program would execute itself for ever
    std::error_code error;
    auto const program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) execv(program.c_str(), arguments.data()); // keeps the process's name
    execv("/proc/self/exe", arguments.data());
    unsetenv(coretype_variable); // execv failed: undo
    unsetenv(replaced_variable);
  } catch (std::exception const&) { // out of memory: go on with slow kernels
  }
}

std::string describe_blas() {
  auto const library = pmm::find_blas_library();
  if (library.core.empty()) return library.name;
  auto const replaced = variable(replaced_variable);
  auto const coretype = variable(coretype_variable);
  auto const why = replaced   ? fmt::format(" (its own choice was {})", *replaced)
                   : coretype ? fmt::format(" ({}={})", coretype_variable, *coretype)
                              : "";
  return fmt::format("{}, kernels of {}{}", library.name, library.core, why);
}

void warn_of_slow_core(runtime::Log& log) {
  auto const library = pmm::find_blas_library();
  auto const processor = runtime::find_processor();
  auto const coretype = variable(coretype_variable);
  if (!pmm::has_slow_core(library, processor)) return;
  if (coretype && pmm::is_same_core(*coretype, library.core)) return; // chosen by the user
  auto const slow = fmt::format("dense products are slow: {} uses its kernels of {}, with {}, on {}, with {}",
                                library.name, library.core, name_of(pmm::vectors_of_core(library.core)),
                                processor.name, name_of(processor.vectors));
  auto const core = pmm::better_core(library, processor, std::nullopt);
  if (!core)
    log.warn_once("{}; it was built for these alone: use one that was built with DYNAMIC_ARCH=1", slow);
  else if (!coretype)
    log.warn_once("{}; set {}={} (the program could not do it itself)", slow, coretype_variable, *core);
  else if (pmm::is_same_core(*coretype, *core))
    log.warn_once("{}; it does not take {}={}: use a newer OpenBLAS", slow, coretype_variable, *core);
  else
    log.warn_once("{}; it does not take {}={}: set {}", slow, coretype_variable, *coretype, *core);
}

} // namespace orthant::cli

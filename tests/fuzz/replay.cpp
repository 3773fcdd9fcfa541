// SPDX-License-Identifier: Apache-2.0
//
// main() of a target that any compiler builds: gives it the files named on the command line, or all files of
// the folders named there, and prints their number. What a fuzzer has found stays found without it.

#include "fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(fs::path const& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (auto const& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

} // namespace

int main(int argc, char** argv) {
  std::size_t num_inputs = 0;
  for (int i = 1; i < argc; ++i) {
    if (!fs::exists(argv[i])) continue; // a target that no input has broken yet has no folder of them
    for (auto const& path : files_of(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      std::vector<char> const bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      std::fprintf(stderr, "%s\n", path.c_str()); // the last line names the input that ends the program
      LLVMFuzzerTestOneInput(reinterpret_cast<std::uint8_t const*>(bytes.data()), bytes.size());
      ++num_inputs;
    }
  }
  std::printf("%zu inputs\n", num_inputs);
  return num_inputs > 0 ? 0 : 1;
}

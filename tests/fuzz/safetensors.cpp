// SPDX-License-Identifier: Apache-2.0
//
// A safetensors file: its header, all of its tensors, and then the weights file that import-weights makes of it.

#include "runtime/files/safetensors.hpp"
#include "fuzz/fuzz_target.hpp"
#include "models/gnn/files/state_dict.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  static fuzz::ScratchFolder const folder;
  auto const path = folder.write("w.safetensors", fuzz::text_of(data, size));
  return fuzz::accept_or_refuse([&] {
    runtime::SafetensorsFile const file(path);
    for (auto const& tensor : file.tensors()) {
      auto const floats = file.read<float>(tensor.name);
      if (std::ssize(floats) != tensor.num_elements()) __builtin_trap();
      static_cast<void>(file.read<double>(tensor.name));
    }
    auto const weights = folder.path() / "w.h5";
    std::filesystem::remove(weights);
    models::import_weights(fuzz::single_rank(), path, weights);
    if (!std::filesystem::exists(weights)) __builtin_trap();
  });
}

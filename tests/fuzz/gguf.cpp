// SPDX-License-Identifier: Apache-2.0
//
// A GGUF file: its header, the numbers of all of its tensors, and then the model and the weights file that import-weights makes of it.

#include "fuzz/fuzz_target.hpp"
#include "models/lm/files/hf_weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  static fuzz::ScratchFolder const folder;
  auto const path = folder.write("m.gguf", fuzz::text_of(data, size));
  return fuzz::accept_or_refuse([&] {
    models::GgufFile const file(path);
    for (auto const& tensor : file.tensors()) {
      auto num_elements = std::int64_t{1};
      for (auto const extent : tensor.shape)
        num_elements *= extent;
      if (std::ssize(file.read(tensor, {0, num_elements})) != num_elements) __builtin_trap();
    }
    models::GgufModel const model(path);
    auto const weights = folder.path() / "w.h5";
    std::filesystem::remove(weights);
    models::import_gguf_weights(fuzz::single_rank(), path, model, weights, {{"model", "transformer"}});
    if (!std::filesystem::exists(weights)) __builtin_trap();
  });
}

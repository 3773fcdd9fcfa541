// SPDX-License-Identifier: Apache-2.0
//
// An .npz archive: its directory, then every member as an array, back to front, so that deflated ones start
// again.

#include "fuzz/fuzz_target.hpp"
#include "graph/arrays/npy.hpp"
#include "graph/arrays/zip_archive.hpp"

#include <algorithm>
#include <array>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  static fuzz::ScratchFolder const folder;
  auto const path = folder.write("data.npz", fuzz::text_of(data, size));
  return fuzz::accept_or_refuse([&] {
    for (auto const& member : graph::list_zip_members(path))
      fuzz::accept_or_refuse([&] {
        graph::NpyArray array(graph::open_zip_member(path, member));
        std::array<float, 1> element{};
        for (auto i = std::min<std::int64_t>(array.num_elements(), 100); i-- > 0;)
          array.read(i, std::span(element));
      });
  });
}

// SPDX-License-Identifier: Apache-2.0
//
// Tables of numbers out of text: features, classes, indicators, lists of vertices and single numbers. The
// first byte chooses the number of columns.

#include "fuzz/fuzz_target.hpp"
#include "graph/text/text_tables.hpp"

namespace {

template<class Batch, class Stream>
void drain(Stream const& stream) {
  Batch batch;
  while (stream->next(batch)) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  using fuzz::accept_or_refuse;
  if (size == 0) return 0;
  static fuzz::ScratchFolder const folder;
  auto const num_columns = std::int64_t{data[0]} % 4 + 1;
  auto const text = fuzz::text_of(data + 1, size - 1);
  auto const path = folder.write(text.starts_with("\x1f\x8b") ? "table.csv.gz" : "table.csv", text);
  constexpr std::int64_t num_rows = 3;
  constexpr std::int64_t batch_rows = 2;
  accept_or_refuse([&] { static_cast<void>(graph::count_text_columns(path)); });
  accept_or_refuse([&] {
    drain<graph::FeatureBatch>(graph::read_text_features(path, num_rows, num_columns, batch_rows));
  });
  accept_or_refuse(
      [&] { drain<graph::LabelBatch>(graph::read_text_classes(path, num_rows, 10, batch_rows)); });
  accept_or_refuse(
      [&] { drain<graph::LabelBatch>(graph::read_text_indicator(path, num_rows, num_columns, batch_rows)); });
  accept_or_refuse([&] {
    for (auto const vertex : graph::read_text_vertices(path, 100))
      if (vertex < 0 || vertex >= 100) __builtin_trap();
  });
  accept_or_refuse([&] {
    if (graph::read_text_count(path) < 0) __builtin_trap();
  });
  return 0;
}

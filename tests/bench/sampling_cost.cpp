// SPDX-License-Identifier: Apache-2.0
//
// What a batch costs on one rank: drawing its vertices, finding them in a range of rows and one of columns,
// and cutting out a block with its transpose. The cost should follow the batch and the non-zeros of its rows,
// not the graph.
//
//   sampling_cost [vertices nonzeros parts batch]
//
// `vertices`: of the graph. The rank holds rows and columns of one part in `parts`, and `nonzeros` entries at
// random places. Without arguments: graphs of 2 and of 20 million vertices with the same non-zeros on the
// rank, first all of each, then rows and columns of a sixteenth. One line of JSON each: seconds a batch (min,
// median, max over batches) and by part.
#include "runtime/numbers/random.hpp"
#include "sampling/block_sampler.hpp"
#include "sampling/vertex_sampler.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using namespace orthant;

constexpr int num_warm_up = 3;
constexpr int num_batches = 30;

/// Part 0 of an order of all vertices: keys are original ids at random places.
sampling::LocalVertices local_vertices(std::int64_t num_vertices, std::int64_t num_local,
                                       std::uint64_t order) {
  auto const key = runtime::RandomStream(1, runtime::Purpose::test, order).key();
  runtime::KeyedBijection const permute(static_cast<std::uint64_t>(num_vertices), key);
  sampling::PackedIds ids(num_vertices, num_local);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids.set(i, static_cast<std::int64_t>(permute(i)));
  sampling::LocalVertices vertices(ids);
  vertices.set_other_positions(std::move(ids));
  return vertices;
}

/// Rows of equal length, columns uniform: the worst case for caches.
sampling::LocalBlock<float> local_block(std::int64_t size, std::int64_t num_nonzeros) {
  sampling::LocalBlock<float> block;
  block.num_rows = block.num_columns = size;
  auto const random = runtime::RandomStream(2, runtime::Purpose::test);
  block.row_offsets.push_back(0);
  for (std::int64_t row = 0; row < size; ++row) {
    auto const num_entries = runtime::balanced_range(num_nonzeros, size, row).size();
    auto const begin = static_cast<std::ptrdiff_t>(block.columns.size());
    for (std::int64_t i = 0; i < num_entries; ++i)
      block.columns.push_back(static_cast<std::int32_t>(random.integer(
          static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i))));
    std::sort(block.columns.begin() + begin, block.columns.end());
    block.row_offsets.push_back(static_cast<std::int64_t>(block.columns.size()));
  }
  auto const num_local = static_cast<std::size_t>(size);
  block.row_scale.assign(num_local, 0.5F);
  block.column_scale.assign(num_local, 0.5F);
  block.self_columns.assign(num_local, -1);
  block.self_scale.assign(num_local, 0.0F);
  return block;
}

struct Timings {
  std::vector<double> seconds;
  void add(double value) { seconds.push_back(value); }
  [[nodiscard]] double at(double quantile) {
    std::sort(seconds.begin(), seconds.end());
    return seconds[static_cast<std::size_t>(quantile * static_cast<double>(seconds.size() - 1))];
  }
};

void measure(std::int64_t num_vertices, std::int64_t num_nonzeros, std::int64_t num_parts,
             std::int64_t batch_size) {
  auto const num_local = num_vertices / num_parts;
  sampling::VertexSampler const sampler({3, batch_size, 1, 1, {}}, num_vertices, num_vertices);
  auto rows = local_vertices(num_vertices, num_local, 1);
  auto columns = local_vertices(num_vertices, num_local, 2);
  sampling::BlockSampler<float> block(local_block(num_local, num_nonzeros));
  sampling::ColumnFilter filter(num_local);
  sampling::BatchKeys keys;
  sampling::SampledVertices sampled_rows;
  sampling::SampledVertices sampled_columns;
  sampling::SampledPair<float> pair;

  Timings draw;
  Timings find;
  Timings cut;
  Timings all;
  std::int64_t num_gathered = 0;
  std::int64_t num_kept = 0;
  using Clock = std::chrono::steady_clock;
  auto const seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  for (int batch = -num_warm_up; batch < num_batches; ++batch) {
    auto const start = Clock::now();
    auto const drawn_batch = batch + num_warm_up;
    sampler.draw(drawn_batch / sampler.num_batches(), drawn_batch % sampler.num_batches(), keys);
    auto const drawn = Clock::now();
    rows.find(keys, sampled_rows);
    columns.find(keys, sampled_columns);
    filter.set(sampled_columns.positions);
    auto const found = Clock::now();
    block.sample(sampled_rows, sampled_columns, filter, keys, pair);
    auto const end = Clock::now();
    if (batch < 0) continue;
    draw.add(seconds(drawn - start));
    find.add(seconds(found - drawn));
    cut.add(seconds(end - found));
    all.add(seconds(end - start));
    auto const& offsets = block.block().row_offsets;
    for (auto const row : sampled_rows.positions)
      num_gathered += offsets[static_cast<std::size_t>(row) + 1] - offsets[static_cast<std::size_t>(row)];
    num_kept += pair.block.num_nonzeros();
  }
  std::printf(
      "{\"vertices\":%lld,\"local_rows\":%lld,\"local_nonzeros\":%lld,\"batch\":%lld,"
      "\"gathered_nonzeros\":%lld,\"kept_nonzeros\":%lld,\"seconds\":%.3e,\"seconds_min\":%.3e,"
      "\"seconds_max\":%.3e,\"draw\":%.3e,\"find\":%.3e,\"block\":%.3e,\"warm_up\":%d,\"batches\":%d}\n",
      static_cast<long long>(num_vertices), static_cast<long long>(num_local),
      static_cast<long long>(num_nonzeros), static_cast<long long>(batch_size),
      static_cast<long long>(num_gathered / num_batches), static_cast<long long>(num_kept / num_batches),
      all.at(0.5), all.at(0), all.at(1), draw.at(0.5), find.at(0.5), cut.at(0.5), num_warm_up, num_batches);
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  if (argc == 5) {
    measure(std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
    return 0;
  }
  constexpr std::int64_t num_nonzeros = 20'000'000;
  for (std::int64_t const num_parts : {1, 16})
    for (std::int64_t const num_vertices : {2'000'000, 20'000'000})
      measure(num_vertices, num_nonzeros, num_parts, 4096);
  return 0;
}

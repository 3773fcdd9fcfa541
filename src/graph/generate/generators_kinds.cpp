// SPDX-License-Identifier: Apache-2.0
//
// R-MAT and the stochastic block model (edge i is a function of seed and i), ring, grid, and the karate club.
#include "graph/generate/computed_streams.hpp"
#include "graph/generate/generators.hpp"
#include "graph/graph_source.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

namespace orthant::graph::detail {

using runtime::KeyedBijection;
using runtime::Purpose;
using runtime::RandomStream;

namespace {

std::uint64_t to_unsigned(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

/// Draws an edge of the recursive matrix: at each of `num_levels` levels, 16 random bits choose a quadrant.
class RecursiveMatrix {
 public:
  RecursiveMatrix(GeneratorOptions const& options)
      : num_vertices_(options.num_vertices),
        num_levels_(static_cast<int>(std::bit_width(to_unsigned(options.num_vertices - 1)))),
        all_levels_((std::uint64_t{1} << num_levels_) - 1),
        stream_(options.seed, Purpose::generator_edges) {
    auto const threshold = [](double probability) {
      return static_cast<std::uint32_t>(probability * 65536 + 0.5);
    };
    auto const& [a, b, c] = options.corners;
    below_b_ = threshold(a);
    below_c_ = threshold(a + b);
    below_d_ = threshold(a + b + c);
  }

  [[nodiscard]] Edge draw(std::int64_t index) const {
    // The edge may be outside the matrix if its size is not a power of two: then draw again.
    for (std::uint64_t block = 0;;) {
      std::uint64_t row = 0;
      std::uint64_t column = 0;
      for (int level = 0; level < num_levels_; level += 8) {
        auto const [row_bits, column_bits] = choose(stream_.block(to_unsigned(index), block++));
        row |= row_bits << level;
        column |= column_bits << level;
      }
      row &= all_levels_; // drops the levels beyond the last one
      column &= all_levels_;
      Edge const edge{static_cast<std::int64_t>(row), static_cast<std::int64_t>(column)};
      if (edge.source < num_vertices_ && edge.target < num_vertices_) return edge;
    }
  }

 private:
  struct Bits {
    std::uint64_t row;
    std::uint64_t column;
  };
  /// Eight levels with one bit each, without branches, so that the compiler vectorizes them.
  [[nodiscard]] Bits choose(runtime::Words4x32 const& words) const {
    std::uint32_t row = 0;
    std::uint32_t column = 0;
    for (unsigned i = 0; i < 8; ++i) {
      auto const draw = (words.word[i / 2] >> (16 * (i & 1))) & 0xffffu;
      std::uint32_t const is_lower = draw >= below_c_;
      std::uint32_t const is_right = (draw >= below_b_) ^ is_lower ^ (draw >= below_d_);
      row |= is_lower << i;
      column |= is_right << i;
    }
    return {row, column};
  }

  std::int64_t num_vertices_;
  int num_levels_;
  std::uint64_t all_levels_;
  RandomStream stream_;
  std::uint32_t below_b_;
  std::uint32_t below_c_;
  std::uint32_t below_d_;
};

/// Shuffled ids. Each edge needs two look-ups, so that a share with many edges on few vertices creates a table when it is first used.
class ShuffledIds {
 public:
  ShuffledIds(std::int64_t num_vertices, std::uint64_t key, std::int64_t num_lookups)
      : shuffle_(to_unsigned(num_vertices), key) {
    constexpr std::int64_t largest_table = std::int64_t{1} << 24; // 64 MiB per rank
    if (num_vertices <= largest_table && num_lookups > 2 * num_vertices)
      table_ = std::make_shared<std::vector<std::uint32_t>>();
  }
  void prepare() const {
    if (!table_ || !table_->empty()) return;
    table_->resize(shuffle_.size());
    for (std::uint64_t i = 0; i < shuffle_.size(); ++i)
      (*table_)[i] = static_cast<std::uint32_t>(shuffle_(i));
  }
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const {
    return static_cast<std::int64_t>(table_ ? (*table_)[to_unsigned(i)] : shuffle_(to_unsigned(i)));
  }

 private:
  KeyedBijection shuffle_;
  std::shared_ptr<std::vector<std::uint32_t>> table_; // null if not used
};

} // namespace

EdgePart rmat_edges(GeneratorOptions const& options, Share share) {
  RecursiveMatrix const matrix(options);
  auto const indices = runtime::balanced_range(options.num_edges, share.count, share.index);
  ShuffledIds const id(options.num_vertices, RandomStream(options.seed, Purpose::generator_blocks).key(),
                       2 * indices.size());
  auto part = computed_edges(indices, 1, [=](Range range, std::vector<Edge>& edges) {
    id.prepare();
    for (auto index = range.begin; index < range.end; ++index)
      edges.push_back(matrix.draw(index));
    for (auto& edge : edges) // a separate loop, so that many look-ups are in progress at once
      edge = {id(edge.source), id(edge.target)};
  });
  part.num_local_edges = indices.size();
  return part;
}

Blocks::Blocks(std::int64_t num_vertices, std::int64_t num_blocks, std::uint64_t seed)
    : num_vertices_(num_vertices),
      num_blocks_(num_blocks),
      shuffle_(to_unsigned(num_vertices), RandomStream(seed, Purpose::generator_blocks).key()) {}

// Shuffled ids are distributed over the blocks in turn.
std::int64_t Blocks::block_of(std::int64_t vertex) const {
  return static_cast<std::int64_t>(shuffle_(to_unsigned(vertex))) % num_blocks_;
}
std::int64_t Blocks::size_of(std::int64_t block) const {
  return (num_vertices_ - block + num_blocks_ - 1) / num_blocks_;
}
std::int64_t Blocks::member(std::int64_t block, std::int64_t index) const {
  return static_cast<std::int64_t>(shuffle_.inverse(to_unsigned(block + index * num_blocks_)));
}

EdgePart sbm_edges(GeneratorOptions const& options, Blocks const& blocks, Share share) {
  auto const num_vertices = to_unsigned(options.num_vertices);
  RandomStream const stream(options.seed, Purpose::generator_edges);
  RandomStream const coin(options.seed, Purpose::generator_edges, 1);
  auto const draw = [=, homophily = options.homophily](std::int64_t index) {
    auto const i = to_unsigned(index);
    for (std::uint64_t attempt = 0;; ++attempt) {
      auto const source = static_cast<std::int64_t>(stream.integer(num_vertices, i, 2 * attempt));
      auto target = std::int64_t{};
      if (coin.bernoulli(homophily, i, attempt)) {
        auto const block = blocks.block_of(source);
        auto const size = to_unsigned(blocks.size_of(block));
        target = blocks.member(block, static_cast<std::int64_t>(stream.integer(size, i, 2 * attempt + 1)));
      } else {
        target = static_cast<std::int64_t>(stream.integer(num_vertices, i, 2 * attempt + 1));
      }
      // In a block of one vertex, only the vertex itself can be drawn; after `enough` attempts, any other vertex is accepted.
      constexpr std::uint64_t enough = 64;
      if (attempt >= enough && source == target)
        target = (source + 1) % static_cast<std::int64_t>(num_vertices);
      if (source != target) return Edge{source, target};
    }
  };
  auto const indices = runtime::balanced_range(options.num_edges, share.count, share.index);
  auto part = computed_edges(indices, 1, [=](Range range, std::vector<Edge>& edges) {
    for (auto index = range.begin; index < range.end; ++index)
      edges.push_back(draw(index));
  });
  part.num_local_edges = indices.size();
  return part;
}

// Ring and 2D grid.

namespace {

/// Row-major points with `width` per row; the last row may be shorter.
struct Grid {
  std::int64_t num_vertices;
  std::int64_t width;
  std::int64_t num_rows;

  explicit Grid(std::int64_t n) : num_vertices(n) {
    width = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    num_rows = (n + width - 1) / width;
  }
  [[nodiscard]] bool has_right(std::int64_t vertex) const {
    return vertex % width + 1 < width && vertex + 1 < num_vertices;
  }
  [[nodiscard]] bool has_below(std::int64_t vertex) const { return vertex + width < num_vertices; }
  [[nodiscard]] std::int64_t num_edges() const { return 2 * num_vertices - width - num_rows; }
};

} // namespace

std::int64_t count_grid2d_edges(std::int64_t num_vertices) {
  return Grid(num_vertices).num_edges();
}

EdgePart grid2d_edges(GeneratorOptions const& options, Share share) {
  Grid const grid(options.num_vertices);
  // Columns and the first row span the grid with n - 1 edges. Of the other horizontal edges, numbered row by row, the first ones in a
  // random order are kept.
  auto const num_spanning = grid.num_vertices - 1;
  auto const num_candidates = grid.num_edges() - num_spanning;
  auto const num_kept = options.num_edges - num_spanning;
  runtime::KeyedBijection const order(
      static_cast<std::uint64_t>(std::max<std::int64_t>(num_candidates, 1)),
      runtime::RandomStream(options.seed, runtime::Purpose::generator_edges).key());
  auto const keeps_right = [=](std::int64_t vertex) {
    if (vertex < grid.width || num_kept == num_candidates) return true;
    auto const candidate = (vertex / grid.width - 1) * (grid.width - 1) + vertex % grid.width;
    return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(candidate))) < num_kept;
  };
  auto const vertices = runtime::balanced_range(options.num_vertices, share.count, share.index);
  return computed_edges(vertices, 2, [=](Range range, std::vector<Edge>& edges) {
    for (auto vertex = range.begin; vertex < range.end; ++vertex) {
      if (grid.has_right(vertex) && keeps_right(vertex)) edges.push_back({vertex, vertex + 1});
      if (grid.has_below(vertex)) edges.push_back({vertex, vertex + grid.width});
    }
  });
}

EdgePart ring_edges(GeneratorOptions const& options, Share share) {
  auto const n = options.num_vertices;
  auto const indices = runtime::balanced_range(options.num_edges, share.count, share.index);
  auto part = computed_edges(indices, 1, [n](Range range, std::vector<Edge>& edges) {
    for (auto index = range.begin; index < range.end; ++index)
      edges.push_back({index % n, (index % n + 1 + index / n) % n});
  });
  part.num_local_edges = indices.size();
  return part;
}

} // namespace orthant::graph::detail

namespace orthant::graph {

namespace {

constexpr std::int64_t num_members = 34;

constexpr std::array<Edge, 78> ties{
    {{0, 1},   {0, 2},   {0, 3},   {0, 4},   {0, 5},   {0, 6},   {0, 7},   {0, 8},   {0, 10},  {0, 11},
     {0, 12},  {0, 13},  {0, 17},  {0, 19},  {0, 21},  {0, 31},  {1, 2},   {1, 3},   {1, 7},   {1, 13},
     {1, 17},  {1, 19},  {1, 21},  {1, 30},  {2, 3},   {2, 7},   {2, 8},   {2, 9},   {2, 13},  {2, 27},
     {2, 28},  {2, 32},  {3, 7},   {3, 12},  {3, 13},  {4, 6},   {4, 10},  {5, 6},   {5, 10},  {5, 16},
     {6, 16},  {8, 30},  {8, 32},  {8, 33},  {9, 33},  {13, 33}, {14, 32}, {14, 33}, {15, 32}, {15, 33},
     {18, 32}, {18, 33}, {19, 33}, {20, 32}, {20, 33}, {22, 32}, {22, 33}, {23, 25}, {23, 27}, {23, 29},
     {23, 32}, {23, 33}, {24, 25}, {24, 27}, {24, 31}, {25, 31}, {26, 29}, {26, 33}, {27, 33}, {28, 31},
     {28, 33}, {29, 32}, {29, 33}, {30, 32}, {30, 33}, {31, 32}, {31, 33}, {32, 33}}};

// 0: stayed with the instructor, 1: left with the president.
constexpr std::array<std::int64_t, num_members> clubs{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0,
                                                      0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
constexpr std::array<std::int64_t, num_members> communities{
    1, 1, 1, 1, 3, 3, 3, 1, 0, 1, 3, 1, 1, 1, 0, 0, 3, 1, 0, 1, 0, 1, 0, 0, 2, 2, 0, 0, 2, 0, 0, 2, 0, 0};

} // namespace

std::unique_ptr<GraphSource> karate_club(runtime::Communicator const& comm, std::int64_t num_classes) {
  if (num_classes != 2 && num_classes != 4)
    runtime::throw_user("the karate club has 2 or 4 classes, not {}", num_classes);
  auto const rows = runtime::balanced_range(num_members, comm.size(), comm.rank());
  auto const& classes = num_classes == 2 ? clubs : communities;

  SourceParts parts;
  parts.name = parts.format = "karate";
  parts.num_vertices = num_members;
  auto const local_ties = runtime::balanced_range(ties.size(), comm.size(), comm.rank());
  parts.edges.num_edges = ties.size();
  parts.edges.num_local_edges = local_ties.size();
  parts.edges.promised_by = "its definition";
  parts.edges.open = [=](std::int64_t batch_size) {
    return std::make_unique<ComputedEdges>(local_ties, batch_size, [](Range range, std::vector<Edge>& edges) {
      edges.assign(ties.begin() + range.begin, ties.begin() + range.end);
    });
  };
  parts.features = {
      FeatureKind::dense, num_members, [=](std::int64_t batch_rows) {
        return std::make_unique<ComputedRows<FeatureBatch>>(rows, batch_rows, [](FeatureBatch& batch) {
          batch.dense.assign(static_cast<std::size_t>(batch.rows.size() * num_members), 0.0f);
          for (auto row = batch.rows.begin; row < batch.rows.end; ++row)
            batch.dense[static_cast<std::size_t>((row - batch.rows.begin) * num_members + row)] = 1.0f;
        });
      }};
  parts.labels = {
      LabelKind::single, num_classes, [=](std::int64_t batch_rows) {
        return std::make_unique<ComputedRows<LabelBatch>>(rows, batch_rows, [=](LabelBatch& batch) {
          batch.classes.assign(classes.begin() + batch.rows.begin, classes.begin() + batch.rows.end);
        });
      }};
  auto const seeds =
      num_classes == 2 ? std::vector<std::int64_t>{0, 33} : std::vector<std::int64_t>{0, 4, 8, 24};
  parts.split = {"karate", [=](std::int64_t) {
                   SplitShare split;
                   for (auto vertex = rows.begin; vertex < rows.end; ++vertex) {
                     bool const is_seed = std::ranges::find(seeds, vertex) != seeds.end();
                     auto& list = is_seed ? split.train : vertex % 2 == 0 ? split.valid : split.test;
                     list.push_back(vertex);
                   }
                   return split;
                 }};
  return assemble_source(std::move(parts));
}

} // namespace orthant::graph

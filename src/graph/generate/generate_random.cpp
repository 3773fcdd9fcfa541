// SPDX-License-Identifier: Apache-2.0
//
// R-MAT and the stochastic block model: edge i is drawn by (seed, i).
#include "graph/generate/generators.hpp"
#include "runtime/numbers/bijection.hpp"
#include "runtime/numbers/random.hpp"

#include <bit>
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

/// Where an edge falls in the recursive matrix: at each of `num_levels` levels 16 random bits choose a
/// quadrant.
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
    // Outside the matrix, where its size is no power of two: draw again.
    for (std::uint64_t block = 0;;) {
      std::uint64_t row = 0;
      std::uint64_t column = 0;
      for (int level = 0; level < num_levels_; level += 8) {
        auto const [row_bits, column_bits] = choose(stream_.block(to_unsigned(index), block++));
        row |= row_bits << level;
        column |= column_bits << level;
      }
      row &= all_levels_; // the levels beyond the last one
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
  /// Eight levels, a bit each; no branches, so that the compiler does all at once.
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

} // namespace

namespace {

/// Shuffled ids. Two of them are looked up an edge, so a share of many edges on few vertices keeps a table,
/// made at its first use.
class ShuffledIds {
 public:
  ShuffledIds(std::int64_t num_vertices, std::uint64_t key, std::int64_t num_lookups)
      : shuffle_(to_unsigned(num_vertices), key) {
    constexpr std::int64_t largest_table = std::int64_t{1} << 24; // 64 MiB a rank
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
  std::shared_ptr<std::vector<std::uint32_t>> table_; // null: none
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
    for (auto& edge : edges) // a loop of its own, so that many look-ups are under way at once
      edge = {id(edge.source), id(edge.target)};
  });
  part.num_local_edges = indices.size();
  return part;
}

Blocks::Blocks(std::int64_t num_vertices, std::int64_t num_blocks, std::uint64_t seed)
    : num_vertices_(num_vertices),
      num_blocks_(num_blocks),
      shuffle_(to_unsigned(num_vertices), RandomStream(seed, Purpose::generator_blocks).key()) {}

// Shuffled ids are dealt to the blocks in turn.
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
      // A block of one vertex offers itself only; after so many attempts any other vertex will do.
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

} // namespace orthant::graph::detail

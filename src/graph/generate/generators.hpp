#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Data sets by a word instead of a file: "karate", "sbm:vertices=5000,features=64", "rmat:edges=1e6",
// "grid2d", "ring:vertices=100". Keys are GeneratorOptions' members:
//   vertices edges features classes seed train valid test       all but karate (karate: classes)
//   homophily separation (sbm, and separation elsewhere)  a b c (rmat)  directed=0|1 (rmat, sbm)

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/numbers/random.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace orthant::graph {

// Random graphs. Edge number i, the label and the features of vertex v are functions of the seed and of i or
// v alone, so every number of ranks makes the same graph, each its own part of it.
//
//   rmat    recursive matrix (Chakrabarti, Zhan, Faloutsos, SDM 2004): power law; ids shuffled; repeats and
//           self loops are listed as they fall
//   sbm     stochastic blocks: both ends of an edge in one block with probability `homophily` (or by chance),
//           class = block; no self loops
//   grid2d  points of a near-square grid in row-major order, neighbours joined; with fewer edges than that,
//           all columns, the first row and a random choice of the other horizontal edges: connected, and with
//           1.05 to 1.1 edges a vertex like a road network
//   ring    vertex v joined to v + 1, with more edges to v + 2 and so on
//
// Features: x_v = m_{class(v)} + n_v with normal noise n, and normal class means m whose expected distance is
// `separation` standard deviations of the noise. Classes: the block (sbm), stripes of consecutive ids
// (grid2d, ring), at random (rmat).

/// Collective over `comm`. What the word leaves open: 2,000 vertices, 32 features, 8 classes, split 0.6, 0.2,
/// 0.2, `seed` of the call. Throws UserError, the same on all ranks, where a word or a value is not known.
[[nodiscard]] std::unique_ptr<GraphSource> open_dataset(runtime::Communicator const& comm,
                                                        std::string_view description, std::uint64_t seed = 0);

enum class GeneratorKind : std::uint8_t { rmat, sbm, grid2d, ring };

/// "rmat", "sbm", "grid2d", "ring". Throws UserError on another word.
[[nodiscard]] GeneratorKind parse_generator_kind(std::string_view word);

struct GeneratorOptions {
  GeneratorKind kind = GeneratorKind::rmat;
  std::int64_t num_vertices = 1000;
  std::int64_t num_edges = 0;    // 0: 8 a vertex (rmat, sbm), all (grid2d), one a vertex (ring)
  std::int64_t num_features = 0; // 0: none
  std::int64_t num_classes = 0;  // 0: no labels and no split; sbm then has 8 blocks
  std::uint64_t seed = 0;
  bool is_directed = false;                             // rmat and sbm: the reverse of an edge is not meant
  std::array<double, 3> corners{0.57, 0.19, 0.19};      // rmat: a, b, c; probabilities kept to 16 bits
  double homophily = 0.8;                               // sbm
  double separation = 2.0;                              // of class means
  std::array<double, 3> split_fractions{0.6, 0.2, 0.2}; // train, valid, test
};

/// Collective over `comm`. Throws UserError, the same on all ranks, where no such graph exists.
[[nodiscard]] std::unique_ptr<GraphSource> generate_graph(runtime::Communicator const& comm,
                                                          GeneratorOptions const& options);

namespace detail {

/// This share's edges of each kind. `num_edges` is set in `options`.
[[nodiscard]] EdgePart rmat_edges(GeneratorOptions const& options, Share share);
[[nodiscard]] EdgePart grid2d_edges(GeneratorOptions const& options, Share share);
[[nodiscard]] EdgePart ring_edges(GeneratorOptions const& options, Share share);
/// Most edges that the kind can have; also the default of grid2d.
[[nodiscard]] std::int64_t count_grid2d_edges(std::int64_t num_vertices);

/// The blocks of the stochastic block model: O(1) either way, no table.
class Blocks {
 public:
  Blocks(std::int64_t num_vertices, std::int64_t num_blocks, std::uint64_t seed);
  [[nodiscard]] std::int64_t block_of(std::int64_t vertex) const;
  [[nodiscard]] std::int64_t size_of(std::int64_t block) const;
  [[nodiscard]] std::int64_t member(std::int64_t block, std::int64_t index) const;

 private:
  std::int64_t num_vertices_;
  std::int64_t num_blocks_;
  runtime::KeyedBijection shuffle_;
};
[[nodiscard]] EdgePart sbm_edges(GeneratorOptions const& options, Blocks const& blocks, Share share);

/// Edges that are computed: `append(range, edges)` appends those with indices in `range` (grid2d: of vertices
/// in it), at most `most_per_index` each.
[[nodiscard]] EdgePart computed_edges(Range indices, std::int64_t most_per_index,
                                      std::function<void(Range, std::vector<Edge>&)> append);

} // namespace detail

// Zachary's karate club ("An information flow model for conflict and fission in small groups", 1977), built
// in: 34 members, 78 ties, no two files needed for a first run.

/// Features are the identity, one column a member. num_classes 2: the two clubs after the split, trained on
/// the instructor and the president (vertices 0 and 33), as Kipf and Welling (ICLR 2017) do with one vertex a
/// class; 4: the communities of their appendix, trained on one vertex of each. The other vertices validate
/// and test in turn.
[[nodiscard]] std::unique_ptr<GraphSource> karate_club(runtime::Communicator const& comm,
                                                       std::int64_t num_classes = 2);

} // namespace orthant::graph

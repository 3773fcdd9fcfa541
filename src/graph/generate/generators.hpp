#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Data sets that a description names in place of a file: "karate", "sbm:vertices=5000,features=64", "rmat:edges=1e6", "grid2d",
// "ring:vertices=100". The keys are the members of GeneratorOptions:
//   vertices edges features classes seed train valid test       all but karate (karate: classes)
//   homophily (sbm)   separation (all)   a b c (rmat)   directed=0|1 (rmat, sbm)

#include "graph/graph_source.hpp"
#include "graph/text/text_blocks.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/numbers/random.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace orthant::graph {

// Random graphs. Edge number i is a function of the seed and i, and the label and features of vertex v are functions of the seed and v.
// Therefore any number of ranks generates the same graph, each rank its own part.
//
//   rmat    recursive matrix (Chakrabarti, Zhan, Faloutsos, SDM 2004): power law; ids are shuffled; repeats and
//           self loops are kept as drawn
//   sbm     stochastic block model: both ends of an edge are in one block with probability `homophily` (or by chance),
//           class = block; no self loops
//   grid2d  points of a near-square grid in row-major order, with edges between neighbors; with fewer edges than that,
//           all columns, the first row and a random choice of the other horizontal edges: connected, and with
//           1.05 to 1.1 edges per vertex like a road network
//   ring    edges from vertex v to v + 1; with more edges also to v + 2 and so on
//
// Features: x_v = m_{class(v)} + n_v with normal noise n, and normal class means m whose expected distance is `separation` standard
// deviations of the noise.
// Classes: the block (sbm), stripes of consecutive ids (grid2d, ring), random (rmat).

/// Opens a data set by its description. Defaults: 2,000 vertices, 32 features, 8 classes, split 0.6, 0.2, 0.2, and the `seed` argument.
/// Throws UserError on all ranks if a word, key or value is unknown. Collective over `comm`.
[[nodiscard]] std::unique_ptr<GraphSource> open_dataset(runtime::Communicator const& comm,
                                                        std::string_view description, std::uint64_t seed = 0);

enum class GeneratorKind : std::uint8_t { rmat, sbm, grid2d, ring };

/// Accepts "rmat", "sbm", "grid2d", "ring". Throws UserError on another word.
[[nodiscard]] GeneratorKind parse_generator_kind(std::string_view word);

struct GeneratorOptions {
  GeneratorKind kind = GeneratorKind::rmat;
  std::int64_t num_vertices = 1000;
  std::int64_t num_edges = 0;    // 0: 8 per vertex (rmat, sbm), all (grid2d), one per vertex (ring)
  std::int64_t num_features = 0; // 0: none
  std::int64_t num_classes = 0;  // 0: no labels and no split; sbm then has 8 blocks
  std::uint64_t seed = 0;
  bool is_directed = false;                             // rmat and sbm: reverse edges are not implied
  std::array<double, 3> corners{0.57, 0.19, 0.19};      // rmat: a, b, c; probabilities, rounded to 16 bits
  double homophily = 0.8;                               // sbm
  double separation = 2.0;                              // distance of class means
  std::array<double, 3> split_fractions{0.6, 0.2, 0.2}; // train, valid, test
};

/// Creates a random graph. Throws UserError on all ranks if no such graph exists. Collective over `comm`.
[[nodiscard]] std::unique_ptr<GraphSource> generate_graph(runtime::Communicator const& comm,
                                                          GeneratorOptions const& options);

namespace detail {

/// The edges of this share for each kind. `num_edges` must be set in `options`.
[[nodiscard]] EdgePart rmat_edges(GeneratorOptions const& options, Share share);
[[nodiscard]] EdgePart grid2d_edges(GeneratorOptions const& options, Share share);
[[nodiscard]] EdgePart ring_edges(GeneratorOptions const& options, Share share);
/// Largest number of edges of a grid2d graph; also its default.
[[nodiscard]] std::int64_t count_grid2d_edges(std::int64_t num_vertices);

/// The blocks of the stochastic block model. Both directions cost O(1) and need no table.
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

/// Computed edges. `append(range, edges)` appends the edges with indices in `range` (grid2d: vertices in `range`), at most `most_per_index`
/// each.
[[nodiscard]] EdgePart computed_edges(Range indices, std::int64_t most_per_index,
                                      std::function<void(Range, std::vector<Edge>&)> append);

} // namespace detail

// Zachary's karate club ("An information flow model for conflict and fission in small groups", 1977), built in for a first run without
// files: 34 members, 78 ties.

/// Features are the identity matrix. With num_classes 2, the classes are the two clubs after the split, and the training vertices are the
/// instructor and the president (vertices 0 and 33), as in Kipf and Welling (ICLR 2017), who use one vertex per class. With num_classes 4,
/// they are the communities of their appendix, with one training vertex each. The other vertices alternate between validation and test.
[[nodiscard]] std::unique_ptr<GraphSource> karate_club(runtime::Communicator const& comm,
                                                       std::int64_t num_classes = 2);

} // namespace orthant::graph

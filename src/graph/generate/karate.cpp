// SPDX-License-Identifier: Apache-2.0
#include "graph/generate/karate.hpp"

#include "graph/graph_source.hpp"
#include "graph/generate/computed_streams.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>

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
  parts.split = {"karate", [=] {
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

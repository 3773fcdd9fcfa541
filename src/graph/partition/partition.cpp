// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/partition.hpp"

#include "graph/partition/attributes.hpp"
#include "graph/partition/edge_feature_rows.hpp"
#include "graph/partition/edge_store.hpp"
#include "graph/partition/metis.hpp"
#include "graph/partition/placement.hpp"
#include "graph/partition/steps.hpp"
#include "graph/partition/tile_builder.hpp"
#include "graph/store/store_arrays.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>
#include <map>
#include <mpi.h>
#include <utility>

namespace orthant::graph {

namespace {

using runtime::all_reduced;
using runtime::Communicator;
using runtime::Reduction;
using runtime::throw_user;
using runtime::together;

template<class Id, bool has_values>
class Partitioner {
 public:
  /// `split` is the source if it holds out edges, otherwise null.
  Partitioner(StoreWriter& writer, GraphSource const& source, SourceWithoutHeldOut const* split,
              PartitionOptions const& options)
      : writer_(writer),
        comm_(writer.comm()),
        source_(source),
        split_(split),
        options_(options),
        steps_(comm_, options),
        pool_(chunk_bytes_of(source.facts())),
        edges_(comm_, source.facts().num_vertices, source.facts().is_directed, pool_) {
    auto const& given = source.facts();
    auto& facts = report_.facts;
    facts.name = given.name;
    facts.format = given.format;
    facts.num_vertices = given.num_vertices;
    facts.is_symmetric = !given.is_directed;
    facts.is_weighted = given.is_weighted;
    facts.num_edge_features = given.num_edge_features;
    facts.relations = given.relations;
    facts.vertex_types = given.vertex_types;
    facts.relation_ends = given.relation_ends;
    facts.permutation = options.permutation;
    facts.normalization = options.normalization;
    facts.seed = options.seed;
  }

  PartitionReport run(std::filesystem::path const& output) {
    auto& facts = report_.facts;
    steps_.begin("reading edges");
    auto& input = report_.input;
    if (facts.num_edge_features > 0)
      features_ =
          std::make_unique<EdgeFeatureRows>(comm_, source_.num_local_edges(), facts.num_edge_features);
    input.num_edges_read = edges_.collect(source_, options_.rules, steps_.reporter(), features_.get());
    input.num_dropped_loops = edges_.num_dropped_loops();
    input.num_merged = input.num_edges_read - input.num_dropped_loops - edges_.num_edges();
    facts.num_entries = edges_.num_entries();
    facts.num_self_loops = edges_.num_self_loops();
    auto const degrees = edges_.block_degrees();
    summarize_degrees(comm_, degrees, input);
    if (source_.facts().has_names) input.seems_to_begin_at_1 = false;
    auto const links = find_links();
    report_.read_seconds = steps_.lap();

    if (options_.metis_parts > 0) write_metis(output);
    auto const clusters = find_clusters(); // needs the edges, so before they are drained
    if (options_.measures_statistics || options_.chooses_permutation) report_.statistics = measure(degrees);
    if (options_.chooses_permutation)
      facts.permutation = choose_order(report_.statistics->permutations, facts.num_vertices);
    auto const placement = place(facts.permutation, degrees);
    report_.has_pieces_by_id = facts.permutation == PermutationKind::pieces && !fits_metis();
    clusters_of_order_.clear();
    edges_.set_placement(placement);
    report_.order_seconds = steps_.lap();
    write_topology(placement);
    write_names(writer_, source_, facts);
    write_vertices(writer_, placement, degrees, facts);
    if (options_.num_clusters > 0) write_clusters(writer_, placement, clusters, options_.num_clusters, facts);
    if (split_ != nullptr)
      write_link_sets(writer_, links, facts.num_vertices, placement.of(Order::p1), facts);

    steps_.begin("placing features");
    write_features(writer_, source_, placement, facts, steps_.reporter());
    write_labels(writer_, source_, placement, facts);
    write_split(writer_, source_, placement, facts);
    summarize_labels(comm_, source_, report_.input);
    report_.attribute_seconds = steps_.lap();
    return std::move(report_);
  }

 private:
  using Edges = EdgeStore<Id, has_values>;
  using Placed = typename Edges::Placed;
  using Builder = TileBuilder<has_values>;

  /// Chunk size for the tiles of the matrix, which need more lists than the edges; a source may not know its number of edges yet.
  static std::size_t chunk_bytes_of(GraphFacts const& facts) {
    constexpr std::int64_t usual_degree = 16;
    auto const num_entries = facts.num_edges < 0 ? usual_degree * facts.num_vertices : 2 * facts.num_edges;
    auto const grid = tile_grid_of_topology(facts.num_vertices, num_entries);
    return chunk_bytes_for(grid.num_tiles(),
                           num_entries * static_cast<std::int64_t>(sizeof(typename Builder::Entry)));
  }

  Placement place(PermutationKind kind, std::span<std::int64_t const> degrees) {
    auto const has_clusters = kind == PermutationKind::cluster || kind == PermutationKind::pieces;
    auto const clusters = has_clusters ? clusters_for(kind) : std::span<std::int32_t const>();
    return place_vertices(comm_, report_.facts.num_vertices, kind, options_.seed, degrees, clusters);
  }

  /// Computed once per kind: the statistics and the final order may both need it.
  std::span<std::int32_t const> clusters_for(PermutationKind kind) {
    auto const [found, is_new] = clusters_of_order_.try_emplace(kind);
    if (!is_new) return found->second;
    steps_.begin("finding clusters");
    auto const n = report_.facts.num_vertices;
    auto const num_clusters = (n + vertices_per_cluster(n) - 1) / vertices_per_cluster(n);
    if (kind == PermutationKind::pieces && !fits_metis())
      return found->second = clusters_by_id(comm_, n, num_clusters);
    auto const method = kind == PermutationKind::cluster ? MetisMethod::kway : MetisMethod::bisections;
    auto const what = fmt::format("--permute {}", name_of(kind));
    return found->second = scatter_parts(comm_, n, run_metis(num_clusters, what, method).parts);
  }

  [[nodiscard]] bool fits_metis() const {
    auto const num_edges = edges_.num_edges() - edges_.num_self_loops();
    return num_edges <= options_.most_metis_edges && graph::fits_metis(num_edges, report_.facts.num_vertices);
  }

  [[nodiscard]] LinkSets find_links() const {
    if (split_ == nullptr) return {};
    return make_link_sets(comm_, report_.facts.num_vertices, split_->edge_split(), split_->held_out(),
                          [this](auto const& visit) { edges_.for_each_local_edge(visit); });
  }

  /// Calls emit(row, column, value) for the entries of an edge, with rows in order `rows`: A[target, source] and, if A is symmetric, its
  /// mirror image.
  template<class Emit>
  void for_each_entry(Placed const& edge, Order rows, Emit&& emit) const {
    auto const r = static_cast<std::size_t>(rows);
    auto const c = 1 - r;
    emit(static_cast<std::int64_t>(edge.local[r]), static_cast<std::int64_t>(edge.other[c]), edge.value);
    bool const is_loop = edge.local[0] == edge.other[0];
    if (report_.facts.is_symmetric && !is_loop)
      emit(static_cast<std::int64_t>(edge.other[r]), static_cast<std::int64_t>(edge.local[c]), edge.value);
  }

  void write_topology(Placement const& placement) {
    bool const has_odd = report_.facts.has_odd_topology();
    write_parity(placement, Parity::even, !has_odd);
    if (has_odd) write_parity(placement, Parity::odd, true);
  }

  void write_parity(Placement const& placement, Parity parity, bool is_last) {
    auto const grid = tile_grid_of_topology(report_.facts.num_vertices, report_.facts.num_entries);
    Builder builder(comm_, grid, pool_);
    steps_.begin(parity == Parity::even ? "relabelling" : "relabelling for odd layers");
    {
      using Sent = typename Builder::Sent;
      Outbox<Sent> outbox(comm_.size(), 2 * records_per_round(comm_));
      edges_.for_each_edge(
          is_last,
          [&](Placed const& edge) {
            for_each_entry(edge, row_order(parity), [&](std::int64_t row, std::int64_t column, float value) {
              builder.push(outbox, row, column, value);
            });
          },
          [&] {
            bool ignored = false;
            auto const arrived = outbox.deliver(comm_, ignored);
            features_ ? builder.add_numbered(arrived) : builder.add(arrived);
          },
          steps_.reporter());
    }
    if (features_) builder.set_features(features_->fetch(builder.numbers()), features_->num_columns());
    if (is_last) features_.reset();
    report_.relabel_seconds += steps_.lap();

    steps_.begin("writing the matrix");
    auto const group = parity == Parity::even ? "/topology/even" : "/topology/odd";
    if (report_.facts.is_weighted && parity == Parity::even) {
      write_with_weight_sums(builder, group, placement);
    } else if (report_.facts.num_edge_features > 0) {
      write_featured(builder, group, placement, parity);
    } else if (report_.facts.num_relations() > 0) {
      RelationCounts counts(report_.facts.num_relations());
      builder.write(
          writer_, group, Values::relations,
          [&](std::int64_t, std::int64_t, float relation) { counts.add(relation); }, steps_.reporter());
      if (parity == Parity::even) report_.facts.relation_entries = counts.total(comm_);
    } else {
      builder.write(writer_, group, Values::always, nullptr, steps_.reporter());
    }
    report_.write_seconds += steps_.lap();
  }

  void write_featured(Builder& builder, std::string const& group, Placement const& placement, Parity parity) {
    std::optional<EdgeFeatureMeans> means;
    if (parity == Parity::even)
      means.emplace(comm_, placement, builder.rows(), report_.facts.num_edge_features);
    builder.write(
        writer_, group, Values::features,
        [&](std::int64_t row, std::int64_t column, float value) {
          if (means) means->add(row, column, builder.features_of(value));
        },
        steps_.reporter());
    if (means) means->write(writer_);
  }

  void write_with_weight_sums(Builder& builder, std::string const& group, Placement const& placement) {
    WeightSums sums(comm_, placement, builder.rows());
    builder.write(
        writer_, group, Values::always,
        [&](std::int64_t row, std::int64_t column, float weight) { sums.add(row, column, weight); },
        steps_.reporter());
    auto& check = report_.input.operators.emplace(sums.write(writer_, report_.facts));
    if (options_.requires_operator) require_operator(check, report_.facts);
  }

  MetisResult run_metis(std::int64_t num_parts, std::string const& what,
                        MetisMethod method = MetisMethod::kway) {
    require_metis_size(edges_.num_edges() - edges_.num_self_loops(), report_.facts.num_vertices, what);
    auto const graph = gather_adjacency(comm_, edges_, report_.facts.num_vertices);
    return together(comm_, [&] {
      return comm_.is_root() ? partition_with_metis(graph, num_parts, options_.seed, method) : MetisResult{};
    });
  }

  MetisResult run_metis_of(char const* option, std::int64_t num_parts) {
    steps_.begin("METIS");
    auto const n = report_.facts.num_vertices;
    if (num_parts > n) throw_user("{} {}: the graph has only {} vertices", option, num_parts, n);
    return run_metis(num_parts, fmt::format("{} {}", option, num_parts));
  }

  /// Clusters of this rank's block of vertices; empty if no clusters are requested.
  std::vector<std::int32_t> find_clusters() {
    auto const num_clusters = options_.num_clusters;
    if (num_clusters == 0) return {};
    auto const result = run_metis_of("--clusters", num_clusters);
    report_.clusters = MetisStatistics{num_clusters, result.cut, result.volume, result.balance};
    return scatter_parts(comm_, report_.facts.num_vertices, result.parts);
  }

  void write_metis(std::filesystem::path const& output) {
    auto const result = run_metis_of("--metis", options_.metis_parts);
    report_.metis_file = metis_file_of(output, options_.metis_parts);
    together(comm_, [&] {
      if (comm_.is_root()) write_assignment(report_.metis_file, result.parts);
    });
    report_.metis = MetisStatistics{result.num_parts, result.cut, result.volume, result.balance};
  }

  GraphStatistics measure(std::span<std::int64_t const> degrees) {
    GraphStatistics statistics;
    statistics.degrees = measure_degrees(comm_, degrees);
    auto const n = report_.facts.num_vertices;
    constexpr std::array orders{PermutationKind::natural, PermutationKind::single, PermutationKind::twofold,
                                PermutationKind::cluster, PermutationKind::pieces};
    // Only the last three orders take part in the choice.
    for (auto const kind : std::span(orders).subspan(options_.measures_statistics ? 0 : 2)) {
      if (kind == PermutationKind::cluster && !fits_metis()) continue;
      auto const placement = place(kind, degrees);
      edges_.set_placement(placement);
      steps_.begin("measuring permutation " + std::string(name_of(kind)));
      statistics.permutations.push_back(count_blocks(kind, placement));
    }
    if (!options_.measures_statistics || !fits_metis()) return statistics;

    steps_.begin("measuring METIS");
    auto const graph = gather_adjacency(comm_, edges_, n);
    for (std::int64_t const num_parts : {4, 16, 64})
      if (num_parts < n)
        together(comm_, [&] {
          if (!comm_.is_root()) return;
          auto const result = partition_with_metis(graph, num_parts, options_.seed);
          statistics.metis.push_back({num_parts, result.cut, result.volume, result.balance});
        });
    return statistics;
  }

  PermutationStatistics count_blocks(PermutationKind kind, Placement const& placement) {
    BlockCounts counts(comm_, placement.num_vertices);
    RowReuse reuse(comm_, placement.num_vertices, report_.facts.num_entries + placement.num_vertices);
    auto const count = [&](BlockCounts::Positions const& row, BlockCounts::Positions const& column) {
      counts.add(row, column);
      reuse.add(row.p1, column.p1);
    };
    auto const deliver = [&] {
      counts.deliver();
      reuse.deliver();
    };
    auto const positions = [](std::array<Id, 2> const& of) {
      return BlockCounts::Positions{static_cast<std::int64_t>(of[0]), static_cast<std::int64_t>(of[1])};
    };
    edges_.for_each_edge(
        false,
        [&](Placed const& edge) {
          if (edge.local[0] == edge.other[0]) return; // counted with the added self loops
          count(positions(edge.local), positions(edge.other));
          if (report_.facts.is_symmetric) count(positions(edge.other), positions(edge.local));
        },
        deliver, steps_.reporter());
    for (std::size_t i = 0; i < placement.positions[0].size(); ++i) {
      BlockCounts::Positions const at{placement.of(Order::p1)[i], placement.of(Order::p2)[i]};
      count(at, at);
    }
    deliver();
    return {kind, counts.finish(), reuse.finish()};
  }

  StoreWriter& writer_;
  Communicator const& comm_;
  GraphSource const& source_;
  SourceWithoutHeldOut const* split_;
  PartitionOptions const& options_;
  Steps steps_;
  ChunkPool pool_;
  Edges edges_;
  std::unique_ptr<EdgeFeatureRows> features_; // until the last matrix is relabelled
  std::map<PermutationKind, std::vector<std::int32_t>> clusters_of_order_; // of this rank's block of vertices
  PartitionReport report_;
};

/// Builds with the narrowest edge type that can represent this graph.
PartitionReport build(StoreWriter& writer, GraphSource const& whole, std::filesystem::path const& output,
                      PartitionOptions const& options) {
  auto const& facts = whole.facts();
  if (facts.num_vertices < 1 || facts.num_vertices > most_vertices)
    throw_user("a graph of {} vertices: there must be 1 to 2^40", facts.num_vertices);
  require_rules(facts, options.rules, options.edge_split);
  bool const has_values = facts.is_weighted || facts.has_relations() || facts.num_edge_features > 0;
  std::optional<SourceWithoutHeldOut> split;
  if (options.edge_split) split.emplace(writer.comm(), whole, *options.edge_split);
  auto const& source = split ? static_cast<GraphSource const&>(*split) : whole;
  auto const run = [&]<class Id, bool with_values>() {
    return Partitioner<Id, with_values>(writer, source, split ? &*split : nullptr, options).run(output);
  };
  if (options.uses_wide_ids || facts.num_vertices > (std::int64_t{1} << 32))
    return has_values ? run.template operator()<std::uint64_t, true>()
                      : run.template operator()<std::uint64_t, false>();
  return has_values ? run.template operator()<std::uint32_t, true>()
                    : run.template operator()<std::uint32_t, false>();
}

} // namespace

PartitionReport partition(Communicator const& comm, GraphSource const& source,
                          std::filesystem::path const& output, PartitionOptions const& options) {
  runtime::WorkingScope const working(
      comm.instruments().position); // one rank may have more to do than others
  auto const start = MPI_Wtime();
  // Repeats may halve the estimate; the exact space is reserved before writing.
  require_disk_space(comm, output, estimate_partition(comm, source, options.permutation).disk_bytes / 2);
  require_output(comm, output, options.replaces_output);
  StoreWriter writer(comm, output);
  auto const preparing = MPI_Wtime() - start;
  auto report = build(writer, source, output, options);
  auto const begin = MPI_Wtime();
  report.store_bytes = writer.finish(report.facts);
  report.write_seconds += all_reduced(comm, preparing + MPI_Wtime() - begin, Reduction::max);
  report.peak_memory_bytes = all_reduced(comm, runtime::peak_resident_bytes());
  return report;
}

GraphStore
partition_in_memory(Communicator const& comm,
                    std::function<std::unique_ptr<GraphSource>(Communicator const&)> const& make_source,
                    PartitionOptions const& options) {
  Communicator const self(MPI_COMM_SELF, "self");
  return together(comm, [&] {
    auto const source = make_source(self);
    StoreWriter writer(self);
    auto const report = build(writer, *source, {}, options);
    return GraphStore::from_file(writer.finish_in_memory(report.facts));
  });
}

} // namespace orthant::graph

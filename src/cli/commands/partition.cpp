// SPDX-License-Identifier: Apache-2.0
//
// orthant partition: writes a graph, read or generated, to a store that every grid and every number of ranks can load.

#include "graph/partition/partition.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_settings.hpp"
#include "graph/checks/operator_check.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/attributes.hpp"
#include "graph/partition/input_summary.hpp"
#include "graph/partition/metis.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/store/store_arrays.hpp"
#include "models/gnn/network/grid_choice.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/machine/process_memory.hpp"
#include "runtime/report/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fmt/ranges.h>
#include <limits>
#include <mpi.h>
#include <span>
#include <utility>

namespace orthant::cli {
namespace {

struct PartitionOptions {
  std::string input;
  GeneratorOptions generated; // without a kind if the graph is read
  std::string format = "auto";
  std::string output;
  std::string permute = "double";
  std::string normalize = "sym";
  bool directed = false;
  bool add_inverse = false;
  bool names = false;
  std::string duplicates = "drop";
  std::string self_loops = "keep";
  std::string weights = "use";
  std::string split;
  std::string features_from_edges = "none", edge_features = "ignore";
  bool targets = false;
  std::int64_t random_features = 0, random_labels = 0;
  std::vector<double> random_split;
  std::vector<double> edge_split; // shares of validation and test
  std::int64_t metis = 0;
  std::int64_t clusters = 0;
  std::int64_t seed = 0;
  bool stats = false, force_memory = false;
};

graph::Input input_of(PartitionOptions const& options) {
  graph::Input input;
  input.path = options.input;
  input.format = graph::parse_input_format(options.format);
  input.split = options.split;
  input.is_directed = options.directed;
  input.adds_inverse = options.add_inverse;
  input.names_only = options.names;
  input.use_weights = options.weights == "use";
  input.edge_features = graph::edge_features_of(options.edge_features, options.features_from_edges);
  input.labels_are_targets = options.targets;
  input.random_features = options.random_features;
  input.random_labels = options.random_labels;
  if (!options.random_split.empty()) {
    if (!options.split.empty())
      runtime::throw_user(
          "--split {} names a split of the input, and --random-split makes one up: leave one of them out",
          options.split);
    if (options.random_split.size() != 3)
      runtime::throw_user("--random-split takes three fractions, train,valid,test: it got {}",
                          options.random_split.size());
    auto& split = input.random_split.emplace();
    std::copy(options.random_split.begin(), options.random_split.end(), split.begin());
  }
  input.seed = static_cast<std::uint64_t>(options.seed);
  return input;
}

/// Shares of the edges to hold out; nullopt for none. Throws UserError if the options contradict each other.
std::optional<graph::EdgeSplit> edge_split_of(PartitionOptions const& options) {
  if (options.edge_split.empty()) return std::nullopt;
  if (options.edge_split.size() != 2)
    runtime::throw_user("--edge-split takes two shares of the edges, valid,test, such as 0.05,0.1: it got {}",
                        options.edge_split.size());
  graph::EdgeSplit const split{options.edge_split[0], options.edge_split[1],
                               static_cast<std::uint64_t>(options.seed)};
  graph::require_edge_split(split);
  if (options.directed)
    runtime::throw_user("--edge-split holds out edges of undirected graphs: leave out --directed");
  if (options.duplicates == "keep")
    runtime::throw_user("--edge-split holds out an edge with all its repeats: leave out --duplicates keep");
  return split;
}

/// Throws UserError unless exactly one of --input and --generate is given, without options of the other one.
void require_one_source(Context const& context, PartitionOptions const& options) {
  if (options.input.empty() == options.generated.kind.empty())
    runtime::throw_user(
        "partition: name the graph to read with --input PATH, or one to generate with --generate rmat");
  static constexpr std::array of_generated{"vertices", "edges", "features", "classes"};
  static constexpr std::array of_input{
      "format",        "names",        "add-inverse",         "weights",       "split",  "random-features",
      "random-labels", "random-split", "features-from-edges", "edge-features", "targets"};
  auto const& sources = context.run_record.at("sources");
  auto const refuse = [&](std::span<char const* const> names, char const* wanted) {
    for (auto const* const name : names)
      if (sources.value(name, std::string("default")) != "default")
        runtime::throw_user("--{} is for graphs of {}: leave it out", name, wanted);
  };
  if (options.generated.kind.empty())
    refuse(of_generated, "--generate");
  else
    refuse(of_input, "--input");
}

/// Generates the graph that `orthant generate` would write, in the memory of all ranks together, without files.
std::unique_ptr<graph::GraphSource> generate(runtime::Communicator const& world,
                                             PartitionOptions const& options) {
  auto how = generator_of(options.generated, options.seed);
  how.is_directed = options.directed;
  return graph::generate_graph(world, how);
}

void print(std::string const& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// "a, b, c", with a limited number of names.
std::string names_text(std::vector<std::string> const& names) {
  constexpr std::size_t most_named = 12;
  auto const shown = std::span(names).first(std::min(names.size(), most_named));
  auto const rest = names.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "), rest > 0 ? fmt::format(" and {} more", rest) : "");
}

void announce(graph::GraphFacts const& facts, graph::InputFiles const& files,
              graph::Estimate const& estimate) {
  auto const edges = estimate.num_edges < 0 ? std::string("edges not counted yet")
                                            : fmt::format("{} edges", estimate.num_edges);
  print(fmt::format("graph        {}: {} vertices, {}\n", facts.name, facts.num_vertices, edges));
  if (!files.read.empty()) print(fmt::format("read         {}\n", names_text(files.read)));
  if (!files.unused.empty()) print(fmt::format("not used     {}\n", names_text(files.unused)));
  for (auto const& note : files.notes)
    print(fmt::format("note         {}\n", note));
  if (estimate.num_edges >= 0)
    print(fmt::format("estimate     memory {} over all ranks, disk {}, {:.0f} s\n",
                      graph::bytes_text(estimate.memory_bytes), graph::bytes_text(estimate.disk_bytes),
                      std::ceil(estimate.seconds)));
}

/// Seconds of each step and their total; time between the steps is listed as the rest.
std::string times_text(graph::PartitionReport const& report, double opening, double total) {
  using Step = std::pair<char const*, double>;
  std::array steps{Step{"opening", opening},
                   Step{"reading", report.read_seconds},
                   Step{"ordering", report.order_seconds},
                   Step{"relabelling", report.relabel_seconds},
                   Step{"writing", report.write_seconds},
                   Step{"features and labels", report.attribute_seconds},
                   Step{"rest", total}};
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    steps.back().second -= steps[i].second;
  steps.back().second = std::max(0.0, steps.back().second);
  std::string text;
  std::int64_t hundredths = 0; // rounded, so that the printed numbers add up
  for (auto const& [name, seconds] : steps) {
    auto const rounded = std::llround(100 * seconds);
    hundredths += rounded;
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name, static_cast<double>(rounded) / 100);
  }
  return fmt::format("seconds      {:.2f}: {}; {:.2f} million edges/s\n",
                     static_cast<double>(hundredths) / 100, text,
                     static_cast<double>(report.input.num_edges_read) / total / 1e6);
}

/// Grids and schedules that train chooses automatically for some numbers of ranks, with its other defaults.
std::string recommendation(graph::PartitionReport const& report) {
  auto const& facts = report.facts;
  if (facts.num_features == 0 || facts.num_classes == 0 || !facts.has_split || facts.split_sizes[0] == 0)
    return "recommended  nothing: train needs features, labels and a split\n";
  std::string text =
      "recommended  what train takes by itself (--grid auto --schedule auto, three layers, 128 wide)\n";
  auto const seconds = models::full_graph_seconds(facts, model_of(TrainOptions{}));
  for (auto const num_ranks : {1, 2, 4, 8, 16, 64}) {
    auto const [shape, schedule, epoch_seconds] = models::choose_grid({num_ranks}, seconds);
    text += fmt::format("  {:>4} rank{} --grid {} --schedule {}\n", num_ranks,
                        num_ranks == 1 ? ": " : "s:", shape.to_string(), models::name_of(schedule));
  }
  auto const order = graph::choose_order(report.statistics->permutations, facts.num_vertices);
  if (facts.permutation != order)
    text += fmt::format("  by these tables --permute {} fits better than {}\n", graph::name_of(order),
                        graph::name_of(facts.permutation));
  return text;
}

/// Order that --permute auto has chosen, and the cost of gathers in it.
std::string choice_text(graph::PartitionReport const& report) {
  auto const& facts = report.facts;
  auto const cost_of = [&](graph::PermutationKind kind) {
    auto const order =
        std::ranges::find(report.statistics->permutations, kind, &graph::PermutationStatistics::kind);
    return graph::gather_cost(*order, facts.num_vertices);
  };
  auto const balanced = cost_of(graph::PermutationKind::twofold);
  return fmt::format("order        {}; the cost of gathers is expected to be {:.2f} of that of double\n",
                     graph::name_of(facts.permutation), cost_of(facts.permutation) / balanced);
}

void summarize(graph::PartitionReport const& report, PartitionOptions const& options,
               std::string const& times) {
  auto const& facts = report.facts;
  print(graph::format_summary(report.input, facts));
  if (report.metis)
    print(fmt::format(
        "METIS        {} parts: cut {} edges, communication volume {} vertices, balance {:.3f}: {}\n",
        report.metis->num_parts, report.metis->cut, report.metis->volume, report.metis->balance,
        report.metis_file.string()));
  if (report.clusters) // rank 0 only
    print(fmt::format("clusters     {}: {} of {} edges are between two clusters, largest / mean {:.3f}\n",
                      report.clusters->num_parts, report.clusters->cut,
                      (facts.num_entries - facts.num_self_loops) / (facts.is_symmetric ? 2 : 1),
                      report.clusters->balance));
  if (report.has_pieces_by_id)
    print("order        pieces are cut from the order of the ids: the graph is too large for METIS\n");
  if (options.permute == "auto") print(choice_text(report));
  if (options.stats) print(graph::format_statistics(*report.statistics, facts));
  if (facts.has_links())
    print(
        fmt::format("links        held out of the matrix: valid {}, test {}, and as many negatives of each\n",
                    facts.num_held_out[1], facts.num_held_out[2]));
  auto const relations =
      facts.num_relations() > 0 ? fmt::format(", {} relations", facts.num_relations()) : std::string();
  print(fmt::format("matrix       {} entries ({} self loops), {}{}\n", facts.num_entries,
                    facts.num_self_loops, facts.is_symmetric ? "symmetric" : "directed", relations));
  print(fmt::format("{}memory       {} over all ranks, at its peak\nstore        {}: {}\n", times,
                    graph::bytes_text(report.peak_memory_bytes), options.output,
                    graph::bytes_text(report.store_bytes)));
  if (options.stats) print(recommendation(report));
}

/// Logs the warnings that training will give about the graph.
void warn(Context const& context, graph::PartitionReport const& report, std::string const& output) {
  auto warnings = graph::check_data(context.world(), graph::GraphStore::open(context.world(), output));
  auto const& operators = report.input.operators;
  if (auto const effect = graph::describe_effect(
          report.facts, output, operators ? operators->largest_size() : 0, graph::Precision::fp32);
      !effect.empty())
    warnings.insert(warnings.begin(), effect);
  if (!context.world().is_root()) return;
  for (auto const& warning : warnings)
    print(fmt::format("warning      {}\n", warning));
}

int run(PartitionOptions const& options, Context& context) {
  require_one_source(context, options);
  if (options.output.empty()) runtime::throw_user("partition: name the store to write with -o graph.h5");
  auto const& world = context.world();
  graph::PartitionOptions how;
  how.chooses_permutation = options.permute == "auto";
  if (!how.chooses_permutation) how.permutation = graph::parse_permutation(options.permute);
  how.normalization = graph::parse_normalization(options.normalize);
  how.requires_operator = true;
  using Rules = graph::EdgeRules;
  how.rules.repeats = options.duplicates == "drop" ? Rules::Repeats::drop : Rules::Repeats::keep;
  how.rules.self_loops = options.self_loops == "keep" ? Rules::SelfLoops::keep : Rules::SelfLoops::drop;
  how.seed = static_cast<std::uint64_t>(options.seed);
  how.replaces_output = context.replaces_outputs;
  how.metis_parts = options.metis;
  how.num_clusters = options.clusters;
  how.measures_statistics = options.stats;
  how.edge_split = edge_split_of(options);
  graph::require_output(world, options.output, context.replaces_outputs); // before a long read
  if (options.metis > 0) {
    auto const file = graph::metis_file_of(options.output, options.metis).string();
    require_distinct_files(world, std::array{FileOption{"--metis", FileOption::Use::output, &file},
                                             FileOption{"--input", FileOption::Use::input, &options.input}});
    graph::require_output(world, file, context.replaces_outputs);
  }

  auto const begin = MPI_Wtime();
  graph::InputFiles files;
  auto const source = options.generated.kind.empty() ? graph::open_graph(world, input_of(options), &files)
                                                     : generate(world, options);
  graph::require_rules(source->facts(), how.rules, how.edge_split);
  if (auto const n = source->facts().num_vertices; options.clusters > n)
    runtime::throw_user("--clusters {}: the graph has only {} vertices", options.clusters, n);
  auto const estimate = graph::estimate_partition(world, *source, how.permutation);
  if (!options.force_memory)
    runtime::require_memory(world, "partition", estimate.memory_bytes / world.size());
  if (world.is_root()) announce(source->facts(), files, estimate);
  auto const opening = runtime::all_reduced(world, MPI_Wtime() - begin, runtime::Reduction::max);

  runtime::StepBars bars(world.is_root());
  how.on_progress = [&](std::string const& step, double fraction) { bars.report(step, fraction); };
  auto const report = graph::partition(world, *source, options.output, how);
  bars.finish();
  if (world.is_root()) summarize(report, options, times_text(report, opening, MPI_Wtime() - begin));
  warn(context, report, options.output);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_partition() {
  auto command = std::make_unique<Command>("partition",
                                           "Convert a graph to one file (a store) that every grid can load");
  auto const options = std::make_shared<PartitionOptions>();
  command->input("--input", options->input, "Graph to read: a folder or a file");
  command->option("--generate", options->generated.kind,
                  "Generate a graph in place of --input, without files: rmat, sbm, grid2d or ring",
                  one_of(generator_kinds()));
  add_generator_options(*command, options->generated);
  command->option("--format", options->format,
                  "Format of the input: auto, ogb, edgelist, mtx, metis, npy, triples or typed",
                  one_of({"auto", "ogb", "edgelist", "mtx", "metis", "npy", "triples", "typed"}));
  command->flag("--names", options->names,
                "Read all ends of an edge list as names of vertices; default: only if the ends of the first "
                "edge are not numbers");
  command->output("-o,--output", options->output, "Store to write (HDF5)");
  command->option("--permute", options->permute,
                  "Order of the vertices: double (balanced blocks), single, none, cluster (balanced, "
                  "neighbors close together), pieces (like cluster, balanced for train --schedule rows) or "
                  "auto (the best of double, cluster and pieces by the tables of --stats)",
                  one_of({"double", "single", "none", "cluster", "pieces", "auto"}));
  command->option(
      "--normalize", options->normalize,
      "Normalization of the adjacency matrix A: sym (D^-1/2 (A+I) D^-1/2), row (D^-1 (A+I)) or none (A)",
      one_of({"sym", "row", "none"}));
  command->flag("--directed", options->directed,
                "Keep the direction of edges; default: each edge counts in both directions");
  command->flag("--add-inverse", options->add_inverse,
                "With relations: add the inverse of each as rev_NAME, and its edges");
  command->option(
      "--duplicates", options->duplicates,
      "Repeated edges: drop (an edge counts once, and its weights are added, as in OGB and PyG) or keep",
      one_of({"drop", "keep"}));
  command->option("--self-loops", options->self_loops,
                  "Self loops of the input: keep (sym and row replace them by one per vertex) or drop",
                  one_of({"keep", "drop"}));
  command->option("--weights", options->weights, "Edge weights of the input: use or ignore",
                  one_of({"use", "ignore"}));
  command->option("--split", options->split, "Name of the train/valid/test split if the input has several");
  command->option("--features-from-edges", options->features_from_edges,
                  "Features of each vertex from those of its edges: none, mean or sum",
                  one_of({"none", "mean", "sum"}));
  command->option("--edge-features", options->edge_features,
                  "Features of the edges, for train --model gat and gatv2: ignore or keep",
                  one_of({"ignore", "keep"}));
  command->flag("--targets", options->targets,
                "Read labels as targets of regression; default: only if they have numbers with fractions");
  command->option("--random-features", options->random_features,
                  "Number of random features per vertex, in place of the input's",
                  whole_number(0, graph::most_generated_columns));
  command->option("--random-labels", options->random_labels,
                  "Number of classes of random labels, in place of the input's",
                  whole_number(0, graph::most_generated_columns));
  command->option("--random-split", options->random_split, "Random split: fractions train,valid,test",
                  in_range(0, 1));
  command->option("--edge-split", options->edge_split,
                  "Hold out these shares of the edges for validation and test, such as 0.05,0.1, for train "
                  "--task links: they are removed from A, and as many pairs without an edge are drawn",
                  in_range(0, 1));
  command->option("--metis", options->metis, "Also write METIS's assignment to this many parts",
                  whole_number(0, std::numeric_limits<std::int32_t>::max()));
  command->option("--clusters", options->clusters,
                  "Also find this many clusters of neighbors with METIS, for train --sampler clusters",
                  whole_number(0, graph::most_clusters));
  command->option("--seed", options->seed, "Seed of all randomness", whole_number(0));
  command->flag("--stats", options->stats,
                "Print degrees, the balance of each order for both schedules, needed rows and halo volumes, "
                "and the grids and schedules that train chooses");
  add_force_memory_option(*command, options->force_memory);
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

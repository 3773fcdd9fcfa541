// SPDX-License-Identifier: Apache-2.0
//
// orthant bench spmm: times the sparse product of one rank, as training calls it (pattern and scales, or values if the graph has
// weights), on the blocks of a grid, on all ranks at once. On a device also Orthant's kernel alone and the library's fastest algorithm,
// in turn. Prints one JSON line per form and width. Bytes and operations are sums over ranks.

#include "cli/bench/bench.hpp"
#include "cli/bench/roofline.hpp"
#include "cli/commands/build_info.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/options/option_text.hpp"
#include "cli/training/start_checks.hpp"
#include "graph/generate/generators.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/partition.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/machine/processor.hpp"

#include <algorithm>
#include <array>

namespace orthant::cli {
namespace {

struct SpmmOptions {
  std::string graph;
  std::string kind = "rmat";
  std::int64_t vertices = 100000;
  std::int64_t edges = 2000000;
  bool directed = false;
  std::int64_t seed = 0;
  std::string permute = "none";
  std::string grid;
  std::vector<std::string> widths;
  std::vector<std::string> forms;
  std::string dtype = "fp32";
  std::int64_t repeat = 0;
  bool force_memory = false;
  RooflineOptions roofline;
};

constexpr std::int64_t most_width = 65536;

std::vector<std::int64_t> widths_of(SpmmOptions const& o) {
  if (o.widths.empty()) return {16, 32, 47, 64, 100, 128, 256};
  std::vector<std::int64_t> widths;
  for (auto const& word : o.widths)
    widths.push_back(parse_count("--widths", word, most_width));
  std::ranges::sort(widths); // ascending: weights kept for one width remain for larger ones
  return widths;
}

graph::GraphStore open_graph(runtime::Communicator const& world, SpmmOptions const& o) {
  if (!o.graph.empty()) return graph::GraphStore::open(world, o.graph);
  graph::GeneratorOptions generated;
  generated.kind = graph::parse_generator_kind(o.kind);
  generated.num_vertices = o.vertices;
  generated.num_edges = o.edges;
  generated.is_directed = o.directed;
  generated.seed = static_cast<std::uint64_t>(o.seed);
  graph::PartitionOptions how;
  how.permutation = graph::parse_permutation(o.permute);
  how.seed = generated.seed;
  return make_graph_in_memory(
      world, [&](runtime::Communicator const& self) { return graph::generate_graph(self, generated); }, how,
      o.force_memory);
}

/// Adds to the line the algorithms that training chooses from, and the chosen one.
void describe_ways(nlohmann::ordered_json& line, std::string const& chosen,
                   std::span<pmm::SpmmWay const> ways, std::span<RepeatSeconds const> seconds) {
  line["chosen"] = chosen;
  for (std::size_t i = 0; i < ways.size(); ++i)
    line["ways"].push_back(
        {{"way", ways[i].name}, {"seconds", seconds[i].median}, {"min_seconds", seconds[i].minimum}});
  if (pmm::runs_on_host || ways.size() < 2) return; // the library does not support the block
  line["own_ratio"] = seconds[0].median / seconds[1].median;
}

/// Measures the product of each rank; returns speeds by sums over ranks. Operand: T, or a 16-bit number.
template<class Operand, class T>
nlohmann::ordered_json measure(runtime::Communicator const& world, pmm::LocalSpmm<T> const& kernel,
                               std::int64_t width, Roofline const& roofline, GatherRoof& gather_roof,
                               std::int64_t repeat) {
  runtime::DefaultExec const exec;
  auto const& csr = kernel.block().csr;
  // Allocated as in training.
  auto const b_numbers =
      runtime::make_zeros<Operand>("orthant::cli::b", static_cast<std::size_t>(csr.num_columns * width));
  auto const c_numbers =
      runtime::make_zeros<Operand>("orthant::cli::c", static_cast<std::size_t>(csr.num_rows * width));
  auto const b = pmm::as_matrix(b_numbers, csr.num_columns, width);
  auto const c = pmm::as_matrix(c_numbers, csr.num_rows, width);
  Kokkos::deep_copy(exec, b, Operand(1));
  auto const multiply = [&] { kernel.apply(exec, {0, csr.num_rows}, b, c); };
  // The first products prepare later ones, and choose the algorithm.
  constexpr auto most_tries = 20;
  constexpr auto is_rounded = !std::is_same_v<Operand, T>; // 16-bit operands have one algorithm only
  for (auto i = 0; i < most_tries && (is_rounded || kernel.way_of(width).empty()); ++i)
    multiply();
  std::vector<pmm::SpmmWay> ways;
  if constexpr (!is_rounded) ways = kernel.ways(exec, b, c);
  auto const num_ways = static_cast<std::int64_t>(ways.size());
  ways.resize(static_cast<std::size_t>(runtime::all_reduced(world, num_ways, runtime::Reduction::min)));
  // Timed alone, like the gathers that are its limit: if it alternated with other algorithms, the caches would hold their operands.
  std::array<std::function<void()>, 1> const alone{multiply};
  auto const seconds = time_in_turn(world, exec, alone, repeat).front();
  std::vector<std::function<void()>> works;
  for (auto const& way : ways)
    works.push_back(way.run);
  auto const seconds_of_ways = time_in_turn(world, exec, works, repeat);

  auto const mine = bytes_of(kernel.block(), width, sizeof(Operand), sizeof(Operand));
  auto const most_nonzeros = runtime::all_reduced(world, csr.num_nonzeros(), runtime::Reduction::max);
  std::array sums{mine.gathered, mine.compulsory, static_cast<double>(csr.num_nonzeros())};
  runtime::all_reduce(runtime::host, world, std::span(sums));
  auto const [gathered, compulsory, nonzeros] = sums;
  auto const gathered_rate = giga_per_second(gathered, seconds.median);
  auto const compulsory_rate = giga_per_second(compulsory, seconds.median);
  nlohmann::ordered_json line{
      {"width", width},
      {"nonzeros", static_cast<std::int64_t>(nonzeros)},
      {"repeats", seconds.repeats},
      {"seconds", seconds.median},
      {"min_seconds", seconds.minimum},
      {"gathered_bytes", static_cast<std::int64_t>(gathered)},
      {"compulsory_bytes", static_cast<std::int64_t>(compulsory)},
      {"gathered_gb_per_s", gathered_rate},
      {"compulsory_gb_per_s", compulsory_rate},
      {"gflop_per_s", giga_per_second(2 * nonzeros * static_cast<double>(width), seconds.median)},
      {"seconds_per_nonzero_and_column",
       seconds.median / (static_cast<double>(most_nonzeros) * static_cast<double>(width))}};
  roofline.describe(line);
  line["gathered_share"] = gathered_rate / roofline.stream_gb_per_s;
  if (auto const roof = gather_roof.bytes_per_second(csr.num_columns, width * std::int64_t{sizeof(Operand)});
      roof > 0) {
    line["gather_gb_per_s"] = roof * 1e-9;
    line["gather_share"] = gathered_rate * 1e9 / roof;
  }
  line["compulsory_share"] = compulsory_rate / roofline.stream_gb_per_s;
  if (!is_rounded) describe_ways(line, kernel.way_of(width), ways, seconds_of_ways);
  return line;
}

template<class T, class Operand = T>
int bench(SpmmOptions const& options, Context& context) {
  auto const& world = context.world();
  auto const widths = widths_of(options);
  auto const shape = options.grid.empty() ? pmm::GridShape{1, world.size(), 1, 1}
                                          : pmm::parse_grid(options.grid, world.size());
  if (shape.data != 1)
    runtime::throw_user("--grid {}: a block of the whole graph has no data axis; the first factor must be 1",
                        shape.to_string());
  pmm::ProcessGrid const grid(world, shape);
  auto const forms = options.forms.empty() ? std::vector<std::string>{"product"} : options.forms;
  context.log().info("{} the graph", options.graph.empty() ? "making" : "reading");
  auto const store = open_graph(world, options);
  auto const& facts = store.facts();
  require_operator(context, store, {precision_of<T>});
  auto record = context.run_record;
  record["grid"] = shape.to_string();
  record["seed"] = options.seed;
  if (context.metrics.is_on()) context.metrics.write("run", record);

  // A^[x,y], the block of even layers.
  pmm::Placement const placement{
      {pmm::Axis::x, pmm::Axis::y, pmm::Storage::replicated, models::order_p1, models::order_p2},
      {facts.num_vertices, facts.num_vertices}};
  context.log().info("building the operator of {} non-zeros", facts.num_operator_entries());
  auto const matrix = models::AdjacencyBlocks<T>(grid, store).get(placement, true);
  context.log().info("measuring the limits of this machine");
  auto const roofline = measure_roofline<T>(world, options.roofline);
  GatherRoof gather_roof(world);
  auto head = begin_line(context, "spmm");
  head["grid"] = shape.to_string();
  head["graph"] = options.graph.empty() ? options.kind : options.graph;
  head["permutation"] = graph::name_of(facts.permutation);
  head["vertices"] = facts.num_vertices;
  if (options.graph.empty()) head["edges"] = options.edges; // before merging repeats and adding reverse edges
  head["symmetric"] = facts.is_symmetric;
  head["dtype"] = options.dtype;
  for (auto const& form : forms)
    for (auto const width : widths) {
      context.log().info("timing {} columns, {}", width, form);
      auto line = head;
      line["form"] = form;
      auto const& kernel = form == "product" ? matrix.forward() : matrix.adjoint();
      if (width >= pmm::least_weighted_width(facts.num_operator_entries(), facts.num_vertices))
        kernel.keep_weights(runtime::DefaultExec()); // as in training with this width
      line["weighted"] = matrix.forward().block().csr.values.extent(0) > 0;
      line.update(measure<Operand>(world, kernel, width, roofline, gather_roof, options.repeat));
      print_line(context, line);
    }
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_bench_spmm() {
  auto command =
      std::make_unique<Command>("bench spmm", "Time the sparse matrix product on each rank's block");
  auto const o = std::make_shared<SpmmOptions>();
  command->input("--graph", o->graph, "Store (orthant partition writes it), in place of a generated graph");
  command->option("--kind", o->kind, "Kind of generated graph: rmat (labels shuffled), sbm, grid2d or ring",
                  one_of({"rmat", "sbm", "grid2d", "ring"}));
  command->option("--vertices", o->vertices, "Its vertices", whole_number(2, graph::most_vertices));
  command->option("--edges", o->edges,
                  "Edges of the generated graph; each is stored in both directions, repeats are merged, self "
                  "loops are added",
                  whole_number(1, graph::most_edges));
  command->flag("--directed", o->directed,
                "With rmat and sbm: make the graph directed; default: each edge counts in both directions");
  command->option("--seed", o->seed, "Seed of the graph", whole_number(0));
  command->option("--permute", o->permute,
                  "Order of the vertices, as in partition: none, single, double or cluster",
                  one_of({"none", "single", "double", "cluster"}));
  command->option(
      "--grid", o->grid,
      "Partition A^ over X (rows) and Y (columns) of this grid DxXxYxZ; default: rows over all ranks");
  command->option("--widths", o->widths, "Numbers of columns of B; default: 16,32,47,64,100,128,256");
  command->option("--forms", o->forms, "product (A^ B), transposed (A^^T B) or both; default: product",
                  one_of({"product", "transposed"}));
  command->option("--dtype", o->dtype,
                  "Number format of B and C: fp32, fp64, bf16 or fp16; with bf16 and fp16, sums, values and "
                  "scales are fp32",
                  one_of({"fp32", "fp64", "bf16", "fp16"}));
  add_force_memory_option(*command, o->force_memory);
  add_repeat_option(*command, o->repeat);
  add_options(*command, o->roofline);
  command->set_run([o](Context& context) {
    if (o->dtype == "bf16") return bench<float, runtime::Bf16Number>(*o, context);
    if (o->dtype == "fp16") return bench<float, runtime::Fp16Number>(*o, context);
    return o->dtype == "fp32" ? bench<float>(*o, context) : bench<double>(*o, context);
  });
  return command;
}

} // namespace orthant::cli

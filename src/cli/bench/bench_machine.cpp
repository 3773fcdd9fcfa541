// SPDX-License-Identifier: Apache-2.0
//
// orthant bench machine: measures the constants of a machine file (pmm/cost/machine_file.hpp) on all ranks at once.
//
//   memory               copy or triad of the roofline
//   products, launches, random numbers: machine_products.hpp
//   collectives          groups of every (stride, size) that divides the ranks; all groups with the same stride and size at once:
//                        8 bytes for the latency, 16 MiB for the bandwidth (bytes of an all_reduce, an all_gather and a
//                        reduce_scatter, divided by the sum of their seconds)
//   overlap              share of a product's time that overlaps with an all_reduce of 16 MiB begun before it
//   storage              with --folder: all ranks write and sync a file there, 16 MiB each
//
// With --network, nodes and collectives are taken from another machine, so one rank is enough: for plans and emulations of this processor
// in that network.

#include "cli/bench/bench.hpp"
#include "cli/bench/machine_products.hpp"
#include "cli/bench/roofline.hpp"
#include "cli/commands/build_info.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/options/shared_options.hpp"
#include "cli/training/start_checks.hpp"
#include "graph/generate/generators.hpp"
#include "graph/graph_source.hpp"
#include "graph/partition/partition.hpp"
#include "pmm/cost/machine_file.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/machine/processor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>

namespace orthant::cli {
namespace {

using pmm::GroupSpan;
using pmm::Machine;
using runtime::Communicator;

struct MachineOptions {
  std::string output;
  std::string name = "measured";
  std::string network;
  std::string graph;
  std::int64_t vertices = 100000;
  std::int64_t edges = 2000000;
  std::int64_t repeat = 0;
  std::string folder;
  bool force_memory = false;
  RooflineOptions roofline;
};

/// Ranks on the node with the fewest; same result on all ranks.
int ranks_per_node(Communicator const& world) {
  MPI_Comm node = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_split_type(world.mpi(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  int num_here = 0;
  ORTHANT_MPI(MPI_Comm_size(node, &num_here));
  ORTHANT_MPI(MPI_Comm_free(&node));
  return runtime::all_reduced(world, num_here, runtime::Reduction::min);
}

graph::GraphStore open_graph(Communicator const& world, MachineOptions const& o) {
  if (!o.graph.empty()) return graph::GraphStore::open(world, o.graph);
  graph::GeneratorOptions generated;
  generated.kind = graph::GeneratorKind::rmat;
  generated.num_vertices = o.vertices;
  generated.num_edges = o.edges;
  return make_graph_in_memory(
      world, [&](Communicator const& self) { return graph::generate_graph(self, generated); }, {},
      o.force_memory);
}

/// Latency and bandwidth of groups with one stride and size.
struct GroupTimes {
  GroupSpan span;
  double latency = 0;
  double bytes_per_second = 0;
};

/// Sum of the seconds of an all_reduce, an all_gather and a reduce_scatter. Each is timed separately: if the three alternated, each would
/// evict the arrays of the others from the cache, whereas in training the cache holds a part of the arrays. `part`: floats per rank.
double seconds_of_calls(MachineTimer const& timer, Communicator const& comm, std::size_t part) {
  auto const whole = part * static_cast<std::size_t>(comm.size());
  auto const data = runtime::make_zeros<float>("orthant::cli::data", whole);
  auto const out = runtime::make_zeros<float>("orthant::cli::out", whole);
  auto const own = Kokkos::subview(data, std::pair(std::size_t{0}, part));
  runtime::DefaultExec const exec;
  auto const reduced = timer.seconds_of([&] { runtime::all_reduce(exec, comm, data); });
  auto const gathered = timer.seconds_of([&] { runtime::all_gather(exec, comm, own, out); });
  auto const scattered = timer.seconds_of([&] { runtime::reduce_scatter(exec, comm, out, own); });
  return reduced + gathered + scattered;
}

GroupTimes time_groups(MachineTimer const& timer, GroupSpan const& span) {
  auto const& world = timer.world();
  pmm::ProcessGrid const grid(
      world, {world.size() / (span.num_ranks * span.stride), span.num_ranks, span.stride, 1});
  auto const& comm = grid.over(pmm::Axis::x);
  constexpr std::size_t num_floats = std::size_t{4} << 20;
  auto const part = num_floats / static_cast<std::size_t>(span.num_ranks);
  auto const pair = runtime::make_zeros<float>("orthant::cli::pair", 2);
  auto const latency = timer.seconds_of([&] { runtime::all_reduce(runtime::DefaultExec(), comm, pair); });
  // Within a node, calls on different arrays of the same size differ by up to a factor of two, depending on their memory pages: take the
  // median over several pairs of arrays.
  std::array<double, 5> seconds{};
  for (auto& of_arrays : seconds)
    of_arrays = seconds_of_calls(timer, comm, part);
  std::ranges::sort(seconds);
  auto const median = seconds[seconds.size() / 2];
  auto const others = part * static_cast<std::size_t>(span.num_ranks - 1);
  auto const sent = 4.0 * static_cast<double>(others) * sizeof(float); // all_reduce counts as two calls
  return {span, latency, sent / std::max(median - 3 * latency, median / 2)};
}

std::vector<GroupTimes> time_all_groups(MachineTimer const& timer) {
  auto const& world = timer.world();
  std::vector<GroupTimes> groups;
  for (int stride = 1; stride < world.size(); ++stride)
    for (int num_ranks = 2; num_ranks * stride <= world.size(); ++num_ranks)
      if (world.size() % (num_ranks * stride) == 0) groups.push_back(time_groups(timer, {num_ranks, stride}));
  return groups;
}

/// Share of a product's time that overlaps with an all_reduce over all ranks, begun before it. The product takes about as long as the
/// call.
///
///   share = (call + product - both) / product
double measure_overlap(MachineTimer const& timer) {
  auto const& world = timer.world();
  constexpr std::int64_t rows = 4096;
  constexpr std::int64_t width = 128;
  constexpr std::size_t num_floats = std::size_t{4} << 20;
  runtime::DefaultExec const exec;
  auto const matrix = [](char const* label, std::int64_t num_rows) {
    return runtime::make_zeros<float>(label, static_cast<std::size_t>(num_rows * width));
  };
  auto const data = runtime::make_zeros<float>("orthant::cli::data", num_floats);
  auto const a = matrix("orthant::cli::a", rows);
  auto const b = matrix("orthant::cli::b", width);
  auto const c = matrix("orthant::cli::c", rows);
  auto const multiply = [&](std::int64_t num_products) {
    for (std::int64_t i = 0; i < num_products; ++i)
      pmm::local_gemm<float>(exec, 1, pmm::Transpose::no, pmm::as_matrix(a, rows, width), pmm::Transpose::no,
                             pmm::as_matrix(b, width, width), 0, pmm::as_matrix(c, rows, width));
  };
  auto const call = timer.seconds_of([&] { runtime::all_reduce(exec, world, data); });
  auto const one = timer.seconds_of([&] { multiply(1); });
  auto const num_products = std::max<std::int64_t>(1, std::llround(call / one));
  auto const work = timer.seconds_of([&] { multiply(num_products); });
  auto const both = timer.seconds_of([&] {
    auto request = runtime::start_all_reduce(exec, world, data);
    multiply(num_products);
    request.wait();
  });
  return std::clamp((call + work - both) / work, 0.0, 1.0);
}

/// Bytes/s that all ranks together write to a file, as a checkpoint does.
double measure_storage(MachineTimer const& timer, std::filesystem::path const& folder) {
  auto const& world = timer.world();
  constexpr std::size_t bytes_of_rank = std::size_t{16} << 20;
  std::vector<std::byte> const part(bytes_of_rank, std::byte{1});
  auto staged =
      runtime::StagedFile::create(world, folder / "orthant-machine", "test file"); // never published
  auto const seconds = timer.seconds_of([&] {
    runtime::together(world, [&] {
      staged.file().write_at(static_cast<std::int64_t>(bytes_of_rank) * world.rank(), part);
      staged.file().sync();
    });
  });
  return static_cast<double>(bytes_of_rank) * world.size() / seconds;
}

/// Converts the times of the groups to constants of the machine. `text` receives remarks for the log.
Machine::Collectives collectives_of(Machine const& machine, std::vector<GroupTimes> const& groups,
                                    int job_ranks, std::string& text) {
  Machine::Collectives collectives;
  auto const is_inside = [&](GroupTimes const& group) {
    return pmm::is_inside_node(machine, group.span, job_ranks);
  };
  auto const steps = [](GroupTimes const& group) {
    return pmm::num_steps(runtime::Operation::all_reduce, group.span.num_ranks);
  };
  auto const [least, most] = std::ranges::minmax(groups, {}, steps);
  if (steps(most) > steps(least))
    collectives.step_seconds = std::max(0.0, (most.latency - least.latency) / (steps(most) - steps(least)));
  collectives.call_seconds = std::max(0.0, least.latency - steps(least) * collectives.step_seconds);
  for (auto const& group : groups) {
    if (is_inside(group)) {
      collectives.inside.push_back({group.span, group.bytes_per_second});
      continue;
    }
    auto const members = pmm::members_on_node(machine, group.span);
    collectives.bytes_per_second_between_nodes =
        std::max(collectives.bytes_per_second_between_nodes,
                 group.bytes_per_second * machine.ranks_per_node / members);
  }
  auto const slowest = std::ranges::min(groups, {}, &GroupTimes::bytes_per_second);
  if (collectives.inside.empty()) {
    collectives.inside.push_back({{2, 1}, slowest.bytes_per_second});
    text += "; no group was inside a node";
  }
  if (collectives.bytes_per_second_between_nodes == 0) {
    collectives.bytes_per_second_between_nodes = slowest.bytes_per_second;
    text += "; all ranks were on one node: the bandwidth between nodes is that of the slowest group";
  }
  return collectives;
}

std::string text_of(Machine const& machine, std::string const& source,
                    std::string const& source_of_collectives) {
  auto const by_width = [](pmm::WidthTable const& table) {
    std::vector<std::string> rows;
    for (auto const& [width, value] : table.points)
      rows.push_back(fmt::format("[{}, {:.4g}]", width, value));
    return fmt::format("[{}]", fmt::join(rows, ", "));
  };
  std::vector<std::string> inside;
  for (auto const& [span, bandwidth] : machine.collectives.inside)
    inside.push_back(fmt::format("[{}, {}, {:.4g}]", span.stride, span.num_ranks, bandwidth));
  auto const storage = machine.storage_bytes_per_second == 0
                           ? std::string()
                           : fmt::format("\n[storage]\nbytes_per_second = {:.4g}\nsource = \"{}\"\n",
                                         machine.storage_bytes_per_second, source);
  return fmt::format("# For --machine of train, bench epoch and plan; orthant bench machine wrote it.\n"
                     "name = \"{}\"\nranks_per_node = {}\n\n"
                     "[memory]\nbytes_per_second = {:.4g}\nsource = \"{}\"\n\n"
                     "[dense_products]\nfp32 = {:.4g}\nof_16_bits = {:.4g}\nnarrow = {}\nattention = {:.4g}\n"
                     "attention_row_seconds = {:.4g}\nlaunch_seconds = {:.4g}\nsource = \"{}\"\n\n"
                     "[sparse_products]\nper_nonzero = {}\nper_row = {}\nsource = \"{}\"\n\n"
                     "[launch]\nseconds = {:.4g}\nsource = \"{}\"\n\n"
                     "[passes]\nrandom_number_seconds = {:.4g}\nexponential_seconds = {:.4g}\n"
                     "row_sum_seconds = {:.4g}\nsource = \"{}\"\n\n"
                     "[collectives]\ncall_seconds = {:.4g}\nstep_seconds = {:.4g}\ninside = [{}]\n"
                     "bytes_per_second_between_nodes = {:.4g}\noverlap = {:.2g}\nsource = \"{}\"\n",
                     machine.name, machine.ranks_per_node, machine.memory.bytes_per_second, source,
                     machine.dense.fp32, machine.dense.of_16_bits, by_width(machine.dense.narrow),
                     machine.dense.attention, machine.dense.attention_row_seconds,
                     machine.dense.launch_seconds, source, by_width(machine.sparse.per_nonzero),
                     by_width(machine.sparse.per_row), source, machine.launch_seconds, source,
                     machine.passes.random_number, machine.passes.exponential, machine.passes.row_sum, source,
                     machine.collectives.call_seconds, machine.collectives.step_seconds,
                     fmt::join(inside, ", "), machine.collectives.bytes_per_second_between_nodes,
                     machine.collectives.overlap, source_of_collectives) +
         storage;
}

int run(MachineOptions const& o, Context& context) {
  auto const& world = context.world();
  if (o.output.empty()) runtime::throw_user("bench machine: name the file to write, such as -o machine.toml");
  if (world.size() == 1 && o.network.empty())
    runtime::throw_user(
        "bench machine measures collectives, too: start it on 2 ranks or more (mpirun -n 2 ..), or take "
        "them from a machine (--network perlmutter)");
  runtime::require_writable(world, o.output, "machine file");
  choose_gemm_libraries(context, "");
  pmm::set_gemm_threads(1);

  auto const report = [&](std::string_view what) { context.log().info("measuring {}", what); };
  Machine machine;
  if (!o.network.empty()) machine = pmm::read_machine(world, o.network);
  machine.name = o.name;
  if (o.network.empty()) machine.ranks_per_node = ranks_per_node(world);
  MachineTimer const timer(world, o.repeat);
  report("memory");
  machine.memory.bytes_per_second =
      1e9 * measure_roofline<float>(world, o.roofline).stream_gb_per_s / world.size();
  context.log().info("{} the graph", o.graph.empty() ? "making" : "reading");
  auto const store = open_graph(world, o);
  measure_products(timer, store, machine, report);
  std::string of_collectives;
  if (o.network.empty()) {
    report("collectives");
    machine.collectives = collectives_of(machine, time_all_groups(timer), world.size(), of_collectives);
    machine.collectives.overlap = measure_overlap(timer);
  }

  if (!o.folder.empty()) {
    report("storage");
    machine.storage_bytes_per_second = measure_storage(timer, o.folder);
  }

  auto const source = fmt::format("measured on {}, {} ranks, {} ({})", runtime::find_processor().name,
                                  world.size(), date_of_today(), version());
  auto const text =
      text_of(machine, source, o.network.empty() ? source + of_collectives : "those of " + o.network);
  std::ignore = pmm::parse_machine(text, o.output); // throws if the text is not a valid machine
  runtime::together(world, [&] {
    if (!world.is_root()) return;
    runtime::StagedFile file(o.output, "machine file");
    file.file().append(text);
    file.publish();
    std::fputs(text.c_str(), stdout);
  });
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_bench_machine() {
  auto command = std::make_unique<Command>(
      "bench machine", "Measure a machine for --machine of plan and train: products, memory, collectives");
  auto const o = std::make_shared<MachineOptions>();
  command->output("-o,--output", o->output, "Machine file to write (.toml)");
  command->option("--name", o->name, "Name of the machine in the file");
  command->input(
      "--network", o->network,
      "Machine (name or .toml file) whose nodes and collectives are used in place of measured ones");
  command->option("--folder", o->folder,
                  "Folder on the file system of checkpoints: measures the write speed with 16 MiB per rank; "
                  "default: it is not measured");
  command->input("--graph", o->graph, "Store whose sparse products are timed, in place of an R-MAT graph");
  command->option("--vertices", o->vertices, "Number of vertices of the R-MAT graph",
                  whole_number(2, graph::most_vertices));
  command->option("--edges", o->edges, "Number of edges of the R-MAT graph",
                  whole_number(1, graph::most_edges));
  add_force_memory_option(*command, o->force_memory);
  add_repeat_option(*command, o->repeat);
  add_options(*command, o->roofline);
  command->set_run([o](Context& context) { return run(*o, context); });
  return command;
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// orthant bench gemm: times the dense products of one epoch of a GCN, in the forms that its layers use, as training calls them and by
// direct calls of each library, alternately, on all ranks at once. Prints one JSON line per product, then one for all. Shapes are taken
// from the first rank; bytes and operations are sums over ranks. With --tune, finds the fastest library for each kind of product and writes
// a table for --gemm-table.

#include "cli/bench/bench.hpp"
#include "cli/bench/epoch_products.hpp"
#include "cli/bench/roofline.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/options/option_text.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_modes.hpp"
#include "graph/graph_source.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

struct GemmOptions {
  std::string graph;
  std::int64_t layers = 3;
  std::int64_t hidden = 128;
  std::int64_t rows = 0;
  std::string widths;
  double dropout = 0.5;
  std::string order = "auto";
  std::string grid = "auto";
  std::string dtype = "fp32";
  std::string gemm_math = "fp32";
  std::string gemm_table;
  std::string tune;
  std::int64_t repeat = 0;
  bool force_memory = false;
  RooflineOptions roofline;
};

struct Model {
  models::NetworkPlan plan;
  models::NetworkSettings settings;
  models::NetworkEpochTraits traits;
};

Model plan_model(runtime::Communicator const& world, GemmOptions const& o) {
  auto const is_described = o.rows > 0 && !o.widths.empty();
  if (o.graph.empty() != is_described || (!o.graph.empty() && (o.rows > 0 || !o.widths.empty())))
    runtime::throw_user("give either --graph graph.h5 or both --rows N and --widths 100-128-47");
  models::NetworkShape shape;
  shape.has_input_dropout = o.dropout > 0;
  if (!o.graph.empty()) {
    models::NetworkSettings settings;
    settings.set_layers(o.layers, o.hidden);
    settings.dropout = o.dropout;
    settings.order = models::parse_product_order(o.order);
    auto const store = graph::GraphStore::open(world, o.graph);
    models::NetworkEpochTraits traits;
    traits.has_sparse_features = store.facts().feature_kind == graph::FeatureKind::sparse;
    return {models::plan_network(store, settings), settings, traits};
  }
  shape.num_vertices = o.rows;
  shape.widths = parse_widths(o.widths);
  return {models::plan_network(shape, models::parse_product_order(o.order)), {}, {}};
}

std::string_view name_of(pmm::Form form) {
  switch (form) {
  case pmm::Form::product:
    return "product";
  case pmm::Form::left_grad:
    return "left_grad";
  case pmm::Form::right_grad:
    return "right_grad";
  }
  return "";
}

/// "NN", "NT" or "TN": which operands BLAS transposes.
std::string_view transposes_of(pmm::Form form) {
  return form == pmm::Form::product ? "NN" : form == pmm::Form::left_grad ? "NT" : "TN";
}

/// Times of training's call (`ours`) and of the library (`bare`), and the work.
struct Timing {
  RepeatSeconds ours;
  RepeatSeconds bare;
  double bytes = 0;
  double flops = 0;
};

void describe(nlohmann::ordered_json& line, Timing const& timing, Roofline const& roofline) {
  line["repeats"] = timing.ours.repeats;
  line["seconds"] = timing.ours.median;
  line["bare_seconds"] = timing.bare.median;
  line["min_seconds"] = timing.ours.minimum;
  line["bare_min_seconds"] = timing.bare.minimum;
  line["ratio"] = timing.ours.median / timing.bare.median;
  line["bytes"] = static_cast<std::int64_t>(timing.bytes);
  line["flops"] = static_cast<std::int64_t>(timing.flops);
  line["gb_per_s"] = giga_per_second(timing.bytes, timing.ours.median);
  line["gflop_per_s"] = giga_per_second(timing.flops, timing.ours.median);
  line["bare_gflop_per_s"] = giga_per_second(timing.flops, timing.bare.median);
  roofline.describe(line);
  line["stream_share"] = giga_per_second(timing.bytes, timing.ours.median) / roofline.stream_gb_per_s;
  line["gemm_share"] = giga_per_second(timing.flops, timing.ours.median) / roofline.gemm_gflop_per_s;
  line["arithmetic_share"] =
      giga_per_second(timing.flops, timing.ours.median) / roofline.arithmetic_gflop_per_s();
}

template<class T>
int bench(GemmOptions const& options, Context& context) {
  auto const& world = context.world();
  pmm::set_gemm_threads(1); // as in training
  require_full_graph_grid(options.grid, world.size());
  pmm::ProcessGrid const grid(world, pmm::parse_grid(options.grid, world.size()));
  auto const model = plan_model(world, options);
  pmm::StepPlan step(grid.shape(), grid.coordinates(), sizeof(T));
  plan_epoch(step, model.plan, model.settings, model.traits);
  auto products = products_of(step);
  std::erase_if(products, [](LocalProduct const& product) { return product.is_sparse; });
  if (products.empty())
    runtime::throw_user("{}: one layer of sparse features has no dense products; take more --layers",
                        options.graph);
  models::MemoryEstimate estimate;
  estimate.arrays = ProductOperands<T>::num_bytes(products);
  if (!options.force_memory) require_memory(context, "bench gemm", estimate);
  ProductOperands<T> const operands(products);
  auto record = context.run_record;
  record["grid"] = grid.shape().to_string();
  if (context.metrics.is_on()) context.metrics.write("run", record);

  context.log().info("measuring the limits of this machine");
  auto const roofline = measure_roofline<T>(world, options.roofline);
  auto head = begin_line(context, "gemm");
  head["grid"] = grid.shape().to_string();
  head["dtype"] = options.dtype;
  head["gemm_math"] = options.gemm_math;
  runtime::DefaultExec const exec;
  Timing all;
  auto least_seconds = 0.0;
  for (auto const& product : products) {
    std::vector<std::string_view> libraries;
    std::vector<std::function<void()>> works{[&] { operands.multiply(exec, product); }};
    for (auto const library : bare_libraries()) {
      if (!operands.multiply_bare(library, product)) continue;
      libraries.push_back(library);
      works.emplace_back([&operands, &product, library] { operands.multiply_bare(library, product); });
    }
    context.log().info("timing layer {}, {}: {} x {} x {}", product.layer, product.formula, product.m,
                       product.n, product.k);
    auto const seconds = time_in_turn(world, exec, works, options.repeat);
    // OpenBLAS, the first library, runs the products that the chosen one does not support.
    auto const found = std::ranges::find(libraries, operands.library_of(product));
    auto const place = found == libraries.end() ? 0 : found - libraries.begin();
    auto const library = libraries.at(static_cast<std::size_t>(place));
    auto const numbers = product.m * product.k + product.k * product.n + product.m * product.n;
    std::array sums{static_cast<double>(numbers) * sizeof(T), static_cast<double>(product.flops())};
    runtime::all_reduce(runtime::host, world, std::span(sums));
    Timing const timing{seconds[0], seconds.at(static_cast<std::size_t>(place) + 1), sums[0], sums[1]};
    auto const least = roofline.seconds(timing.bytes, timing.flops);

    auto line = head;
    line["layer"] = product.layer;
    line["product"] = product.formula;
    line["form"] = name_of(product.form);
    line["transposes"] = transposes_of(product.form);
    line["m"] = product.m;
    line["n"] = product.n;
    line["k"] = product.k;
    describe(line, timing, roofline);
    line["share"] = least / timing.ours.median;
    line["library"] = library;
    for (std::size_t i = 0; i < libraries.size(); ++i)
      line["libraries_gflop_per_s"][std::string(libraries[i])] =
          giga_per_second(timing.flops, seconds[i + 1].median);
    print_line(context, line);

    all.ours.median += timing.ours.median;
    all.ours.minimum += timing.ours.minimum;
    all.bare.median += timing.bare.median;
    all.bare.minimum += timing.bare.minimum;
    all.ours.repeats = std::max(all.ours.repeats, timing.ours.repeats);
    all.bytes += timing.bytes;
    all.flops += timing.flops;
    least_seconds += least;
  }
  auto line = head;
  line["product"] = "all";
  describe(line, all, roofline);
  line["share"] = least_seconds / all.ours.median;
  print_line(context, line);
  return runtime::exit_done;
}

int tune(GemmOptions const& options, Context& context) {
  // Default number of rows per rank.
  constexpr std::int64_t usual_rows = 48'980; // the 2.4 million rows of ogbn-products on 50 ranks
  auto const& world = context.world();
  if (!options.graph.empty() || !options.widths.empty() || !options.gemm_table.empty())
    runtime::throw_user(
        "--tune measures shapes and libraries of its own: leave out --graph, --widths and --gemm-table");
  runtime::require_writable(world, options.tune, "table");
  pmm::set_gemm_threads(1); // as in training
  if (context.metrics.is_on()) context.metrics.write("run", context.run_record);
  auto const rows = options.rows > 0 ? options.rows : usual_rows;
  auto const table =
      tune_gemm(context, std::max<std::int64_t>(rows / world.size(), least_tuned_rows), options.repeat);
  runtime::together(world, [&] {
    if (!world.is_root()) return;
    runtime::StagedFile file(options.tune, "table");
    file.file().append(text_of(table));
    file.publish();
  });
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_bench_gemm() {
  auto command = std::make_unique<Command>(
      "bench gemm",
      "Time the dense products of a GCN's epoch, as training calls them and by direct calls of the "
      "libraries");
  auto const o = std::make_shared<GemmOptions>();
  command->option("--rows", o->rows, "Vertices of the graph", whole_number(1, graph::most_vertices));
  command->option("--widths", o->widths, "Widths of the model from features to classes, such as 100-128-47");
  command->input(
      "--graph", o->graph,
      "Store that gives the shapes together with --layers and --hidden, in place of --rows and --widths");
  command->option("--layers", o->layers, "Number of layers", whole_number(1, most_layers));
  command->option("--hidden", o->hidden, "Width of the hidden layers", whole_number(1, most_hidden));
  command->option("--dropout", o->dropout, "Dropout probability of the model, on which --order auto depends",
                  in_range(0, 0.999));
  command->option("--order", o->order, "Order of a layer's products: auto, aggregate or transform first",
                  one_of({"auto", "aggregate", "transform"}));
  command->option("--grid", o->grid, "Ranks along data, X, Y and Z as DxXxYxZ, or auto");
  command->option("--dtype", o->dtype, "fp32 or fp64", one_of({"fp32", "fp64"}));
  add_gemm_math_option(*command, o->gemm_math);
  add_gemm_table_option(*command, o->gemm_table);
  command->output(
      "--tune", o->tune,
      "Measure all libraries on the shapes of training (--rows 48980 over all ranks), and write a "
      "table of the fastest to this file, for --gemm-table");
  add_force_memory_option(*command, o->force_memory);
  add_repeat_option(*command, o->repeat);
  add_options(*command, o->roofline);
  command->set_run([o](Context& context) {
    if (!o->tune.empty()) return tune(*o, context);
    choose_gemm_math(o->gemm_math, o->dtype);
    choose_gemm_libraries(context, o->gemm_table);
    return o->dtype == "fp32" ? bench<float>(*o, context) : bench<double>(*o, context);
  });
  return command;
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// orthant bench epoch: times epochs of full-graph training, and after each epoch its local products alone: the same kernels on the same
// blocks and shapes, without communication, activations, loss and update. Prints one JSON line. The ratio shows what an epoch costs in
// addition to its products. For attention, the products include scores, their softmax and the adjoints of both, because these compute the
// sparse factor.

#include "cli/bench/bench.hpp"
#include "cli/bench/epoch_products.hpp"
#include "cli/bench/roofline.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/machine/device_memory.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/training/choose_grid.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/train_modes.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"
#include "models/gnn/network/memory_estimate.hpp"
#include "models/gnn/plan/network_step.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/machine/process_memory.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

struct EpochOptions {
  EpochOptions() { train.epochs = 10; }

  TrainOptions train;
  RooflineOptions roofline;
};

/// Runs the local products of an epoch in their order. `seconds_` holds one number per product and repeat.
template<class T>
class BareEpoch {
 public:
  /// `adjacency`: blocks of the model, per layer. Collective.
  BareEpoch(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
            models::NetworkSettings const& settings, models::NetworkPlan const& plan,
            models::OptimizerSettings const& optimizer, std::vector<models::Adjacency<T>> adjacency)
      : world_(grid.world()),
        features_(plan.features()),
        step_(step_of(grid, store, settings, plan, optimizer)),
        products_(pmm::products_of(step_)),
        operands_(products_),
        seconds_(products_.size()) {
    if (plan.layers.front().attention)
      edges_.emplace(grid, plan, std::get<models::OwnedAdjacency<T>>(adjacency.front()));
    // The plan lists products with all rows, whereas the model's block may only have the rows that are exchanged.
    if (auto const& first = plan.layers.front(); first.owners && !first.reads_edges())
      std::ranges::fill(adjacency, models::read_owned_adjacency<T>(grid, store, first.owners->roles));
    for (auto const& product : products_) {
      kernels_.push_back(kernel_of(grid, store, settings, plan, adjacency, product));
      if (!product.is_sparse || product.left == features_) continue;
      if (plan.layers[static_cast<std::size_t>(product.layer)].keeps_weights(product.n))
        kernels_.back().keep_weights(runtime::DefaultExec()); // as in training
    }
  }

  /// Runs all products once. All ranks begin together and do not wait for each other afterwards.
  void run(runtime::DefaultExec const& exec) {
    auto& clock = world_.instruments().clock;
    runtime::barrier(runtime::host, world_);
    for (std::size_t i = 0; i < products_.size(); ++i) {
      auto const begin = clock.now();
      if (is_of_edges(products_[i]))
        edges_->multiply(exec, products_[i]);
      else if (products_[i].is_sparse)
        operands_.multiply(exec, products_[i], kernels_[i]);
      else
        operands_.multiply(exec, products_[i]);
      runtime::compat::fence(exec, "orthant::cli::bare_epoch/the clock is read");
      seconds_[i].push_back(std::chrono::duration<double>(clock.now() - begin).count());
    }
  }

  /// Adds times, rates and a table of the products to the line. Collective.
  void describe(nlohmann::ordered_json& line, double epoch_seconds, Roofline const& roofline) const;

 private:
  static pmm::StepPlan step_of(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                               models::NetworkSettings const& settings, models::NetworkPlan const& plan,
                               models::OptimizerSettings const& optimizer) {
    pmm::StepPlan step(grid.shape(), grid.coordinates(), sizeof(T));
    plan_epoch(step, plan, settings,
               models::traits_of(store.facts(), grid.shape(), grid.coordinates(), plan, settings), optimizer);
    return step;
  }

  static pmm::LocalSpmm<T> kernel_of(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                     models::NetworkSettings const& settings, models::NetworkPlan const& plan,
                                     std::vector<models::Adjacency<T>> const& adjacency,
                                     LocalProduct const& product) {
    if (!product.is_sparse) return {};
    auto const is_forward = product.form == pmm::Form::product;
    if (product.left != plan.features()) {
      auto const& of_layer = adjacency.at(static_cast<std::size_t>(product.layer));
      if (auto const* const owned = std::get_if<models::OwnedAdjacency<T>>(&of_layer))
        return owned->edges || is_forward ? owned->forward : owned->backward;
      auto const& blocks = std::get<pmm::DistSparse<T>>(of_layer);
      return is_forward ? blocks.forward() : blocks.adjoint();
    }
    auto const matrix = models::read_sparse_features<T>(grid, store, product.left, settings.feature_norm);
    auto const& kernel = is_forward ? matrix.forward() : matrix.adjoint();
    auto block = kernel.block();
    if (settings.input_dropout() == 0 || block.csr.values.extent(0) > 0) return kernel;
    block.csr.values = runtime::Vector<T>("orthant::cli::values", block.csr.columns.extent(0)); // of dropout
    Kokkos::deep_copy(block.csr.values, T{1});
    return pmm::LocalSpmm<T>(block);
  }

  /// True for a product of attention over stored entries, which is run with scores and softmax.
  [[nodiscard]] bool is_of_edges(LocalProduct const& product) const {
    return edges_ && product.is_sparse && product.left != features_;
  }

  /// Work of a product, summed over ranks. Dense products gather nothing.
  struct Work {
    SpmmBytes bytes;
    double flops = 0;
  };
  [[nodiscard]] Work work_of(std::size_t i) const {
    auto const& p = products_[i];
    std::array sums{0.0, 0.0, static_cast<double>(p.flops())};
    auto const operand_bytes =
        runtime::encoding_of(p.operand_format).encoded_bytes(1, std::int64_t{sizeof(T)});
    if (!p.is_sparse) {
      sums[1] = static_cast<double>((p.m * p.k + p.k * p.n + p.m * p.n) * operand_bytes);
    } else {
      auto const bytes = bytes_of(kernels_[i].block(), p.n, operand_bytes);
      auto const nonzeros = kernels_[i].block().csr.num_nonzeros();
      auto const values = is_of_edges(p) ? static_cast<double>(edges_->bytes_of_numbers(p)) : 0.0;
      sums = {bytes.gathered, bytes.compulsory + values, 2.0 * static_cast<double>(nonzeros * p.n)};
    }
    runtime::all_reduce(runtime::host, world_, std::span(sums));
    return {{sums[0], sums[1]}, sums[2]};
  }
  /// Seconds per repeat of the products for which `counts` returns true, slowest rank.
  template<class Counts>
  [[nodiscard]] RepeatSeconds total(Counts const& counts) const {
    std::vector<double> sums(seconds_.empty() ? 0 : seconds_.front().size(), 0.0);
    for (std::size_t i = 0; i < products_.size(); ++i)
      for (std::size_t r = 0; r < sums.size() && counts(products_[i]); ++r)
        sums[r] += seconds_[i][r];
    return summarise(world_, std::move(sums));
  }

  runtime::Communicator const& world_;
  pmm::Placement features_;
  pmm::StepPlan step_;
  std::vector<LocalProduct> products_;
  ProductOperands<T> operands_;
  std::vector<pmm::LocalSpmm<T>> kernels_; // of the sparse products; empty for others
  std::optional<EdgeProducts<T>> edges_;   // aggregations of attention
  std::vector<std::vector<double>> seconds_;
};

template<class T>
void BareEpoch<T>::describe(nlohmann::ordered_json& line, double epoch_seconds,
                            Roofline const& roofline) const {
  auto const all = total([](LocalProduct const&) { return true; });
  line["bare_seconds"] = all.median;
  line["bare_min_seconds"] = all.minimum;
  auto const bare_spmm_seconds = total([](LocalProduct const& p) { return p.is_sparse; }).median;
  line["bare_spmm_seconds"] = bare_spmm_seconds;
  auto const bare_gemm_seconds = total([](LocalProduct const& p) { return !p.is_sparse; }).median;
  line["bare_gemm_seconds"] = bare_gemm_seconds;
  line["ratio"] = epoch_seconds / all.median;

  auto table = nlohmann::ordered_json::array();
  Work spmm;
  Work gemm;
  GatherRoof gather_roof(world_);
  auto gather_seconds = 0.0; // of sparse products that run at the limit of gathers
  auto least_seconds = 0.0;  // of sparse products by their compulsory bytes
  for (std::size_t i = 0; i < products_.size(); ++i) {
    auto const& p = products_[i];
    auto const work = work_of(i);
    auto const seconds = summarise(world_, seconds_[i]).median;
    auto const least = roofline.seconds(work.bytes.compulsory, work.flops);
    nlohmann::ordered_json row{{"layer", p.layer},
                               {"product", is_of_edges(p) ? edges_->formula_of(p) : p.formula},
                               {"kind", p.is_sparse ? "spmm" : "gemm"},
                               {"m", p.m},
                               {"n", p.n},
                               {"k", p.k},
                               {"seconds", seconds}};
    if (p.is_sparse) {
      row["gathered_bytes"] = static_cast<std::int64_t>(work.bytes.gathered);
      row["gathered_gb_per_s"] = giga_per_second(work.bytes.gathered, seconds);
      auto const operand_bytes =
          runtime::encoding_of(p.operand_format).encoded_bytes(p.n, std::int64_t{sizeof(T)});
      auto const roof = gather_roof.bytes_per_second(kernels_[i].block().csr.num_columns, operand_bytes);
      if (roof > 0) row["gather_gb_per_s"] = roof * 1e-9;
      if (roof > 0) gather_seconds += work.bytes.gathered / roof;
    }
    row["bytes"] = static_cast<std::int64_t>(work.bytes.compulsory);
    row["flops"] = static_cast<std::int64_t>(work.flops);
    row["gb_per_s"] = giga_per_second(work.bytes.compulsory, seconds);
    row["gflop_per_s"] = giga_per_second(work.flops, seconds);
    row["share"] = least / seconds;
    table.push_back(row);
    auto& sum = p.is_sparse ? spmm : gemm;
    sum.bytes.gathered += work.bytes.gathered;
    sum.bytes.compulsory += work.bytes.compulsory;
    sum.flops += work.flops;
    least_seconds += least;
  }
  line["spmm_gathered_bytes"] = static_cast<std::int64_t>(spmm.bytes.gathered);
  line["spmm_bytes"] = static_cast<std::int64_t>(spmm.bytes.compulsory);
  line["gemm_bytes"] = static_cast<std::int64_t>(gemm.bytes.compulsory);
  line["spmm_flops"] = static_cast<std::int64_t>(spmm.flops);
  line["gemm_flops"] = static_cast<std::int64_t>(gemm.flops);
  line["pass_bytes"] = runtime::all_reduced(world_, bytes_of_passes(step_));
  line["bytes"] = static_cast<std::int64_t>(spmm.bytes.compulsory + gemm.bytes.compulsory);
  line["gb_per_s"] = giga_per_second(spmm.bytes.compulsory + gemm.bytes.compulsory, epoch_seconds);
  line["gflop_per_s"] = giga_per_second(spmm.flops + gemm.flops, epoch_seconds);
  roofline.describe(line);
  line["gemm_arithmetic_share"] =
      giga_per_second(gemm.flops, bare_gemm_seconds) / roofline.arithmetic_gflop_per_s();
  if (gather_seconds > 0) line["spmm_gather_share"] = gather_seconds / bare_spmm_seconds;
  line["roofline_seconds"] = least_seconds;
  line["share"] = least_seconds / epoch_seconds;
  line["products"] = table;
}

nlohmann::ordered_json begin_epoch_line(Context const& context, pmm::ProcessGrid const& grid,
                                        graph::GraphStore const& store, TrainOptions const& o,
                                        models::Schedule schedule) {
  auto const& facts = store.facts();
  auto line = begin_line(context, "epoch");
  line["grid"] = grid.shape().to_string();
  line["graph"] = o.graph.empty() ? o.dataset : o.graph;
  line["vertices"] = facts.num_vertices;
  line["nonzeros"] = facts.num_operator_entries();
  line["features"] = facts.num_features;
  line["classes"] = facts.num_classes;
  line["layers"] = o.num_layers();
  line["hidden"] = o.hidden;
  line["dropout"] = o.dropout;
  line["dtype"] = o.compute_dtype;
  line["gemm_math"] = o.gemm_math;
  line["comm_dtype"] = o.comm_dtype;
  line["operand_dtype"] = o.operand_dtype;
  line["overlap"] = o.overlap;
  line["order"] = o.order;
  line["schedule"] = std::string(models::name_of(schedule));
  line["epochs"] = o.epochs;
  return line;
}

template<class T>
int bench(EpochOptions const& options, Context& context) {
  auto const& world = context.world();
  auto const memory_at_start = runtime::resident_bytes();
  DeviceMemory const device_memory;
  auto model_settings = model_of(options.train);
  pmm::set_gemm_threads(1); // as in training
  require_full_graph_grid(options.train.grid, world.size());
  auto const machine = machine_of(world, options.train.machine);
  context.log().info("reading the graph");
  auto store = open_graph_of(world, options.train);
  models::use_operator(store, model_settings);
  require_operator(context, store, model_settings, precision_of<T>);
  auto settings = training_of(options.train);
  auto const [choice, measured] = choose_by_full_graph_steps<T>(
      {context, store, model_settings, settings, hidden_axes_of(options.train), options.train.measure_top,
       options.train.force_memory ? 0 : memory_of_rank(context)},
      models::rank_grids({world.size(), options.train.grid,
                          std::string(models::open_schedules(model_settings, options.train.schedule))},
                         models::full_graph_seconds(store.facts(), model_settings, machine)));
  pmm::ProcessGrid const grid(world, choice.shape);
  model_settings.schedule = choice.schedule;
  model_settings.hidden_axes = hidden_axes(grid, options.train.overlap);
  auto const plan = models::plan_network(store, model_settings);
  auto const estimate =
      models::estimate_memory<T>(grid, store.facts(), plan, model_settings, settings.optimizer);
  if (!options.train.force_memory) require_memory(context, "bench epoch", estimate);
  auto record = context.run_record;
  record["grid"] = grid.shape().to_string();
  record["seed"] = options.train.seed;
  if (!measured.is_null()) record["measured"] = measured;
  if (context.metrics.is_on()) context.metrics.write("run", record);

  auto const num_nonzeros = store.facts().num_operator_entries();
  context.log().info("building the model and its operator of {} non-zeros", num_nonzeros);
  auto loss = models::make_vertex_loss<T>(grid, store, plan.logits());
  auto operands = models::make_full_graph_operands<T>(grid, store, plan, model_settings);
  auto const adjacency = operands.adjacency; // shares the memory of the blocks
  auto const parameters = std::make_shared<models::NetworkParameters<T>>(grid, plan, model_settings);
  if (model_settings.trains_features)
    parameters->add_features(operands.features.dense, operands.features.ids, model_settings);
  models::GraphNetwork<T> model(grid, model_settings, parameters);
  model.rebind(std::move(operands));
  settings.eval_every = 0;
  settings.optimizer.schedule = {}; // takes no time
  settings.patience = 0;
  // The peak memory of training is known after the first step on the host, and after the second step, which is recorded, on a device: later
  // steps allocate nothing.
  settings.num_epochs = pmm::runs_on_host ? 1 : 2;
  std::int64_t device_taken = 0;
  context.log().info("training {}, not timed",
                     settings.num_epochs == 1 ? "an epoch" : fmt::format("{} epochs", settings.num_epochs));
  models::Trainer<T>(grid, model, loss, settings).run([&](runtime::EpochRecord const&) {
    device_taken = device_memory.taken_bytes();
  });
  auto const peak = runtime::peak_resident_bytes();
  auto const device_peak = device_memory.peak_array_bytes();

  context.log().info("measuring the limits of this machine");
  auto const roofline = measure_roofline<T>(world, options.roofline);
  context.log().info("preparing the epoch's products by themselves");
  BareEpoch<T> bare(grid, store, model_settings, plan, settings.optimizer, adjacency);
  runtime::DefaultExec const exec;
  settings.num_epochs = options.train.epochs;
  EpochTimes times;
  UnitLines lines(context, "timing epoch", settings.num_epochs);
  lines.begin(1);
  models::Trainer<T>(grid, model, loss, settings).run([&](runtime::EpochRecord const& epoch) {
    times.add(epoch);
    bare.run(exec);
    if (epoch.epoch < settings.num_epochs) lines.begin(epoch.epoch + 1);
  });

  auto line = begin_epoch_line(context, grid, store, options.train, model_settings.schedule);
  auto const seconds = times.describe(line, world);
  line["peak_memory_bytes"] = runtime::all_reduced(world, peak, runtime::Reduction::sum);
  line["memory_per_rank_bytes"] =
      runtime::all_reduced(world, peak - memory_at_start, runtime::Reduction::max);
  if constexpr (!pmm::runs_on_host) {
    line["device_memory_bytes"] = runtime::all_reduced(world, device_peak, runtime::Reduction::sum);
    line["device_memory_taken_bytes"] = runtime::all_reduced(world, device_taken, runtime::Reduction::max);
    line["device_memory_predicted_bytes"] =
        runtime::all_reduced(world, estimate.arrays, runtime::Reduction::sum);
  }
  bare.describe(line, seconds, roofline);
  print_line(context, line);
  return runtime::exit_done;
}

int run(EpochOptions const& options, Context& context) {
  choose_gemm_math(options.train.gemm_math, options.train.compute_dtype);
  choose_gemm_libraries(context, options.train.gemm_table);
  return options.train.compute_dtype == "fp32" ? bench<float>(options, context)
                                               : bench<double>(options, context);
}

} // namespace

std::unique_ptr<Command> make_bench_epoch() {
  auto command = std::make_unique<Command>("bench epoch",
                                           "Time epochs of full-graph training, and their products alone");
  auto const options = std::make_shared<EpochOptions>();
  add_epoch_options(*command, options->train);
  add_options(*command, options->roofline);
  command->set_run([options](Context& context) {
    complete_epoch_options(context, options->train);
    return run(*options, context);
  });
  return command;
}

} // namespace orthant::cli

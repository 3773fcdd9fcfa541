// SPDX-License-Identifier: Apache-2.0
#include "cli/train_full.hpp"

#include "graph/dataset.hpp"
#include "graph/partition.hpp"
#include "models/full_graph.hpp"
#include "models/memory_estimate.hpp"
#include "models/weights_file.hpp"
#include "pmm/local_gemm.hpp"
#include "runtime/output_file.hpp"
#include "runtime/process_memory.hpp"
#include "runtime/progress.hpp"

#include <cstdio>

namespace orthant::cli {
namespace {

using models::FeatureNorm;

/// Results go to stdout of rank 0.
template<class... Args>
void say(Context const& context, fmt::format_string<Args...> format, Args&&... args) {
  if (!context.world().is_root()) return;
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
  std::fflush(stdout);
}

std::string bytes_text(std::int64_t bytes) {
  auto const value = static_cast<double>(bytes);
  if (bytes < std::int64_t{10} << 10) return fmt::format("{} B", bytes);
  if (bytes < std::int64_t{10} << 20) return fmt::format("{:.1f} KiB", value / 0x1p10);
  if (bytes < std::int64_t{10} << 30) return fmt::format("{:.1f} MiB", value / 0x1p20);
  return fmt::format("{:.1f} GiB", value / 0x1p30);
}

runtime::Wire wire_of(std::string const& word) {
  return word == "bf16" ? runtime::Wire::bf16 : word == "fp16" ? runtime::Wire::fp16 : runtime::Wire::native;
}

models::GcnSettings model_of(TrainOptions const& o) {
  models::GcnSettings settings;
  settings.set_layers(o.layers, o.hidden);
  settings.dropout = o.dropout;
  settings.has_bias = o.bias;
  settings.trains_features = o.trainable_features;
  settings.feature_norm = models::parse_feature_norm(o.feature_norm);
  settings.order = models::parse_product_order(o.order);
  settings.overlaps = o.overlap == "on";
  settings.wire = wire_of(o.comm_dtype);
  settings.seed = static_cast<std::uint64_t>(o.seed);
  return settings;
}

models::TrainSettings training_of(TrainOptions const& o) {
  models::TrainSettings settings;
  settings.optimizer.kind = models::parse_optimizer(o.optimizer);
  settings.optimizer.learning_rate = o.lr;
  settings.weight_decay = o.weight_decay;
  settings.weight_decay_first_layer = o.weight_decay_first_layer;
  settings.clip_norm = o.clip_norm;
  settings.num_epochs = o.epochs;
  settings.eval_every = o.eval_every;
  return settings;
}

/// Flags of parts of the model that full-graph GCN training does not have.
void refuse_unbuilt_parts(TrainOptions const& o) {
  if (o.norm != "none") refuse_unbuilt("--norm " + o.norm);
  if (o.residual) refuse_unbuilt("--residual");
  if (o.input_projection) refuse_unbuilt("--input-projection");
  if (o.head) refuse_unbuilt("--head");
}

void describe_graph(Context const& context, graph::GraphStore const& store) {
  auto const& facts = store.facts();
  say(context,
      "graph     {}: {} vertices, {} non-zeros, {} {}features, {} classes; train/valid/test {}/{}/{}\n",
      facts.name.empty() ? store.name() : facts.name, facts.num_vertices, facts.num_entries,
      facts.num_features, facts.feature_kind == graph::FeatureKind::sparse ? "sparse " : "",
      facts.num_classes, facts.split_sizes[0], facts.split_sizes[1], facts.split_sizes[2]);
}

void report(Context const& context, models::TrainResult const& result) {
  auto const line = [&](std::string const& name, models::Scores const& scores) {
    say(context, "{:<22}{:>10.4f}{:>10.4f}{:>10.4f}\n", name, scores[0].accuracy(), scores[1].accuracy(),
        scores[2].accuracy());
  };
  if (result.last) {
    say(context, "\n{:<22}{:>10}{:>10}{:>10}\n", "accuracy", "train", "valid", "test");
    line("last epoch", *result.last);
    line(fmt::format("best (epoch {})", result.best.epoch), result.best.scores);
  }
  say(context, "\nseconds an epoch      {:.6f} (median)\n", result.median_epoch_seconds);
  say(context, "bytes an epoch        x {}, y {}, z {}\n", bytes_text(result.epoch_bytes[0]),
      bytes_text(result.epoch_bytes[1]), bytes_text(result.epoch_bytes[2]));
}

nlohmann::ordered_json done_record(models::TrainResult const& result, std::int64_t memory) {
  nlohmann::ordered_json record{{"loss", result.last_loss},
                                {"median_epoch_seconds", result.median_epoch_seconds},
                                {"peak_memory_bytes", memory}};
  auto const add = [&](char const* name, models::Scores const& scores) {
    record[name] = {{"train_acc", scores[0].accuracy()},
                    {"val_acc", scores[1].accuracy()},
                    {"test_acc", scores[2].accuracy()}};
  };
  if (result.last) {
    add("last", *result.last);
    record["best_epoch"] = result.best.epoch;
    add("best", result.best.scores);
  }
  return record;
}

template<class T>
int train(TrainOptions const& options, Context& context) {
  auto const& world = context.world();
  auto const memory_at_start = runtime::resident_bytes();
  auto const model_settings = model_of(options);
  auto const settings = training_of(options);
  pmm::set_gemm_threads(1);
  pmm::ProcessGrid const grid(world, full_graph_shape(options.grid, world.size()));
  if (!options.save_weights.empty()) runtime::require_writable(world, options.save_weights, "weights");

  auto const store = open_graph_of(world, options.graph, options.dataset, options.seed);
  auto const plan = models::plan_gcn(store, model_settings);
  auto record = context.run_record;
  record["grid"] = grid.shape().to_string();
  record["seed"] = options.seed;
  context.metrics.write("run", record);

  describe_graph(context, store);
  auto const estimate =
      models::estimate_memory<T>(grid, store.facts(), plan, model_settings, settings.optimizer).peak();
  say(context, "grid      {} (data x X x Y x Z) on {} rank{}\n", grid.shape().to_string(), world.size(),
      world.size() == 1 ? "" : "s");
  say(context, "memory    {} a rank predicted\n",
      bytes_text(runtime::all_reduced(world, estimate, runtime::Reduction::max)));

  auto loss = models::make_vertex_loss<T>(grid, store, plan.logits());
  models::Gcn<T> model(grid, store, model_settings);
  if (!options.init_from.empty()) models::load_weights(grid, options.init_from, model.parameters());
  say(context, "model     {}, {} layers, {} parameters, {}\n\n", options.model, options.layers,
      model.num_parameters(), options.compute_dtype);

  models::FullGraphTrainer<T> trainer(grid, model, loss, settings);
  runtime::Progress progress(options.epochs, "epoch", runtime::progress_style(world.is_root()));
  auto const result = trainer.run([&](runtime::EpochRecord const& epoch) {
    context.metrics.write(epoch);
    if (epoch.val_acc && epoch.test_acc)
      progress.update(epoch.epoch, {{"loss", epoch.loss},
                                    {"valid", *epoch.val_acc},
                                    {"test", *epoch.test_acc},
                                    {"seconds", epoch.seconds}});
    else
      progress.update(epoch.epoch, {{"loss", epoch.loss}, {"seconds", epoch.seconds}});
  });
  progress.finish();

  if (!options.save_weights.empty())
    models::save_weights(grid, options.save_weights, model.parameters(), model_settings.feature_norm);
  auto const taken =
      runtime::all_reduced(world, runtime::peak_resident_bytes() - memory_at_start, runtime::Reduction::max);
  report(context, result);
  say(context, "memory a rank         {} (predicted {})\n", bytes_text(taken), bytes_text(estimate));
  context.metrics.write("done", done_record(result, taken));
  return runtime::exit_done;
}

} // namespace

graph::GraphStore open_graph_of(runtime::Communicator const& world, std::string const& path,
                                std::string const& dataset, std::int64_t seed) {
  if (path.empty() == dataset.empty())
    runtime::throw_user("give one of --graph graph.h5 and --dataset karate|sbm|rmat|grid2d|ring[:k=v,..]");
  if (!path.empty()) return graph::GraphStore::open(world, path);
  graph::PartitionOptions how;
  how.seed = static_cast<std::uint64_t>(seed);
  return graph::partition_in_memory(
      world,
      [&](runtime::Communicator const& self) {
        return graph::open_dataset(self, dataset, static_cast<std::uint64_t>(seed));
      },
      how);
}

pmm::GridShape full_graph_shape(std::string const& grid, int num_ranks) {
  auto const shape = pmm::parse_grid(grid, num_ranks);
  if (shape.data != 1)
    runtime::throw_user(
        "--grid {}: full-graph work has no data axis; the first factor must be 1, such as --grid {}",
        shape.to_string(), pmm::near_cubic(num_ranks).to_string());
  return shape;
}

int train_full(TrainOptions const& options, Context& context) {
  refuse_unbuilt_parts(options);
  if (options.compute_dtype == "fp32") return train<float>(options, context);
  if (options.comm_dtype != "fp32")
    runtime::throw_user("--comm-dtype {} carries fp32; leave it out with --compute-dtype fp64",
                        options.comm_dtype);
  return train<double>(options, context);
}

} // namespace orthant::cli

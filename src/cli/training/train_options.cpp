// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_options.hpp"

#include "cli/options/collectives_option.hpp"
#include "cli/options/gemm_options.hpp"
#include "cli/training/checkpoints.hpp"
#include "cli/training/start_checks.hpp"
#include "cli/training/stragglers.hpp"
#include "graph/graph_source.hpp"
#include "runtime/job/time_limit.hpp"

#include <string_view>

namespace orthant::cli {
namespace {

/// Upper bound of --seeds; larger values are taken for typing errors.
constexpr std::int64_t most_seeds = 1'000'000;

void add_data(Command& command, TrainOptions& o) {
  command.input("--graph", o.graph, "Store to train on (orthant partition writes it)");
  command.option("--dataset", o.dataset,
                 "Built-in data set, in place of --graph: karate, or sbm, rmat, grid2d, ring[:k=v,..]");
}

void add_grid(Command& command, TrainOptions& o) {
  add_grid_options(command, o, "--grid auto or --schedule auto");
}

void add_model(Command& command, TrainOptions& o) {
  command.begin_group("Model");
  add_model_options(command, o);
  command.option("--layers", o.layers, "Number of layers; default: 3, and 1 with --model sgc",
                 whole_number(1, most_layers));
  command.option("--hidden", o.hidden, "Width of the hidden layers", whole_number(1, most_hidden));
  command.option("--embedding", o.embedding, "Width of the outputs with --task links",
                 whole_number(1, most_hidden));
  command.option("--decoder", o.decoder,
                 "Score of a pair of outputs with --task links: dot (their dot product) or mlp (a perceptron "
                 "with one hidden layer on their elementwise product)",
                 one_of({"dot", "mlp"}));
  command.option("--decoder-hidden", o.decoder_hidden,
                 "Width of the hidden layer of --decoder mlp; default: --embedding",
                 whole_number(1, most_hidden));
  command.option("--dropout", o.dropout, "Probability that an activation is dropped", in_range(0, 0.999));
  command.option("--attention-dropout", o.attention_dropout,
                 "Probability that an attention coefficient is dropped", in_range(0, 0.999));
  command.option(
      "--edge-dropout", o.edge_dropout,
      "Probability that an edge of A^ is dropped in a step; the other edges are scaled up (not with "
      "attention and --aggregator max), and self loops stay",
      in_range(0, 0.999));
  command.flag("--bias,!--no-bias", o.bias, "Add a bias in each layer (default)");
  command.option("--norm", o.norm, "Normalization in each hidden layer: layer, batch, rms or none",
                 one_of({"layer", "batch", "rms", "none"}));
  command.flag_or_word("--residual", o.residual,
                       "Add the input of each hidden layer to its output: identity (if both have the same "
                       "width; also without a word), project (by a trained weight if not), or none",
                       {"none", "identity", "project"});
  command.option(
      "--jump", o.jump,
      "Jumping knowledge: the head reads the outputs of all hidden layers, side by side (cat), or their "
      "elementwise maximum or mean (max, mean), or only the last one (none)",
      one_of({"none", "cat", "max", "mean"}));
  command.flag("--input-projection", o.input_projection,
               "Add a linear layer before the first graph layer; features then have no dropout");
  command.flag("--head", o.head,
               "Add a linear layer after the last graph layer, which then becomes a hidden layer");
  command.option("--feature-norm", o.feature_norm, "Scale each vertex's features to sum 1: row or none",
                 one_of({"row", "none"}));
  add_operator_options(command, o.normalize, o.self_loops);
  command.flag("--trainable-features", o.trainable_features, "Also train the input features");
}

void add_optimiser(Command& command, TrainOptions& o) {
  command.begin_group("Optimizer");
  add_optimizer_option(command, o);
  command.option("--lr", o.lr, "Learning rate", above(0, largest_rate));
  command.option("--weight-decay", o.weight_decay, "Weight decay; biases and scales of norms have none",
                 in_range(0));
  command.option("--weight-decay-first-layer", o.weight_decay_first_layer,
                 "Weight decay of layer 0; default: --weight-decay", in_range(0));
  command.option("--weight-decay-last-layer", o.weight_decay_last_layer,
                 "Weight decay of the last layer, of the head, or of --decoder mlp; default: --weight-decay",
                 in_range(0));
  command.option("--clip-norm", o.clip_norm, "Scale gradients down if their global norm is larger than this",
                 above(0));
  command.option("--epochs", o.epochs, "Number of epochs", whole_number(0, most_epochs));
  command.option("--seed", o.seed, "Seed of all randomness", whole_number(0));
}

void add_mini_batch(Command& command, TrainOptions& o) {
  command.begin_group("Mini-batch");
  command.number_or_word(
      "--batch", o.batch,
      "Vertices per batch of each replica; auto: half of the graph's, or a 16th with --sampler clusters",
      {"auto"}, whole_number(1, graph::most_vertices));
  command.option(
      "--sampler", o.sampler,
      "How the vertices of a batch are drawn: uniform; degree (probability by degree, with corrected edges "
      "and losses); clusters (whole clusters of partition --clusters, which keep most of their edges)",
      one_of({"uniform", "degree", "clusters"}));
  command.option(
      "--batch-edges", o.batch_edges,
      "Weights of the edges of a batch: rescale (unbiased over batches), renormalize (degrees within the "
      "batch, as in PyG; biased, but less noisy) or auto (renormalize, but rescale with --sampler degree, "
      "--batch-train-fraction, negative weights or without normalization)",
      one_of({"auto", "rescale", "renormalize"}));
  command.option("--batch-source", o.batch_source,
                 "Where batches are made: device (by kernels, beside the step), host (by a thread of the "
                 "processor) or auto (device if there is one and it can make those of the model)",
                 one_of({"auto", "device", "host"}));
  command.option("--accumulate", o.accumulate,
                 "Number of batches per step and replica, whose gradients are accumulated", whole_number(1));
  command.option("--batch-train-fraction", o.batch_train_fraction,
                 "Share of training vertices in each batch; 0: not fixed", in_range(0, 1));
  command.option("--finish-full", o.finish_full, "Number of last epochs that train on the full graph",
                 whole_number(0, most_epochs));
}

void add_computing(Command& command, TrainOptions& o) {
  add_precision_option(command, o.precision, Activations::of_16_bits);
  command.option("--compute-dtype", o.compute_dtype, "Type of numbers in the computation: fp32 or fp64",
                 one_of({"fp32", "fp64"}));
  add_gemm_math_option(command, o.gemm_math);
  add_gemm_table_option(command, o.gemm_table);
  add_message_formats_option(command, o.comm_dtype);
  command.option("--operand-dtype", o.operand_dtype,
                 "Format of activations, their gradients and the operands of products: fp32, bf16 or fp16; "
                 "sums, weights and logits stay in fp32",
                 one_of({"fp32", "bf16", "fp16"}));
  command.option(
      "--overlap", o.overlap,
      "Overlap communication with computation, and prefetch batches: on, off or auto (on; with --schedule "
      "rows only "
      "along axes that connect nodes; batches ahead only if each rank has a spare core or a device)",
      one_of({"auto", "on", "off"}));
  command.option("--order", o.order, "Order of a layer's products: auto, aggregate or transform first",
                 one_of({"auto", "aggregate", "transform"}));
  command.option("--schedule", o.schedule,
                 "Communication schedule: pmm3d (matrix products over three axes), rows (one owner per "
                 "vertex) or auto (the cheaper one; evaluate uses pmm3d if the model has both)",
                 one_of({"auto", "pmm3d", "rows"}));
  command.option("--gather", o.gather,
                 "Rows that ranks exchange with --schedule rows: all (of a block), needed (only those with a "
                 "neighbor in the block) or auto",
                 one_of({"auto", "all", "needed"}));
  command.option("--device-graph", o.device_graph,
                 "Replay full-graph epochs without dropout as one recorded CUDA or HIP graph: on or off; no "
                 "effect on hosts",
                 one_of({"on", "off"}));
  add_stragglers_option(command, o.stragglers, "epoch");
  add_force_memory_option(command, o.force_memory);
}

} // namespace

void add_options(Command& command, TrainOptions& o) {
  add_data(command, o);
  command.option("--mode", o.mode,
                 "Train on the full graph in each step (full), or on mini-batches (minibatch)",
                 one_of({"full", "minibatch"}));
  command.option("--task", o.task,
                 "Task: nodes (predict classes or targets of vertices, whichever the store has), "
                 "classification or regression (like nodes, but refuse a store with the other), or links "
                 "(predict the edges that partition --edge-split held out, with --decoder)",
                 one_of({"nodes", "classification", "regression", "links"}));
  command.number_or_word("--split", o.split,
                         "Split of a store with several, from 0; all: train on each, and print mean and "
                         "standard deviation of the accuracies (regression: R2, links: ROC-AUC)",
                         {"all"}, whole_number(0, graph::most_splits - 1));
  add_grid(command, o);
  add_model(command, o);
  add_optimiser(command, o);
  add_rate_schedule_options(command, o, " (full-graph training has one step per epoch)");
  add_betas_option(command, o);
  add_mini_batch(command, o);
  command.begin_group("Running");
  command.option("--eval-every", o.eval_every, "Epochs between evaluations; 0: never",
                 whole_number(0, most_epochs));
  command.flag("--roc-auc", o.roc_auc,
               "Also compute the area under the ROC curve in evaluations, for 2 classes or several labels "
               "per vertex; it sends and sorts one score per vertex and class");
  command.option(
      "--monitor", o.monitor,
      "Validation score that selects the best epoch and that --patience watches: accuracy (links: "
      "ROC-AUC, regression: R2), loss, both (the best epoch has the best values of both so far; an "
      "improvement of either counts for --patience), or for regression r2 or mae",
      one_of({"accuracy", "loss", "both", "r2", "mae"}));
  command.option("--patience", o.patience,
                 "Stop after N evaluations without improvement of --monitor; 0: never",
                 whole_number(0, most_epochs));
  command.option("--seeds", o.seeds,
                 "Train N times, with the seeds --seed, --seed + 1, .., and print mean and standard "
                 "deviation of the accuracies",
                 whole_number(1, most_seeds));
  command.option("--log-every", o.log_every,
                 "Epochs between lines of progress if the output is a file or pipe; evaluations and the last "
                 "epoch always have a line",
                 whole_number(1, most_epochs));
  command.option(
      "--class-weights", o.class_weights,
      "Weights of training vertices in the loss: none, or balanced (inverse frequency of their class)",
      one_of({"none", "balanced"}));
  command.option("--label-smoothing", o.label_smoothing,
                 "Label smoothing E in training: targets are 1 - E for the class of the vertex, plus E / C "
                 "for each of the C classes (E / 2 with a binary or focal loss); evaluations do not smooth",
                 in_range(0, 0.999));
  command.option(
      "--loss", o.loss,
      "Loss of training vertices: cross-entropy (binary if vertices have several classes), binary "
      "(cross-entropy of each class on its own), or focal (binary, with a lower weight for terms "
      "that are predicted well); with regression mse (squared error), mae (absolute error) or huber; "
      "auto: cross-entropy, or mse",
      one_of({"auto", "cross-entropy", "binary", "focal", "mse", "mae", "huber"}));
  command.option("--focal-gamma", o.focal_gamma, "Exponent G of the factor (1 - p)^G of --loss focal",
                 in_range(0, 10));
  add_computing(command, o);
  command.option("--prune", o.prune,
                 "Skip vertices that no training vertex depends on, in full-graph steps with --schedule "
                 "rows: on, off or auto",
                 one_of({"on", "off", "auto"}));
  add_weight_options(command, o, "epoch", "best epoch (--monitor)");
  add_checkpoint_options(command, o, "epoch");
}

void require_readable_times(CheckpointOptions const& options, std::string_view unit) {
  std::ignore = parse_interval(options.checkpoint_every, unit);
  if (!options.max_walltime.empty())
    std::ignore = runtime::parse_duration("--max-walltime", options.max_walltime);
}

} // namespace orthant::cli

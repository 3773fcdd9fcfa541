// SPDX-License-Identifier: Apache-2.0
//
// orthant info: describes this program and this job, or the content of a file.

#include "cli/commands/build_info.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/lm/lm_files.hpp"
#include "cli/machine/blas_core.hpp"
#include "cli/training/scores_text.hpp"
#include "graph/partition/input_summary.hpp"
#include "graph/store/store_reader.hpp"
#include "models/gnn/files/network_weights.hpp"
#include "models/training/checkpoint/checkpoint_file.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/machine/binding.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/ranges.h>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::cli {
namespace {

void print(Context const& context, std::string const& text) {
  if (!context.world().is_root()) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

struct InfoOptions {
  std::string file;
  bool verify = false;
};

void describe_job(Context& context) {
  auto& environment = context.environment;
  auto const bindings = runtime::gather_bindings(context.world(), environment.binding());
  if (!context.world().is_root()) return;
  std::set<std::string> hosts;
  for (auto const& binding : bindings)
    hosts.insert(binding.host.data());
  auto const text = fmt::format(
      "{}"
      "GPU-aware   {}\n"
      "threads     {}{}\n"
      "ranks       {} on {} host{}\n\n{}",
      describe_build(), runtime::mpi_is_device_aware() ? "yes" : "no (device buffers are staged)",
      runtime::name_of_thread_level(environment.thread_level()),
      environment.watchdog().talks_to_others() ? "" : " (a hang is reported rank by rank)",
      context.world().size(), hosts.size(), hosts.size() == 1 ? "" : "s", runtime::format_bindings(bindings));
  print(context, text);
}

/// Types of vertices with their numbers of vertices and of features.
std::string describe_types(graph::StoreFacts const& facts) {
  auto text = fmt::format("types       {}\n", facts.num_types());
  std::size_t width = 0;
  for (auto const& type : facts.vertex_types)
    width = std::max(width, type.name.size());
  for (auto const& type : facts.vertex_types)
    text += fmt::format("         {:<{}}  {} vertices, {}\n", type.name, width, type.count,
                        type.num_features > 0 ? fmt::format("{} features", type.num_features)
                                              : std::string("a trained table"));
  return text;
}

/// Relations with their numbers of entries; only the first ones if there are many.
std::string describe_relations(graph::StoreFacts const& facts) {
  auto const shown = std::min(facts.num_relations(), std::int64_t{100});
  std::vector<std::string> names(facts.relations.begin(), facts.relations.begin() + shown);
  std::size_t width = 0;
  for (auto& name : names) {
    constexpr std::size_t longest = 60;
    if (name.size() > longest) name = name.substr(0, longest - 2) + "..";
    width = std::max(width, name.size());
  }
  auto text = fmt::format("relations   {}\n", facts.num_relations());
  for (std::int64_t r = 0; r < shown; ++r)
    text += fmt::format("  {:>5}  {:<{}}  {} entries\n", r, names[static_cast<std::size_t>(r)], width,
                        facts.relation_entries[static_cast<std::size_t>(r)]);
  if (shown < facts.num_relations()) text += fmt::format("  and {} more\n", facts.num_relations() - shown);
  return text;
}

std::string describe_splits(graph::StoreFacts const& facts) {
  auto text = fmt::format("splits      {}; the line above is split 0\n", facts.num_splits());
  auto const& sizes = facts.sizes_of_splits;
  constexpr std::size_t most_shown = 20;
  for (std::size_t k = 1; k < sizes.size(); ++k) {
    if (k > most_shown) return text + fmt::format("  and {} more\n", sizes.size() - k);
    text += fmt::format("  {:>5}  train {}, valid {}, test {}\n", k, sizes[k][0], sizes[k][1], sizes[k][2]);
  }
  return text;
}

std::string describe(graph::StoreFacts const& facts) {
  std::string text;
  auto const out = std::back_inserter(text);
  fmt::format_to(out, "graph store {}, from {}\nvertices    {}\n", facts.name, facts.format,
                 facts.num_vertices);
  fmt::format_to(out, "entries     {} of A, {} self loops among them; {}{}\n", facts.num_entries,
                 facts.num_self_loops, facts.is_symmetric ? "symmetric" : "directed",
                 facts.is_weighted ? ", weighted" : "");
  if (auto const f = facts.num_edge_features) fmt::format_to(out, "            {} features each\n", f);
  if (facts.num_types() > 0) text += describe_types(facts);
  if (facts.num_relations() > 0) text += describe_relations(facts);
  if (facts.has_vertex_names()) text += "names       of all vertices\n";
  fmt::format_to(out, "degree      mean {:.2f}, largest {}\n",
                 static_cast<double>(facts.num_entries - facts.num_self_loops) /
                     static_cast<double>(facts.num_vertices),
                 facts.max_degree);
  fmt::format_to(out, "permutation {}, seed {}\nnormalised  {}\n", graph::name_of(facts.permutation),
                 facts.seed, graph::name_of(facts.normalization));
  if (facts.num_clusters > 0) fmt::format_to(out, "clusters    {}\n", facts.num_clusters);
  fmt::format_to(out, "features    {}", graph::name_of(facts.feature_kind));
  if (facts.feature_kind != graph::FeatureKind::none) fmt::format_to(out, ", {}", facts.num_features);
  if (facts.feature_kind == graph::FeatureKind::sparse)
    fmt::format_to(out, ", {} entries{}", facts.num_feature_entries,
                   facts.features_have_values ? "" : ", all 1");
  fmt::format_to(out, "\nlabels      {}", graph::name_of(facts.label_kind));
  if (facts.label_kind != graph::LabelKind::none)
    fmt::format_to(out, ", {} {}, {} vertices labelled", facts.num_classes,
                   facts.label_kind == graph::LabelKind::real ? "targets of regression" : "classes",
                   facts.num_labelled);
  if (facts.has_class_names()) text += "\nclasses     " + graph::some_of(facts.class_names);
  if (facts.has_split)
    fmt::format_to(out, "\nsplit       {}: train {}, valid {}, test {}\n", facts.split_name,
                   facts.split_sizes[0], facts.split_sizes[1], facts.split_sizes[2]);
  else
    text += "\nsplit       none\n";
  if (facts.num_splits() > 1) text += describe_splits(facts);
  if (facts.has_links())
    fmt::format_to(out, "links       held out: valid {}, test {}, and as many negatives of each\n",
                   facts.num_held_out[1], facts.num_held_out[2]);
  return text;
}

void describe_store(Context& context, InfoOptions const& options) {
  auto const store = graph::GraphStore::open(context.world(), options.file);
  if (options.verify) store.verify(context.world());
  print(context,
        fmt::format("file        {}, {}\n{}{}", options.file,
                    graph::bytes_text(static_cast<std::int64_t>(std::filesystem::file_size(options.file))),
                    describe(store.facts()), options.verify ? "checksums   all right\n" : ""));
}

std::string widths_text(models::WeightsFacts const& facts) {
  auto widths = facts.widths;
  if (facts.projected_features) widths.insert(widths.begin(), *facts.projected_features);
  if (facts.head_classes) widths.push_back(*facts.head_classes);
  return fmt::format("{}{}{}", fmt::join(widths, "-"),
                     facts.projected_features ? ", of which the first is a projection" : "",
                     facts.head_classes ? ", of which the last is a head" : "");
}

/// Names of the libraries in {"oneDNN 2.6.3":[..],"OpenBLAS":[..]}; any other text unchanged.
std::string names_of_libraries(std::string const& text) {
  auto const json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return text;
  std::vector<std::string> names;
  for (auto const& [name, cases] : json.items())
    names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Arrays of a model, one per line.
std::string parameters_text(runtime::Hdf5File const& file) {
  std::int64_t num_numbers = 0;
  std::string arrays;
  for (auto const& name : file.array_names()) {
    constexpr std::string_view group = "/parameters/";
    if (!name.starts_with(group)) continue;
    auto const extents = file.extents(name);
    num_numbers += std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    arrays += fmt::format("  {:<24} {}{}\n", name.substr(group.size()), fmt::join(extents, " x "),
                          file.type(name) == runtime::Hdf5Type::float64 ? ", float64" : ", float32");
  }
  return fmt::format("parameters  {} numbers\n{}", num_numbers, arrays);
}

/// Advice on the weights that a training on another graph must skip.
std::string advice_to_skip(models::WeightsFacts const& facts) {
  std::string text;
  if (facts.has_features) text += "; on another graph with --init-skip features";
  if (auto const pattern = models::weights_of_classes(facts))
    text += fmt::format("; with other classes --init-skip '{}'", *pattern);
  return text;
}

/// The model, and its arrays one per line. Reads the file on rank 0.
std::string describe_weights(std::string const& path, models::WeightsFacts const& facts) {
  auto const file = runtime::Hdf5File::open(path);
  std::string text;
  auto const out = std::back_inserter(text);
  fmt::format_to(out, "model       {}, {} layers {}\n",
                 file.contains_attribute("/", "model") ? file.read_text("/", "model") : "gcn (not recorded)",
                 facts.widths.size() - 1, widths_text(facts));
  auto const [count, of] = facts.num_bases > 0    ? std::pair(facts.num_bases, "bases")
                           : facts.num_blocks > 0 ? std::pair(facts.num_blocks, "blocks")
                                                  : std::pair(facts.num_edge_features, "features of edges");
  fmt::format_to(
      out, "parts       bias {}, norm {}, residual {}, jump {}, feature norm {}{}{}\n",
      facts.has_bias ? "yes" : "no", models::name_of(facts.norm),
      models::name_of_residuals(facts.has_residuals, facts.projects_residuals), models::name_of(facts.jump),
      !facts.feature_norm                               ? "not recorded"
      : *facts.feature_norm == models::FeatureNorm::row ? "row"
                                                        : "none",
      facts.has_features ? ", trained features" : "", count > 0 ? fmt::format(", {} {}", count, of) : "");
  if (file.contains_attribute("/", "dense_libraries"))
    fmt::format_to(out, "multiplied  by {}\n", names_of_libraries(file.read_text("/", "dense_libraries")));
  if (!facts.label_kind.empty())
    fmt::format_to(out, "labels      {}{}\n", facts.label_kind,
                   facts.class_names.empty() ? std::string() : ": " + graph::some_of(facts.class_names));
  text += parameters_text(file);
  text += fmt::format("go on with  train --init-from FILE{}\n", advice_to_skip(facts));
  return text;
}

/// Position of a training in epochs, and its best epoch.
std::string describe_epochs(models::TrainProgress const& progress) {
  auto text = fmt::format("next        epoch {}, step {}; the last whole epoch had the loss {:.6f}\n",
                          progress.epoch, progress.step + 1, progress.last_loss);
  auto const& [train, valid, test] = progress.best.scores;
  if (progress.best.epoch > 0)
    text += fmt::format("best        epoch {}, {} valid {:.4f}, test {:.4f}\n", progress.best.epoch,
                        name_of(merit_of(progress.best.scores)), valid.merit(), test.merit());
  return text;
}

/// Position of a training of a language model in steps, and its best step.
std::string describe_steps(models::TrainProgress const& progress) {
  auto text = fmt::format("next        step {}; the last one had the loss {:.6f}\n", progress.epoch,
                          progress.last_loss);
  if (progress.best.epoch > 0)
    text += fmt::format("best        step {}, validation loss {:.6f}\n", progress.best.epoch,
                        progress.best.scores[static_cast<std::size_t>(graph::Split::valid)].loss);
  return text;
}

/// Description of a checkpoint. `where`: text about its position.
std::string describe_checkpoint(models::CheckpointFacts const& facts, std::string const& where) {
  std::string text;
  auto const out = std::back_inserter(text);
  fmt::format_to(out, "checkpoint  of the training {}, {} steps of the optimizer\n", facts.training,
                 facts.num_steps);
  text += where + "which must stay the same:\n";
  for (auto const& part : facts.identity)
    fmt::format_to(out, "  {:<29}{}\n", part.name, part.value);
  return text;
}

/// Kind of the file, found by its arrays on rank 0.
enum class Content : std::int64_t { store, weights, checkpoint, tokens, language_model, language_checkpoint };

Content content_of(runtime::Communicator const& world, std::string const& path) {
  auto content = runtime::together(world, [&] {
    if (!world.is_root()) return std::int64_t{0};
    auto const file = runtime::Hdf5File::open(path);
    auto const is_model = file.contains("/parameters/layer0.weight");
    auto const is_language_model = file.contains("/parameters/wte.weight");
    auto const is_checkpoint = file.contains("/facts_crc32");
    return static_cast<std::int64_t>(file.contains(tokens::array_of(tokens::Part::train)) ? Content::tokens
                                     : is_language_model && is_checkpoint ? Content::language_checkpoint
                                     : is_language_model                  ? Content::language_model
                                     : !is_model                          ? Content::store
                                     : is_checkpoint                      ? Content::checkpoint
                                                                          : Content::weights);
  });
  runtime::broadcast(runtime::host, world, std::span(&content, 1), 0);
  return static_cast<Content>(content);
}

std::string head_of(InfoOptions const& options) {
  return fmt::format("file        {}, {}\n", options.file,
                     graph::bytes_text(static_cast<std::int64_t>(std::filesystem::file_size(options.file))));
}

void describe_model(Context& context, InfoOptions const& options, Content content) {
  auto const& world = context.world();
  auto text = head_of(options);
  if (content == Content::checkpoint) {
    auto const facts = models::read_checkpoint_facts(world, options.file);
    text += describe_checkpoint(facts, describe_epochs(facts.progress));
  }
  auto const facts = models::read_weights_facts(world, options.file);
  auto const of_weights = runtime::together(
      world, [&] { return world.is_root() ? describe_weights(options.file, facts) : std::string(); });
  print(context, text + of_weights);
}

/// Text of a token in quotes, with U+FFFD for bytes that are not valid text.
std::string token_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void describe_tokens(Context& context, InfoOptions const& options) {
  auto file = tokens::TokenFile::open(context.world(), options.file);
  if (options.verify) file.verify(context.world());
  if (!context.world().is_root()) return;
  auto const& facts = file.facts();
  auto text = head_of(options);
  auto const out = std::back_inserter(text);
  if (facts.bpe)
    fmt::format_to(out, "tokens      from {}, {} documents, by {}\n", facts.source, facts.num_documents,
                   facts.bpe->name);
  else
    fmt::format_to(out, "tokens      from {}, a token per {}\n", facts.source,
                   tokens::name_of(facts.tokenizer));
  for (auto const part : tokens::all_parts)
    fmt::format_to(out, "{:<12}{} tokens of {} bytes\n", tokens::name_of(part), facts.of(part).num_tokens,
                   facts.of(part).num_bytes);
  fmt::format_to(out, "vocabulary  {} tokens:", facts.vocabulary_size);
  constexpr std::int64_t most_shown = 100;
  for (std::int64_t token = 0; token < std::min(facts.vocabulary_size, most_shown); ++token)
    fmt::format_to(out, " {}", token_text(file.vocabulary().text_of(token)));
  fmt::format_to(out, "{}\n", facts.vocabulary_size > most_shown ? " .." : "");
  if (options.verify) text += "checksums   all right\n";
  print(context, text);
}

/// Describes weights or a checkpoint of train-lm.
void describe_language_model(Context& context, InfoOptions const& options, Content content) {
  auto const& world = context.world();
  auto const [model, sequence] = read_model(world, options.file);
  std::string of_checkpoint;
  if (content == Content::language_checkpoint) {
    auto const facts = models::read_checkpoint_facts(world, options.file);
    of_checkpoint = describe_checkpoint(facts, describe_steps(facts.progress));
  }
  auto const text = runtime::together(world, [&] {
    if (!world.is_root()) return std::string();
    auto const file = runtime::Hdf5File::open(options.file);
    auto described = head_of(options) + of_checkpoint;
    auto const out = std::back_inserter(described);
    fmt::format_to(out, "model       transformer, {} layers x {}\n", model.num_layers, model.hidden);
    for (auto const& [part, value] : record_of(model))
      fmt::format_to(out, "  {:<15}{}\n", part, value);
    fmt::format_to(out, "trained on  sequences of {} tokens\n", sequence);
    return described + parameters_text(file) +
           fmt::format("go on with  train-lm --init-from FILE; on another vocabulary with --init-skip {}\n",
                       names_of_tables(file));
  });
  print(context, text);
}

int run(InfoOptions const& options, Context& context) {
  if (options.file.empty()) {
    if (options.verify) runtime::throw_user("info: --verify needs the file to check");
    context.environment.start_kokkos(); // the table shows the device
    warn_of_slow_core(context.log());
    describe_job(context);
    return runtime::exit_done;
  }
  auto const content = content_of(context.world(), options.file);
  if (content == Content::store) {
    describe_store(context, options);
    return runtime::exit_done;
  }
  if (content == Content::tokens) {
    describe_tokens(context, options);
    return runtime::exit_done;
  }
  if (options.verify)
    runtime::throw_user("info: --verify checks stores and token files, and '{}' holds weights; train "
                        "--resume checks checkpoints",
                        options.file);
  if (content == Content::language_model || content == Content::language_checkpoint)
    describe_language_model(context, options, content);
  else
    describe_model(context, options, content);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_info() {
  auto command =
      std::make_unique<Command>("info", "Show build, backends, devices and bindings, or what is in a file");
  auto const options = std::make_shared<InfoOptions>();
  command->input("file", options->file, "Store, token file, weights or checkpoint to describe");
  command->flag("--verify", options->verify,
                "Also check the whole file: checksums, and whether its arrays agree with each other");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// orthant info: what this program and this job are, or what is in a file.

#include "cli/commands/build_info.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/machine/blas_core.hpp"
#include "graph/partition/estimate.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/machine/binding.hpp"

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <set>

namespace orthant::cli {
namespace {

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
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string describe(graph::StoreFacts const& facts) {
  std::string text;
  auto const out = std::back_inserter(text);
  fmt::format_to(out, "graph store {}, from {}\n", facts.name, facts.format);
  fmt::format_to(out, "vertices    {}\n", facts.num_vertices);
  fmt::format_to(out, "entries     {} of A, {} self loops among them; {}{}\n", facts.num_entries,
                 facts.num_self_loops, facts.is_symmetric ? "symmetric" : "directed",
                 facts.is_weighted ? ", weighted" : "");
  fmt::format_to(out, "degree      mean {:.2f}, largest {}\n",
                 static_cast<double>(facts.num_entries - facts.num_self_loops) /
                     static_cast<double>(facts.num_vertices),
                 facts.max_degree);
  fmt::format_to(out, "permutation {}, seed {}\n", graph::name_of(facts.permutation), facts.seed);
  fmt::format_to(out, "normalised  {}\n", graph::name_of(facts.normalization));
  if (facts.num_clusters > 0) fmt::format_to(out, "clusters    {}\n", facts.num_clusters);
  fmt::format_to(out, "features    {}", graph::name_of(facts.feature_kind));
  if (facts.feature_kind != graph::FeatureKind::none) fmt::format_to(out, ", {}", facts.num_features);
  if (facts.feature_kind == graph::FeatureKind::sparse)
    fmt::format_to(out, ", {} entries{}", facts.num_feature_entries,
                   facts.features_have_values ? "" : ", all 1");
  fmt::format_to(out, "\nlabels      {}", graph::name_of(facts.label_kind));
  if (facts.label_kind != graph::LabelKind::none)
    fmt::format_to(out, ", {} classes, {} vertices labelled", facts.num_classes, facts.num_labelled);
  if (facts.has_split)
    fmt::format_to(out, "\nsplit       {}: train {}, valid {}, test {}\n", facts.split_name,
                   facts.split_sizes[0], facts.split_sizes[1], facts.split_sizes[2]);
  else
    fmt::format_to(out, "\nsplit       none\n");
  return text;
}

void describe_store(Context& context, InfoOptions const& options) {
  auto const store = graph::GraphStore::open(context.world(), options.file);
  if (options.verify) store.verify(context.world());
  if (!context.world().is_root()) return;
  auto const text =
      fmt::format("file        {}, {}\n{}{}", options.file,
                  graph::bytes_text(static_cast<std::int64_t>(std::filesystem::file_size(options.file))),
                  describe(store.facts()), options.verify ? "checksums   all right\n" : "");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

int run(InfoOptions const& options, Context& context) {
  if (options.file.empty()) {
    if (options.verify) runtime::throw_user("info: --verify needs the file to check");
    context.environment.start_kokkos(); // the table shows its device
    warn_of_slow_core(context.log());
    describe_job(context);
    return runtime::exit_done;
  }
  describe_store(context, options);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_info() {
  auto command =
      std::make_unique<Command>("info", "Show build, backends, devices and bindings, or what is in a file");
  auto const options = std::make_shared<InfoOptions>();
  command->input("file", options->file, "Store or weights to describe");
  command->flag("--verify", options->verify,
                "Check all of the file, too: checksums, and what its arrays say of each other");
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

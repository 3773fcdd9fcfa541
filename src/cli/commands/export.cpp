// SPDX-License-Identifier: Apache-2.0
//
// orthant export: writes a store as a folder of files, with the original vertex ids.

#include "graph/store/export.hpp"
#include "cli/commands/subcommands.hpp"
#include "graph/store/store_reader.hpp"
#include "graph/write/write_graph.hpp"

namespace orthant::cli {
namespace {

struct ExportOptions {
  std::string graph;
  std::string output;
  std::string format = "ogb";
  std::int64_t split = 0;
};

int run(ExportOptions const& options, Context& context) {
  if (options.graph.empty()) runtime::throw_user("export: name the store: orthant export graph.h5 -o DIR");
  if (options.output.empty()) runtime::throw_user("export: name the folder to write with -o DIR");
  graph::WriteOptions how;
  how.format = graph::parse_output_format(options.format);
  how.replaces_output = context.replaces_outputs;
  auto store = graph::GraphStore::open(context.world(), options.graph);
  store.use_split(options.split);
  if (store.facts().num_relations() > 0)
    runtime::throw_user("{} has relations, which no format of export can hold", store.name());
  store.verify(context.world()); // so that a damaged store is not exported as a valid graph
  if (store.facts().has_links() && context.world().is_root())
    context.log().warn("{} holds edges out (--edge-split), which are not exported", store.name());
  if (store.facts().num_edge_features > 0 && context.world().is_root())
    context.log().warn("{} has features of edges, which are not exported so far", store.name());
  if (auto const count = store.facts().num_splits(); count > 1 && context.world().is_root())
    context.log().info("{} has {} splits, of which split {} is exported", store.name(), count, options.split);
  auto const source = graph::open_store_as_source(context.world(), store);
  graph::write_graph(context.world(), *source, options.output, how);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_export() {
  auto command =
      std::make_unique<Command>("export", "Write a store back as ogb, npy or an edge list, in original ids");
  auto const options = std::make_shared<ExportOptions>();
  command->input("graph", options->graph, "Store to read");
  command->output_folder("-o,--output", options->output, "Folder to write");
  command->option("--format", options->format, "ogb, npy or edgelist", one_of({"ogb", "npy", "edgelist"}));
  command->option("--split", options->split, "Split of a store with several, from 0",
                  whole_number(0, graph::most_splits - 1));
  command->set_needs_device(false);
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli

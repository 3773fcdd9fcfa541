// SPDX-License-Identifier: Apache-2.0
//
// The parts of a graph that come from a CSVDataset.
#include "graph/path_entry.hpp"
#include "graph/read/graph_files.hpp"
#include "runtime/error.hpp"

#include <fmt/ranges.h>

namespace orthant::graph {

bool find_csv_data_set(std::filesystem::path const& folder, GraphFiles& files) {
  if (!has_entry(folder / "meta.yaml")) return false;
  files.csv = read_csv_meta(folder);
  files.topology = GraphFiles::Topology::csv_data_set;
  files.edges = files.csv->edges;
  return true;
}

void Opener::read_csv_topology() {
  parts.format = "csv";
  parts.is_directed = true;
  csv = read_csv_columns(*files.csv);
  probe = probe_csv_edges(*files.csv);
  parts.edges.is_weighted = probe.weight && input.use_weights;
  if (csv.has_split() && input.split.empty()) files.split_text.reset(); // masks take precedence over split/
  if (!csv.unused.empty())
    notes.push_back(fmt::format("columns of {} that are not used: {}", csv.path.filename().string(),
                                fmt::join(csv.unused, ", ")));
}

bool Opener::build_csv_features() {
  if (!csv.features) return false;
  parts.features = {
      FeatureKind::dense, csv.num_features,
      [table = csv, is_reader = share.index == 0](std::int64_t batch_rows) -> std::unique_ptr<FeatureStream> {
        if (!is_reader) return std::make_unique<EmptyStream<FeatureBatch>>();
        return read_csv_features(table, batch_rows);
      }};
  return true;
}

bool Opener::build_csv_labels(std::int64_t num_classes) {
  if (!csv.label) return false;
  parts.labels = {LabelKind::single, num_classes,
                  [table = csv, num_classes,
                   is_reader = share.index == 0](std::int64_t batch_rows) -> std::unique_ptr<LabelStream> {
                    if (!is_reader) return std::make_unique<EmptyStream<LabelBatch>>();
                    return read_csv_labels(table, num_classes, batch_rows);
                  }};
  return true;
}

bool Opener::build_csv_split() {
  if (!csv.has_split()) return false;
  parts.split.name = "masks";
  parts.split.read = [table = csv, is_reader = share.index == 0](std::int64_t) {
    return is_reader ? read_csv_split(table)
                     : SplitShare{{}, {}, {}, {"train_mask", "val_mask", "test_mask"}};
  };
  return true;
}

} // namespace orthant::graph

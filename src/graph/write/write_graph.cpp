// SPDX-License-Identifier: Apache-2.0
#include "graph/write/write_graph.hpp"

#include "graph/write/output_files.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <utility>

namespace orthant::graph {

using runtime::Communicator;
using runtime::throw_user;
using runtime::together;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t batch_values = std::int64_t{1} << 20;

std::int64_t rows_for(std::int64_t num_columns) {
  return std::max<std::int64_t>(batch_values / std::max<std::int64_t>(num_columns, 1), 1);
}

/// Processes all batches of this rank. If one rank fails, all ranks throw. `take` must not communicate.
template<class Batch, class Take>
void for_each_batch(Communicator const& comm, BatchStream<Batch>& stream, WriteOptions const& options,
                    std::string const& step, Take&& take) {
  together(comm, [&] {
    Batch batch;
    while (stream.next(batch)) {
      take(batch);
      auto const [done, total] = stream.progress();
      if (comm.is_root() && options.on_progress && total > 0)
        options.on_progress(step, static_cast<double>(done) / static_cast<double>(total));
    }
  });
}

/// Shortest text from which the same float can be read.
void append_float(std::string& text, float value) {
  std::array<char, 24> digits;
  auto const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text.append(digits.data(), end);
}

struct Writer {
  Communicator const& comm;
  GraphSource const& source;
  OutputFolder const& output;
  fs::path const& folder; // of the output
  WriteOptions const& options;
  GraphFacts const& facts;

  [[nodiscard]] bool is_ogb() const { return options.format == OutputFormat::ogb; }
  void write_count(std::string const& name, std::int64_t count) const {
    ParallelText text(comm, folder / "raw" / name);
    if (comm.is_root()) text.append(fmt::format("{}\n", count));
    text.finish();
  }

  void write_text_features() const;
  void write_dense_features() const;
  void write_sparse_features(fs::path const& target) const;
  void write_class_names() const;
  void write_labels() const;
  std::array<std::int64_t, 3> write_split() const;
};

void Writer::write_text_features() const {
  ParallelText file(comm, folder / "raw" / "node-feat.csv.gz");
  std::string text;
  auto const num_columns = static_cast<std::size_t>(facts.num_features);
  for_each_batch(comm, *source.features(rows_for(facts.num_features)), options, "features",
                 [&](FeatureBatch const& batch) {
                   text.clear();
                   for (std::size_t i = 0; i < batch.dense.size(); ++i) {
                     append_float(text, batch.dense[i]);
                     text.push_back((i + 1) % num_columns == 0 ? '\n' : ',');
                   }
                   file.append(text);
                 });
  file.finish();
}

void Writer::write_dense_features() const {
  ParallelArray<float> array(comm, folder / "x.npy", {facts.num_vertices, facts.num_features});
  for_each_batch(comm, *source.features(rows_for(facts.num_features)), options, "features",
                 [&](FeatureBatch const& batch) {
                   array.write(batch.rows.begin * facts.num_features, std::span(batch.dense));
                 });
  array.finish();
}

void Writer::write_sparse_features(fs::path const& target) const {
  auto const batch_rows = rows_for(64);
  std::int64_t local_nonzeros = 0; // the first pass counts, the second one writes
  for_each_batch(comm, *source.features(batch_rows), options, "features", [&](FeatureBatch const& batch) {
    local_nonzeros += static_cast<std::int64_t>(batch.columns.size());
  });
  auto [position, num_nonzeros] = place_after_earlier_ranks(comm, local_nonzeros);
  ParallelArray<std::int64_t> indptr(comm, target / "x_indptr.npy", {facts.num_vertices + 1});
  ParallelArray<std::int32_t> indices(comm, target / "x_indices.npy", {num_nonzeros});
  ParallelArray<float> data(comm, target / "x_data.npy", {num_nonzeros});
  ParallelArray<std::int64_t> shape(comm, target / "x_shape.npy", {2});
  together(comm, [&] {
    if (!comm.is_root()) return;
    shape.write(0, std::array{facts.num_vertices, facts.num_features});
    indptr.write(facts.num_vertices, std::array{num_nonzeros});
  });
  std::vector<std::int64_t> offsets;
  for_each_batch(comm, *source.features(batch_rows), options, "features",
                 [&, first = position](FeatureBatch const& batch) mutable {
                   offsets.assign(batch.offsets.begin(), batch.offsets.end() - 1);
                   for (auto& offset : offsets)
                     offset += first;
                   indptr.write(batch.rows.begin, std::span(std::as_const(offsets)));
                   indices.write(first, std::span(batch.columns));
                   data.write(first, std::span(batch.values));
                   first += static_cast<std::int64_t>(batch.columns.size());
                 });
  indptr.finish();
  indices.finish();
  data.finish();
  shape.finish();
}

/// One line per class, as Python's csv module writes it.
void Writer::write_class_names() const {
  ParallelText file(comm, folder / "classes.csv");
  std::string text = "id,class\n";
  for (std::size_t c = 0; c < facts.class_names.size(); ++c) {
    text += fmt::format("{},\"", c);
    for (auto const letter : facts.class_names[c])
      text += letter == '"' ? std::string("\"\"") : std::string(1, letter);
    text += "\"\n";
  }
  if (comm.is_root()) file.append(text);
  file.finish();
}

void Writer::write_labels() const {
  bool const is_single = facts.label_kind == LabelKind::single;
  auto const num_columns = is_single ? std::int64_t{1} : facts.num_classes;
  auto const stream = source.labels(rows_for(num_columns));
  if (!facts.class_names.empty()) write_class_names();
  if (facts.label_kind == LabelKind::real) {
    auto const shape =
        num_columns == 1 ? std::vector{facts.num_vertices} : std::vector{facts.num_vertices, num_columns};
    ParallelArray<double> array(comm, folder / "labels.npy", shape);
    for_each_batch(comm, *stream, options, "labels", [&](LabelBatch const& batch) {
      array.write(batch.rows.begin * num_columns, std::span(batch.targets));
    });
    array.finish();
  } else if (is_ogb()) {
    ParallelText file(comm, folder / "raw" / "node-label.csv.gz");
    std::string text;
    for_each_batch(comm, *stream, options, "labels", [&](LabelBatch const& batch) {
      text.clear();
      std::int64_t column = 0;
      auto const append = [&](std::int64_t label) {
        if (label < 0)
          text += "nan";
        else
          fmt::format_to(std::back_inserter(text), "{}", label);
        column = (column + 1) % num_columns;
        text.push_back(column == 0 ? '\n' : ',');
      };
      std::ranges::for_each(batch.classes, append);
      std::ranges::for_each(batch.indicator, append);
      file.append(text);
    });
    file.finish();
  } else if (is_single) {
    ParallelArray<std::int64_t> array(comm, folder / "labels.npy", {facts.num_vertices});
    for_each_batch(comm, *stream, options, "labels",
                   [&](LabelBatch const& batch) { array.write(batch.rows.begin, std::span(batch.classes)); });
    array.finish();
  } else {
    ParallelArray<std::int8_t> array(comm, folder / "labels.npy", {facts.num_vertices, num_columns});
    for_each_batch(comm, *stream, options, "labels", [&](LabelBatch const& batch) {
      array.write(batch.rows.begin * num_columns, std::span(batch.indicator));
    });
    array.finish();
  }
}

std::array<std::int64_t, 3> Writer::write_split() const {
  auto share = together(comm, [&] { return source.split(0); });
  auto const name = facts.split_name.empty() ? std::string("default") : facts.split_name;
  if (is_ogb()) output.make_folder(fs::path("split") / name);
  std::array<std::int64_t, 3> sizes{};
  std::size_t index = 0;
  for (auto const& [part, list] :
       {std::pair("train", &share.train), std::pair("valid", &share.valid), std::pair("test", &share.test)}) {
    std::ranges::sort(*list);
    auto const placement = place_after_earlier_ranks(comm, static_cast<std::int64_t>(list->size()));
    sizes[index++] = placement.total;
    if (is_ogb()) {
      ParallelText file(comm, folder / "split" / name / fmt::format("{}.csv.gz", part));
      together(comm, [&, &vertices = *list] {
        std::string text;
        for (auto const vertex : vertices)
          fmt::format_to(std::back_inserter(text), "{}\n", vertex);
        file.append(text);
      });
      file.finish();
    } else {
      ParallelArray<std::int64_t> array(comm, folder / fmt::format("{}_idx.npy", part), {placement.total});
      together(comm,
               [&, &vertices = *list] { array.write(placement.begin, std::span(std::as_const(vertices))); });
      array.finish();
    }
  }
  return sizes;
}

} // namespace

OutputFormat parse_output_format(std::string_view word) {
  using enum OutputFormat;
  constexpr std::array<std::pair<std::string_view, OutputFormat>, 3> known{
      {{"ogb", ogb}, {"npy", npy}, {"edgelist", edgelist}}};
  for (auto const& [name, format] : known)
    if (name == word) return format;
  throw_user("unknown format \"{}\"; known: ogb, npy, edgelist", word);
}

void write_graph(Communicator const& comm, GraphSource const& source, fs::path const& target,
                 WriteOptions const& options) {
  runtime::WorkingScope const working(
      comm.instruments().position); // one rank may have more to do than others
  auto const& facts = source.facts();
  if (facts.label_kind == LabelKind::real && options.format == OutputFormat::ogb)
    throw_user("targets of regression have no files in the format ogb: take npy");
  OutputFolder output(comm, target, options.replaces_output);
  auto const& folder = output.path();
  Writer const writer{comm, source, output, folder, options, facts};
  bool const is_sparse = facts.feature_kind == FeatureKind::sparse;
  auto const progress = [&](double fraction) {
    if (comm.is_root() && options.on_progress) options.on_progress("edges", fraction);
  };
  std::int64_t num_edges = 0;
  if (writer.is_ogb()) {
    output.make_folder("raw");
    num_edges = write_csv_edges(comm, source, folder / "raw", progress);
    writer.write_count("num-node-list.csv.gz", facts.num_vertices);
    writer.write_count("num-edge-list.csv.gz", num_edges);
    if (facts.feature_kind == FeatureKind::dense) writer.write_text_features();
    if (is_sparse) output.make_folder("npy");
  } else {
    num_edges = options.format == OutputFormat::npy
                    ? write_npy_edges(comm, source, folder, progress)
                    : write_sorted_edges(comm, source, folder / "edges.txt", progress);
    if (facts.feature_kind == FeatureKind::dense) writer.write_dense_features();
  }
  if (is_sparse) writer.write_sparse_features(writer.is_ogb() ? folder / "npy" : folder);
  if (facts.label_kind != LabelKind::none) writer.write_labels();
  std::array<std::int64_t, 3> split_sizes{};
  if (facts.has_split) split_sizes = writer.write_split();
  source.check_num_edges(num_edges);
  write_meta(comm, folder, facts, num_edges, split_sizes);
  output.publish();
}

} // namespace orthant::graph

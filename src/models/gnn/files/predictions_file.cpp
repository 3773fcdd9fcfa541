// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy.hpp"
#include "models/gnn/files/predictions.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <array>
#include <charconv>
#include <span>
#include <string>

namespace orthant::models {
namespace {

using runtime::Range;

constexpr auto purpose = "predictions";

template<class T>
class Hdf5Predictions final : public PredictionFile<T> {
 public:
  Hdf5Predictions(runtime::Communicator const& comm, std::filesystem::path const& path,
                  PredictionColumns const& columns)
      : comm_(comm),
        columns_(columns),
        file_(comm, path, purpose) {
    auto const n = columns.num_vertices;
    if (columns.has_numbers)
      file_.create_array("/predictions", runtime::detail::hdf5_type_of<T>(), {n, columns.num_classes});
    else if (columns.has_several_classes)
      file_.create_array("/predictions", runtime::Hdf5Type::int8, {n, columns.num_classes});
    else
      file_.create_array("/predictions", runtime::Hdf5Type::int32, {n});
    if (columns.has_probabilities)
      file_.create_array("/probabilities", runtime::detail::hdf5_type_of<T>(), {n, columns.num_classes});
    if (columns.embedding_width > 0)
      file_.create_array("/embeddings", runtime::detail::hdf5_type_of<T>(), {n, columns.embedding_width});
    graph::NameList names;
    for (auto const& name : columns.class_names)
      names.add(name);
    if (names.size() > 0) {
      file_.create_array("/class_names/offsets", runtime::Hdf5Type::int64, {names.size() + 1});
      file_.create_array("/class_names/text", runtime::Hdf5Type::uint8, {std::ssize(names.text)});
    }
    file_.reserve_space();
    runtime::together(comm, [&] {
      if (!comm.is_root() || names.size() == 0) return;
      file_.write("/class_names/offsets", {0}, {names.size() + 1},
                  std::span<std::int64_t const>(names.offsets));
      std::vector<std::uint8_t> const bytes(names.text.begin(), names.text.end());
      file_.write("/class_names/text", {0}, {std::ssize(bytes)}, std::span<std::uint8_t const>(bytes));
    });
  }

  void write(PredictionRows<T> const& rows) override {
    runtime::together(comm_, [&] {
      if (rows.ids.size() == 0) return;
      if (columns_.has_numbers)
        write_matrix("/predictions", rows.ids, rows.numbers, columns_.num_classes);
      else if (columns_.has_several_classes)
        write_matrix("/predictions", rows.ids, rows.indicators, columns_.num_classes);
      else
        file_.write("/predictions", {rows.ids.begin}, {rows.ids.size()}, std::span(rows.classes));
      if (columns_.has_probabilities)
        write_matrix("/probabilities", rows.ids, rows.probabilities, columns_.num_classes);
      if (columns_.embedding_width > 0)
        write_matrix("/embeddings", rows.ids, rows.embeddings, columns_.embedding_width);
    });
  }
  void publish() override { file_.publish(); }

 private:
  template<class Value>
  void write_matrix(char const* name, Range ids, std::vector<Value> const& values, std::int64_t width) {
    file_.write(name, {ids.begin, 0}, {ids.size(), width}, std::span(values));
  }

  runtime::Communicator const& comm_;
  PredictionColumns columns_;
  runtime::Hdf5Output file_;
};

/// A .npy file with one array.
template<class T>
class NpyPredictions final : public PredictionFile<T> {
 public:
  NpyPredictions(runtime::Communicator const& comm, std::filesystem::path const& path,
                 PredictionColumns const& columns)
      : comm_(comm),
        columns_(columns),
        staged_(runtime::StagedFile::create(comm, path, purpose)) {
    auto const is_real = columns.has_probabilities || columns.embedding_width > 0 || columns.has_numbers;
    auto const* const type = is_real                       ? (sizeof(T) == sizeof(float) ? "<f4" : "<f8")
                             : columns.has_several_classes ? "|i1"
                                                           : "<i4";
    std::vector<std::int64_t> shape{columns.num_vertices};
    if (columns.embedding_width > 0)
      shape.push_back(columns.embedding_width);
    else if (is_real || columns.has_several_classes)
      shape.push_back(columns.num_classes);
    auto const header = graph::npy_header(type, shape);
    header_bytes_ = static_cast<std::int64_t>(header.size());
    width_ = shape.size() > 1 ? shape[1] : 1;
    auto const element_bytes =
        static_cast<std::int64_t>(is_real                       ? sizeof(T)
                                  : columns.has_several_classes ? sizeof(std::int8_t)
                                                                : sizeof(std::int32_t));
    runtime::together(comm, [&] {
      if (!comm.is_root()) return;
      auto const size = header_bytes_ + columns.num_vertices * width_ * element_bytes;
      staged_.file().reserve(size);
      staged_.file().set_size(size);
      staged_.file().write_at(0, std::as_bytes(std::span(header)));
    });
  }

  void write(PredictionRows<T> const& rows) override {
    runtime::together(comm_, [&] {
      if (columns_.embedding_width > 0)
        write_values(rows.ids, rows.embeddings);
      else if (columns_.has_numbers)
        write_values(rows.ids, rows.numbers);
      else if (columns_.has_probabilities)
        write_values(rows.ids, rows.probabilities);
      else if (columns_.has_several_classes)
        write_values(rows.ids, rows.indicators);
      else
        write_values(rows.ids, rows.classes);
    });
  }
  void publish() override { staged_.publish(comm_); }

 private:
  template<class Value>
  void write_values(Range ids, std::vector<Value> const& values) {
    auto const first = ids.begin * width_ * static_cast<std::int64_t>(sizeof(Value));
    staged_.file().write_at(header_bytes_ + first, std::as_bytes(std::span(values)));
  }

  runtime::Communicator const& comm_;
  PredictionColumns columns_;
  runtime::StagedFile staged_;
  std::int64_t header_bytes_ = 0;
  std::int64_t width_ = 1;
};

/// Appends the shortest text that is read back as the same number.
template<class Number>
void append(std::string& text, Number number) {
  std::array<char, 32> digits;
  text.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

/// Appends a field of a CSV file, in quotes if it needs them (RFC 4180).
void append_quoted(std::string& text, std::string const& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) {
    text += field;
    return;
  }
  text += '"';
  for (auto const c : field)
    text += c == '"' ? std::string("\"\"") : std::string(1, c);
  text += '"';
}

template<class T>
class CsvPredictions final : public PredictionFile<T> {
 public:
  CsvPredictions(runtime::Communicator const& comm, std::filesystem::path const& path,
                 PredictionColumns const& columns)
      : comm_(comm),
        columns_(columns),
        staged_(runtime::StagedFile::create(comm, path, purpose)) {
    std::string header = "vertex";
    if (columns.has_types) header += ",type";
    if (columns.has_names) header += ",name";
    auto const add = [&](char const* name, std::int64_t count) {
      for (std::int64_t j = 0; j < count; ++j)
        append(header += name, j);
    };
    if (columns.has_numbers)
      add(",y", columns.num_classes);
    else if (columns.has_several_classes)
      add(",c", columns.num_classes);
    else
      header += ",class";
    add(",p", columns.has_probabilities ? columns.num_classes : 0);
    add(",e", columns.embedding_width);
    header += '\n';
    end_ = static_cast<std::int64_t>(header.size());
    runtime::together(comm, [&] {
      if (comm.is_root()) staged_.file().write_at(0, std::as_bytes(std::span(header)));
    });
  }

  void write(PredictionRows<T> const& rows) override {
    std::string const text = runtime::together(comm_, [&] { return text_of(rows); });
    auto const num_bytes = static_cast<std::int64_t>(text.size());
    auto const begin = end_ + runtime::scanned(comm_, num_bytes);
    end_ += runtime::all_reduced(comm_, num_bytes);
    runtime::together(comm_, [&] { staged_.file().write_at(begin, std::as_bytes(std::span(text))); });
  }
  void publish() override { staged_.publish(comm_); }

 private:
  [[nodiscard]] std::string text_of(PredictionRows<T> const& rows) const {
    std::string text;
    auto const append_row = [&](auto const& values, std::size_t row) {
      auto const width = values.size() / static_cast<std::size_t>(rows.ids.size());
      for (auto j = row * width; j < (row + 1) * width; ++j) {
        text += ',';
        append(text, values[j]);
      }
    };
    for (auto id = rows.ids.begin; id < rows.ids.end; ++id) {
      auto const row = static_cast<std::size_t>(id - rows.ids.begin);
      append(text, id);
      if (columns_.has_types) append_quoted(text += ',', rows.types[row]);
      if (columns_.has_names) append_quoted(text += ',', rows.names[row]);
      if (columns_.class_names.empty())
        append_row(rows.classes, row);
      else
        append_quoted(text += ',', columns_.class_names[static_cast<std::size_t>(rows.classes[row])]);
      append_row(rows.numbers, row);
      append_row(rows.indicators, row);
      append_row(rows.probabilities, row);
      append_row(rows.embeddings, row);
      text += '\n';
    }
    return text;
  }

  runtime::Communicator const& comm_;
  PredictionColumns columns_;
  runtime::StagedFile staged_;
  std::int64_t end_ = 0; // end of the rows written so far, over all ranks
};

} // namespace

void require_prediction_format(std::filesystem::path const& path, bool has_probabilities,
                               bool has_embeddings) {
  auto const extension = path.extension();
  if (extension != ".h5" && extension != ".npy" && extension != ".csv")
    runtime::throw_user("--predictions {}: the name says the format; let it end in .h5, .npy or .csv",
                        path.string());
  if (extension == ".npy" && has_probabilities && has_embeddings)
    runtime::throw_user(
        "--predictions {}: a .npy file holds one array; leave out --probabilities or --embeddings, or name a "
        "file that ends in .h5 or .csv",
        path.string());
}

template<class T>
std::unique_ptr<PredictionFile<T>> create_prediction_file(runtime::Communicator const& comm,
                                                          std::filesystem::path const& path,
                                                          PredictionColumns const& columns) {
  require_prediction_format(path, columns.has_probabilities, columns.embedding_width > 0);
  if (path.extension() == ".h5") return std::make_unique<Hdf5Predictions<T>>(comm, path, columns);
  if (path.extension() == ".npy") return std::make_unique<NpyPredictions<T>>(comm, path, columns);
  return std::make_unique<CsvPredictions<T>>(comm, path, columns);
}

template std::unique_ptr<PredictionFile<float>>
create_prediction_file(runtime::Communicator const&, std::filesystem::path const&, PredictionColumns const&);
template std::unique_ptr<PredictionFile<double>>
create_prediction_file(runtime::Communicator const&, std::filesystem::path const&, PredictionColumns const&);

} // namespace orthant::models

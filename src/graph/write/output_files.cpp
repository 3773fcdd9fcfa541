// SPDX-License-Identifier: Apache-2.0
#include "graph/write/output_files.hpp"

#include "graph/arrays/npy.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <zlib.h>

namespace orthant::graph {

namespace {

constexpr std::size_t copy_bytes = std::size_t{1} << 22;
constexpr std::size_t text_buffer_bytes = std::size_t{1} << 18;

runtime::FileName name_of(std::filesystem::path const& path) {
  return {"graph", final_place(path)};
}

template<class T>
constexpr char const* npy_type() {
  if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 8 ? "<f8" : "<f4";
  else
    return sizeof(T) == 8 ? "<i8" : sizeof(T) == 4 ? "<i4" : "|i1";
}

} // namespace

/// One gzip member with level 1: the files are usually read soon, and writing should be almost as fast as the disk.
class ParallelText::Deflater {
 public:
  Deflater() {
    constexpr auto as_gzip = 16;
    if (deflateInit2(&stream_, 1, Z_DEFLATED, MAX_WBITS + as_gzip, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  Deflater(Deflater const&) = delete;
  Deflater& operator=(Deflater const&) = delete;
  ~Deflater() { deflateEnd(&stream_); }

  /// Appends the compressed bytes of `text` that are known so far to `out`.
  void deflate(std::string_view text, std::string& out) {
    constexpr auto most_at_once = std::size_t{1} << 30; // zlib counts in 32 bits
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), most_at_once)))
      run(text.substr(0, most_at_once), Z_NO_FLUSH, out);
  }
  /// Appends the rest.
  void finish(std::string& out) { run({}, Z_FINISH, out); }

 private:
  void run(std::string_view text, int flush, std::string& out) {
    std::array<char, 1 << 14> piece;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream_.avail_in = static_cast<uInt>(text.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream_.avail_out = static_cast<uInt>(piece.size());
      ::deflate(&stream_, flush);
      out.append(piece.data(), piece.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }
  z_stream stream_{};
};

ParallelText::ParallelText(runtime::Communicator const& comm, std::filesystem::path path)
    : comm_(comm),
      path_(std::move(path)),
      part_path_(path_) {
  runtime::together(comm_, [&] {
    part_path_ += ".part-" + std::to_string(comm_.rank());
    if (path_.extension() == ".gz") deflater_ = std::make_unique<Deflater>();
    part_ = runtime::WritableFile(part_path_, runtime::WritableFile::Mode::create, name_of(path_));
    buffer_.reserve(text_buffer_bytes);
  });
}

ParallelText::~ParallelText() = default;

void ParallelText::append(std::string_view text) {
  if (deflater_)
    deflater_->deflate(text, buffer_);
  else
    buffer_ += text;
  if (buffer_.size() >= text_buffer_bytes) flush();
}

void ParallelText::flush() {
  part_.append(buffer_);
  num_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void ParallelText::finish() {
  runtime::together(comm_, [&] {
    if (deflater_) deflater_->finish(buffer_);
    flush();
    part_.sync();
    part_.close();
  });
  auto const placement = place_after_earlier_ranks(comm_, num_bytes_);
  // The part file of rank 0 becomes the final file; the other ranks write their parts after it.
  runtime::together(comm_, [&] {
    std::error_code error;
    if (comm_.is_root()) std::filesystem::rename(part_path_, path_, error);
    if (error) runtime::refuse_file(name_of(path_), "write", error.value());
    if (!comm_.is_root()) return;
    // The client of a network file system may believe that the file ends earlier, and fill the gap up to this rank's part with zeros, which
    // overwrites the data of other ranks.
    runtime::WritableFile file(path_, runtime::WritableFile::Mode::open, name_of(path_));
    file.set_size(placement.total);
    file.close();
  });
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) join(placement.begin, num_bytes_);
  });
}

void ParallelText::join(std::int64_t begin, std::int64_t size) {
  auto const from = runtime::detail::open_to_read(part_path_);
  runtime::WritableFile to(path_, runtime::WritableFile::Mode::open, name_of(path_));
  std::vector<char> bytes(static_cast<std::size_t>(std::min(size, static_cast<std::int64_t>(copy_bytes))));
  for (std::int64_t offset = 0; offset < size;) {
    auto const got = runtime::detail::read_at(from.get(), offset, bytes, part_path_);
    if (got == 0) runtime::refuse_file(name_of(path_), "write", EIO);
    to.write_at(begin + offset, std::as_bytes(std::span(bytes).first(static_cast<std::size_t>(got))));
    offset += got;
  }
  to.sync();
  to.close();
  std::filesystem::remove(part_path_);
}

template<class T>
ParallelArray<T>::ParallelArray(runtime::Communicator const& comm, std::filesystem::path path,
                                std::vector<std::int64_t> const& shape)
    : comm_(comm) {
  using Mode = runtime::WritableFile::Mode;
  auto const header = npy_header(npy_type<T>(), shape);
  header_bytes_ = static_cast<std::int64_t>(header.size());
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) return;
    file_ = runtime::WritableFile(path, Mode::create, name_of(path));
    auto num_bytes = static_cast<std::int64_t>(sizeof(T));
    for (auto const extent : shape)
      num_bytes = runtime::checked_product(num_bytes, extent, path.filename().string());
    num_bytes += header_bytes_;
    file_.reserve(num_bytes);
    file_.write_at(0, std::as_bytes(std::span(header)));
    file_.set_size(num_bytes);
  });
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) file_ = runtime::WritableFile(path, Mode::open, name_of(path));
  });
}

template<class T>
void ParallelArray<T>::write(std::int64_t first, std::span<T const> values) {
  file_.write_at(header_bytes_ + first * static_cast<std::int64_t>(sizeof(T)), std::as_bytes(values));
}

template<class T>
void ParallelArray<T>::finish() {
  runtime::together(comm_, [&] {
    file_.sync();
    file_.close();
  });
}

template class ParallelArray<std::int64_t>;
template class ParallelArray<std::int32_t>;
template class ParallelArray<std::int8_t>;
template class ParallelArray<float>;
template class ParallelArray<double>;

PlaceAmongRanks place_after_earlier_ranks(runtime::Communicator const& comm, std::int64_t count) {
  return {runtime::scanned(comm, count), runtime::all_reduced(comm, count)};
}

using runtime::throw_user;
namespace fs = std::filesystem;

namespace {

constexpr char const* writer = "orthant";
constexpr std::string_view graph_name = "graph";         // graph.partial-..: files are being written
constexpr std::string_view moving_name = "graph.moving"; // the complete files are being moved to their places

bool is_ours(fs::path const& folder) {
  std::ifstream file(folder / "meta.json");
  if (!file) return fs::exists(folder / moving_name);
  auto const json = nlohmann::json::parse(file, nullptr, false);
  return json.is_object() && json.contains("written_by") && json["written_by"] == writer;
}

/// True if the folder contains only leftovers of interrupted jobs.
bool is_free(fs::path const& folder) {
  return std::ranges::all_of(runtime::folder_entries(folder), [](std::string const& name) {
    return name == moving_name || runtime::is_partial_name(name, graph_name);
  });
}

/// Writes the entries of a folder and of all folders below it to the disk.
void sync_folders(fs::path const& folder, runtime::FileName const& output) {
  for (auto const& name : runtime::folder_entries(folder))
    if (fs::is_directory(folder / name)) sync_folders(folder / name, output);
  runtime::sync_folder(folder, output);
}

/// Moves all entries from one folder to another, or none: a part of a graph would look like a smaller graph.
void move_all(fs::path const& from, fs::path const& to) {
  auto const names = runtime::folder_entries(from);
  std::size_t num_moved = 0;
  try {
    for (; num_moved < names.size(); ++num_moved)
      fs::rename(from / names[num_moved], to / names[num_moved]);
  } catch (fs::filesystem_error const&) {
    std::error_code ignored;
    while (num_moved-- > 0)
      fs::rename(to / names[num_moved], from / names[num_moved], ignored);
    throw;
  }
}

void remove_graph(fs::path const& folder) {
  for (auto const* const name : {"raw", "split", "npy"})
    fs::remove_all(folder / name);
  for (auto const* const name : {"edges.txt", "edge_index.npy", "edge_weight.npy", "x.npy", "x_indptr.npy",
                                 "x_indices.npy", "x_data.npy", "x_shape.npy", "labels.npy", "train_idx.npy",
                                 "valid_idx.npy", "test_idx.npy", "classes.csv", "meta.json"})
    fs::remove(folder / name);
}

} // namespace

OutputFolder::OutputFolder(runtime::Communicator const& comm, fs::path folder, bool replaces_output)
    : comm_(comm),
      folder_(std::move(folder)) {
  auto const token = runtime::draw_token(comm_);
  runtime::together(comm_, [&] {
    staging_ = std::make_unique<runtime::TemporaryPath>(runtime::partial_name(folder_ / graph_name, token));
  });
  runtime::together(comm_, [&] {
    if (comm_.is_root()) prepare(replaces_output);
  });
}

OutputFolder::~OutputFolder() {
  staging_.reset();
  if (is_made_here_) ::rmdir(folder_.c_str()); // fails if the folder is not empty
}

void OutputFolder::prepare(bool replaces_output) {
  try {
    if (fs::exists(folder_) && !fs::is_directory(folder_))
      throw_user("cannot write to {}: it is a file; a folder is wanted", folder_.string());
    is_made_here_ = fs::create_directories(folder_);
    if (!is_free(folder_)) {
      if (!is_ours(folder_))
        throw_user("{} is not empty and was not written by Orthant; name a new folder", folder_.string());
      if (!replaces_output && !fs::exists(folder_ / moving_name))
        throw_user("{} holds a graph; --force replaces it", folder_.string());
    }
    runtime::remove_leftovers(folder_ / graph_name);
    fs::create_directory(path());
    in_use_ = runtime::detail::Descriptor(
        runtime::repeated([&] { return ::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (in_use_.owns()) static_cast<void>(::flock(in_use_.get(), LOCK_SH | LOCK_NB));
  } catch (fs::filesystem_error const& error) {
    throw_user("cannot write to {}: {}", folder_.string(), error.code().message());
  }
}

void OutputFolder::make_folder(fs::path const& name) const {
  runtime::together(comm_, [&] {
    if (!comm_.is_root()) return;
    std::error_code error;
    fs::create_directories(path() / name, error);
    if (error) throw_user("cannot write to {}: {}", (folder_ / name).string(), error.message());
  });
}

void OutputFolder::publish() {
  runtime::together(comm_, [&] {
    if (comm_.is_root()) move_files();
  });
  staging_->keep();
  is_made_here_ = false;
}

void OutputFolder::move_files() {
  auto const moving = folder_ / moving_name;
  try {
    sync_folders(path(), {"graph", folder_});
    fs::remove_all(moving); // left by a job that was interrupted here
    fs::rename(path(), moving);
    remove_graph(folder_);
    move_all(moving, folder_);
    runtime::sync_folder(folder_, {"graph", folder_});
    fs::remove(moving); // the graph is complete
    runtime::sync_folder(folder_, {"graph", folder_});
  } catch (fs::filesystem_error const& error) {
    throw_user("cannot complete the graph in {}: {}", folder_.string(), error.code().message());
  }
}

void write_meta(runtime::Communicator const& comm, fs::path const& folder, GraphFacts const& facts,
                std::int64_t num_edges, std::array<std::int64_t, 3> split_sizes) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    nlohmann::ordered_json json;
    json["name"] = facts.name;
    json["written_by"] = writer;
    json["directed"] = facts.is_directed;
    json["add_inverse_edge"] = !facts.is_directed;
    json["num_nodes"] = facts.num_vertices;
    json["num_edge_lines"] = num_edges;
    if (facts.feature_kind != FeatureKind::none) json["num_features"] = facts.num_features;
    if (facts.label_kind != LabelKind::none && facts.label_kind != LabelKind::real)
      json["num_classes"] = facts.num_classes;
    if (facts.has_split) json["splits"][facts.split_name] = split_sizes;
    auto const path = folder / "meta.json";
    runtime::WritableFile file(path, runtime::WritableFile::Mode::create, {"graph", final_place(path)});
    file.append(json.dump(1) + '\n');
    file.sync();
    file.close();
  });
}

void require_complete_graph(fs::path const& folder) {
  std::error_code ignored;
  if (fs::exists(folder / moving_name, ignored))
    throw_user("{} holds a part of a graph: the job that wrote it was interrupted; write it again",
               folder.string());
}

fs::path final_place(fs::path const& path) {
  fs::path place;
  for (auto const& part : path)
    if (!runtime::is_partial_name(part.string(), graph_name)) place /= part;
  return place;
}

} // namespace orthant::graph

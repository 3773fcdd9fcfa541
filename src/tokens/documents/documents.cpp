// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/documents.hpp"

#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/range.hpp"
#include "runtime/unique_handle.hpp"
#include "tokens/bpe/pieces.hpp"
#include "tokens/vocabulary.hpp"

#include <algorithm>
#include <glob.h>
#include <nlohmann/json.hpp>
#include <system_error>
#include <zlib.h>

namespace orthant::tokens {
namespace {

using runtime::throw_user;

constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

class FileRange : public ByteStream {
 public:
  FileRange(std::filesystem::path const& path, std::int64_t begin, std::int64_t end)
      : source_(runtime::open_file_bytes(path)),
        at_(begin),
        end_(end) {}

  bool append_to(std::string& text) override {
    auto const count = std::min(block_bytes, end_ - at_);
    if (count <= 0) return false;
    auto const before = text.size();
    text.resize(before + static_cast<std::size_t>(count));
    source_->read(at_, std::as_writable_bytes(std::span(text).subspan(before)));
    at_ += count;
    return true;
  }

 private:
  std::unique_ptr<runtime::ByteSource> source_;
  std::int64_t at_;
  std::int64_t end_;
};

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose(file); }
};

class GzipText : public ByteStream {
 public:
  explicit GzipText(std::filesystem::path const& path)
      : name_(path.string()),
        file_(gzopen(name_.c_str(), "rb")) {
    if (!file_) throw_user("cannot read {}: it cannot be opened", name_);
  }

  bool append_to(std::string& text) override {
    auto const before = text.size();
    text.resize(before + block_bytes);
    auto const count = gzread(file_.get(), text.data() + before, block_bytes);
    text.resize(before + static_cast<std::size_t>(std::max(count, 0)));
    auto status = Z_OK;
    auto const* const message = gzerror(file_.get(), &status);
    if (count < 0 || status == Z_BUF_ERROR)
      throw_user("{} is damaged: {}", name_, status == Z_BUF_ERROR ? "it ends too early" : message);
    if (gzdirect(file_.get()) != 0 && text.size() > before) throw_user("{} is no gzip file", name_);
    return count > 0;
  }

 private:
  std::string name_;
  std::unique_ptr<gzFile_s, CloseGzip> file_;
};

} // namespace

bool is_compressed(std::filesystem::path const& path) {
  return path.extension() == ".gz" || path.extension() == ".zst";
}

std::filesystem::path name_of_text(std::filesystem::path const& path) {
  return is_compressed(path) ? path.stem() : path.filename();
}

std::unique_ptr<ByteStream> open_compressed(std::filesystem::path const& path) {
  if (path.extension() == ".zst") return detail::open_zstd(path);
  return std::make_unique<GzipText>(path);
}

std::unique_ptr<ByteStream> open_range(std::filesystem::path const& path, std::int64_t begin,
                                       std::int64_t end) {
  return std::make_unique<FileRange>(path, begin, end);
}

namespace {

using runtime::Range;

/// The files that match a pattern of the shell.
std::vector<std::filesystem::path> matches(std::string const& pattern) {
  std::vector<std::filesystem::path> paths;
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  std::ranges::sort(paths);
  return paths;
}

/// Whether the file exists; also false if the name is too long for a file.
bool is_there(std::string const& name) {
  std::error_code error;
  return std::filesystem::exists(name, error);
}

/// First position of a range for which find(block, first position in it that counts) finds one; the end of the range if there is none. A
/// block begins a few bytes earlier than the positions that count.
template<class Find>
std::int64_t search(DocumentFile const& file, Range range, Find&& find) {
  constexpr std::int64_t before = longest_character;
  constexpr std::int64_t searched_bytes = std::int64_t{1} << 16;
  auto const source = runtime::open_file_bytes(file.path);
  std::string block;
  for (auto at = range.begin; at < range.end; at += searched_bytes) {
    auto const begin = std::max<std::int64_t>(at - before, 0);
    auto const end = std::min(at + searched_bytes, range.end);
    block.resize(static_cast<std::size_t>(end - begin));
    source->read(begin, std::as_writable_bytes(std::span(block)));
    auto const found = find(std::string_view(block), static_cast<std::size_t>(at - begin));
    if (found < block.size()) return begin + static_cast<std::int64_t>(found);
  }
  return range.end;
}

/// The first place in a range where a text may be cut, or the end of the range.
std::int64_t first_cut_in(DocumentFile const& file, Range range) {
  if (range.begin <= 0) return 0;
  return search(file, range, [](std::string_view block, std::size_t at) { return first_cut(block, at); });
}

/// The first line that begins in a range, or the end of the range.
std::int64_t first_line_in(DocumentFile const& file, Range range) {
  if (range.begin <= 0) return 0;
  auto const end_of_line =
      search(file, {range.begin - 1, range.end}, [](std::string_view block, std::size_t at) {
        return std::min(block.find('\n', at), block.size());
      });
  return std::min(end_of_line + 1, range.end);
}

class PartReader {
 public:
  PartReader(DocumentParts const& parts, DocumentSink const& sink) : parts_(parts), sink_(sink) {}

  /// Reads the documents, or parts of a text, that begin in `range` of the file's bytes.
  void read(DocumentFile const& file, Range range) {
    name_ = file.path.string();
    auto const begins = range.begin <= 0 && range.end > 0;
    if (is_compressed(file.path) || (!file.has_lines && !parts_.cuts_texts)) {
      if (!begins) return;
      auto const stream =
          is_compressed(file.path) ? open_compressed(file.path) : open_range(file.path, 0, file.num_bytes);
      if (file.has_lines)
        read_lines(*stream, 0);
      else
        read_text(*stream, true);
      return;
    }
    auto const first_in = file.has_lines ? first_line_in : first_cut_in;
    auto const last = std::min(range.end, file.num_bytes);
    auto const begin = first_in(file, {std::max<std::int64_t>(range.begin, 0), last});
    if (begin >= last) return;
    auto const end = first_in(file, {last, file.num_bytes});
    auto const stream = open_range(file.path, begin, end);
    if (file.has_lines)
      read_lines(*stream, begin);
    else
      read_text(*stream, begin == 0);
  }

 private:
  void read_text(ByteStream& stream, bool begins) {
    constexpr std::size_t wanted = std::size_t{1} << 20;
    std::string text;
    std::size_t searched = 0; // bytes in which there is no position to cut
    auto goes_on = true;
    while (goes_on) {
      auto const target = text.size() + wanted;
      while (goes_on && text.size() < target)
        goes_on = stream.append_to(text);
      if (begins && !text.empty()) {
        runtime::refuse_wide_text(text, name_);
        sink_.begin_document();
        begins = false;
      }
      auto const cut = goes_on ? (parts_.cuts_texts ? last_cut(text, searched) : 0) : text.size();
      searched = text.size() - cut;
      if (cut == 0) continue;
      sink_.take_text(std::string_view(text).substr(0, cut));
      text.erase(0, cut);
    }
  }

  /// offset: place of the stream's first byte in the file, for messages.
  void read_lines(ByteStream& stream, std::int64_t offset) {
    std::string text;
    auto goes_on = true;
    std::size_t searched = 0;
    while (goes_on) {
      goes_on = stream.append_to(text);
      if (!goes_on && !text.empty() && !text.ends_with('\n')) text += '\n';
      std::size_t begin = 0;
      for (auto end = text.find('\n', searched); end != std::string::npos; end = text.find('\n', begin)) {
        read_line(std::string_view(text).substr(begin, end - begin),
                  offset + static_cast<std::int64_t>(begin));
        begin = end + 1;
      }
      text.erase(0, begin);
      offset += static_cast<std::int64_t>(begin);
      searched = text.size();
    }
  }

  void read_line(std::string_view line, std::int64_t offset) {
    if (offset == 0) line = runtime::without_byte_order_mark(line, name_);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    auto const json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded())
      throw_user("{} is no JSONL: the line at byte {} of its text is no JSON", name_, offset);
    auto const found = json.is_object() ? json.find(parts_.field) : json.end();
    if (!json.is_object() || found == json.end() || !found->is_string())
      throw_user("{}: the line at byte {} of its text has no text '{}'; name the member with --field NAME",
                 name_, offset, parts_.field);
    auto const& text = found->get_ref<std::string const&>();
    if (text.empty()) return;
    sink_.begin_document();
    sink_.take_text(text);
  }

  DocumentParts const& parts_;
  DocumentSink const& sink_;
  std::string name_;
};

} // namespace

std::vector<std::filesystem::path> input_files(std::string const& input) {
  if (is_there(input)) return {input};
  std::vector<std::filesystem::path> paths;
  for (std::size_t begin = 0; begin <= input.size();) {
    auto const end = std::min(input.find(',', begin), input.size());
    auto const name = input.substr(begin, end - begin);
    auto const found = is_there(name) ? std::vector<std::filesystem::path>{name} : matches(name);
    if (found.empty()) throw_user("cannot read '{}': there is no such file", name);
    paths.insert(paths.end(), found.begin(), found.end());
    begin = end + 1;
  }
  return paths;
}

std::vector<DocumentFile> describe_files(std::vector<std::filesystem::path> const& paths) {
  std::vector<DocumentFile> files;
  for (auto const& path : paths) {
    auto const kind = name_of_text(path).extension();
    files.push_back({path, runtime::open_file_bytes(path)->size(), kind == ".jsonl" || kind == ".ndjson"});
  }
  return files;
}

void read_documents(std::vector<DocumentFile> const& files, DocumentParts const& parts, std::int64_t part,
                    DocumentSink const& sink) {
  std::int64_t all = 0;
  for (auto const& file : files)
    all += file.num_bytes;
  auto const share = runtime::balanced_range(all, parts.num_parts, part);
  PartReader reader(parts, sink);
  std::int64_t first = 0; // of the file
  for (auto const& file : files) {
    if (share.begin < first + file.num_bytes && first < share.end)
      reader.read(file, {share.begin - first, share.end - first});
    first += file.num_bytes;
  }
}

} // namespace orthant::tokens

#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Documents to tokenize: text files, each of which is a document, and JSONL files with a document per line, optionally compressed (.gz,
// .zst). Their bytes are split into parts of about equal size, one for each thread of each rank. The documents of all parts one after
// another are the same for any number of parts.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace orthant::tokens {

// The bytes of a file from its beginning to its end: of a range of a plain file, or of the text of a .gz or .zst file.

class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(ByteStream const&) = delete;
  ByteStream& operator=(ByteStream const&) = delete;
  virtual ~ByteStream() = default;

  /// Appends some bytes to `text`. Returns false if there are no more. Throws UserError if they cannot be read.
  [[nodiscard]] virtual bool append_to(std::string& text) = 0;
};

/// True if the name ends in ".gz" or ".zst".
[[nodiscard]] bool is_compressed(std::filesystem::path const& path);
/// The name without such an ending.
[[nodiscard]] std::filesystem::path name_of_text(std::filesystem::path const& path);

/// Throws UserError if the file cannot be opened, or is a .zst file and this program was built without libzstd.
[[nodiscard]] std::unique_ptr<ByteStream> open_compressed(std::filesystem::path const& path);
[[nodiscard]] std::unique_ptr<ByteStream> open_range(std::filesystem::path const& path, std::int64_t begin,
                                                     std::int64_t end);

namespace detail {
/// In zstd.cpp or no_zstd.cpp.
[[nodiscard]] std::unique_ptr<ByteStream> open_zstd(std::filesystem::path const& path);
} // namespace detail

/// The files that `input` names: the file itself; if there is no such file, the names that match its *, ? and [..], in ascending order; or
/// several of these separated by commas. Throws UserError if there are none.
[[nodiscard]] std::vector<std::filesystem::path> input_files(std::string const& input);

struct DocumentFile {
  std::filesystem::path path;
  std::int64_t num_bytes = 0;
  bool has_lines = false; // JSONL
};

/// The sizes and formats of files: .jsonl and .ndjson, before .gz or .zst, are JSONL.
[[nodiscard]] std::vector<DocumentFile> describe_files(std::vector<std::filesystem::path> const& paths);

/// Receives the documents of a part.
struct DocumentSink {
  std::function<void()> begin_document; // not called for an empty document
  std::function<void(std::string_view)>
      take_text; // a document's text, in pieces; tokens do not cross their ends
};

struct DocumentParts {
  std::string field = "text"; // member of each line of JSONL with the text
  bool cuts_texts =
      true; // texts may be cut at first_cut() and last_cut(), see bpe/pieces.hpp; otherwise one part has all of a text
  std::int64_t num_parts = 1;
};

/// Reads part `part` of the documents. Throws UserError if they cannot be read or a line has no such field.
void read_documents(std::vector<DocumentFile> const& files, DocumentParts const& parts, std::int64_t part,
                    DocumentSink const& sink);

/// Calls work(part) for `count` parts from `first` on, each on its own thread. Returns the results in order. Rethrows what one of them throws.
template<class Work>
auto on_threads(std::int64_t first, std::int64_t count, Work const& work) {
  std::vector<std::future<std::invoke_result_t<Work, std::int64_t>>> running;
  for (auto part = first; part < first + count; ++part)
    running.push_back(std::async(std::launch::async, [&work, part] { return work(part); }));
  std::vector<std::invoke_result_t<Work, std::int64_t>> results;
  for (auto& one : running)
    results.push_back(one.get());
  return results;
}

} // namespace orthant::tokens

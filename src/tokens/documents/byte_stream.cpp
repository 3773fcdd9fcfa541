// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/byte_stream.hpp"

#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/unique_handle.hpp"

#include <algorithm>
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

} // namespace orthant::tokens

// SPDX-License-Identifier: Apache-2.0
#include "runtime/error.hpp"
#include "tokens/documents/documents.hpp"

#include <zstd.h>

namespace orthant::tokens::detail {
namespace {

struct FreeStream {
  void operator()(ZSTD_DStream* stream) const noexcept { ZSTD_freeDStream(stream); }
};

class ZstdText : public ByteStream {
 public:
  explicit ZstdText(std::filesystem::path const& path)
      : name_(path.string()),
        file_(open_range(path, 0, static_cast<std::int64_t>(std::filesystem::file_size(path)))),
        stream_(ZSTD_createDStream()) {
    if (!stream_) runtime::throw_user("cannot read {}: there is no memory to decompress it", name_);
  }

  bool append_to(std::string& text) override {
    auto const before = text.size();
    while (text.size() == before) {
      if (used_ == compressed_.size()) {
        compressed_.clear();
        used_ = 0;
        if (!file_->append_to(compressed_)) {
          if (wanted_ != 0) runtime::throw_user("{} is damaged: it ends too early", name_);
          return false;
        }
      }
      text.resize(before + ZSTD_DStreamOutSize());
      ZSTD_inBuffer in{compressed_.data(), compressed_.size(), used_};
      ZSTD_outBuffer out{text.data() + before, text.size() - before, 0};
      wanted_ = ZSTD_decompressStream(stream_.get(), &out, &in);
      text.resize(before + out.pos);
      used_ = in.pos;
      if (ZSTD_isError(wanted_) != 0)
        runtime::throw_user("{} is damaged: {}", name_, ZSTD_getErrorName(wanted_));
    }
    return true;
  }

 private:
  std::string name_;
  std::unique_ptr<ByteStream> file_;
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  std::string compressed_;
  std::size_t used_ = 0;   // of compressed_
  std::size_t wanted_ = 0; // 0: at the end of a frame
};

} // namespace

std::unique_ptr<ByteStream> open_zstd(std::filesystem::path const& path) {
  return std::make_unique<ZstdText>(path);
}

} // namespace orthant::tokens::detail

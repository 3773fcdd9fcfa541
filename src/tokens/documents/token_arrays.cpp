// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/token_arrays.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/range.hpp"
#include "tokens/tokenize.hpp"

#include <algorithm>
#include <cstring>

namespace orthant::tokens {
namespace {

using runtime::throw_user;
namespace fs = std::filesystem;

class ArrayFile {
 public:
  explicit ArrayFile(fs::path const& path) : bytes_(runtime::open_file_bytes(path)), name_(path.string()) {}

  [[nodiscard]] std::int64_t size() const { return bytes_->size(); }
  [[nodiscard]] std::string const& name() const { return name_; }
  /// The text of `count` bytes, fewer at the end of the file.
  [[nodiscard]] std::string text(std::int64_t offset, std::int64_t count) {
    std::string text(static_cast<std::size_t>(std::clamp<std::int64_t>(size() - offset, 0, count)), '\0');
    if (!text.empty()) bytes_->read(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }
  template<class T>
  [[nodiscard]] T number(std::int64_t offset) {
    auto const bytes = text(offset, sizeof(T));
    if (bytes.size() < sizeof(T)) throw_user("{} is damaged: it ends too early", name_);
    T number{};
    std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }

 private:
  std::unique_ptr<runtime::ByteSource> bytes_;
  std::string name_;
};

/// The numbers from `offset_bytes` to the end of the file.
TokenArray rest_of(ArrayFile const& file, std::int64_t offset_bytes, int width, bool is_signed) {
  auto const bytes = file.size() - offset_bytes;
  if (bytes < 0 || bytes % width != 0)
    throw_user("{} is damaged: its {} bytes of tokens are no multiple of {}", file.name(), bytes, width);
  return {file.name(), offset_bytes, bytes / width, width, is_signed};
}

TokenArray describe_npy(ArrayFile& file) {
  constexpr std::int64_t most_header = std::int64_t{1} << 16;
  constexpr auto digits = "0123456789";
  constexpr int decimal = 10;
  auto const head = file.text(0, 8);
  if (head.size() < 8 || !head.starts_with("\x93NUMPY")) throw_user("{} is no NumPy array", file.name());
  auto const is_old = head[6] == 1;
  auto const begin = is_old ? std::int64_t{10} : std::int64_t{12};
  auto const length =
      is_old ? std::int64_t{file.number<std::uint16_t>(8)} : std::int64_t{file.number<std::uint32_t>(8)};
  auto const header = file.text(begin, std::min(length, most_header));
  auto const after = [&](std::string_view key, std::string_view first, char last) -> std::string {
    auto const place = header.find(key);
    auto const from = place == std::string::npos ? place : header.find(first, place + key.size());
    auto const to = from == std::string::npos ? from : header.find(last, from + first.size());
    if (to == std::string::npos) throw_user("{} is damaged: its header cannot be read", file.name());
    return header.substr(from + first.size(), to - from - first.size());
  };
  auto const type = after("'descr'", "'", '\'');
  auto const is_integer = type.size() == 3 && (type[0] == '<' || type[0] == '|') &&
                          (type[1] == 'i' || type[1] == 'u') &&
                          (type[2] == '1' || type[2] == '2' || type[2] == '4' || type[2] == '8');
  if (!is_integer)
    throw_user("{} has numbers of the type {}; token numbers are little-endian integers", file.name(), type);
  if (after("'fortran_order'", ":", ',').find("True") != std::string::npos)
    throw_user("{} is in Fortran order; save it in C order", file.name());
  auto found = rest_of(file, begin + length, type[2] - '0', type[1] == 'i');
  auto const shape = after("'shape'", "(", ')');
  std::int64_t count = 1;
  for (auto at = shape.find_first_of(digits); at != std::string::npos && count <= found.count;
       at = shape.find_first_of(digits, shape.find(',', at))) {
    count = runtime::checked_product(count, std::strtoll(shape.c_str() + at, nullptr, decimal),
                                     "the shape of " + file.name());
  }
  if (count != found.count)
    throw_user("{} is damaged: it has {} numbers, and its shape is ({})", file.name(), found.count, shape);
  return found;
}

TokenArray describe_megatron(fs::path const& path, ArrayFile& index) {
  constexpr std::int64_t type_offset = 17; // after the mark and the version
  struct Kind {
    int width;
    bool is_signed;
  };
  constexpr std::array<Kind, 9> kinds{{{0, false},
                                       {1, false},
                                       {1, true},
                                       {2, true},
                                       {4, true},
                                       {8, true},
                                       {0, false},
                                       {0, false},
                                       {2, false}}};
  auto const code = index.number<std::uint8_t>(type_offset);
  if (code >= kinds.size() || kinds[code].width == 0)
    throw_user("{} has numbers of the type {}, which is no type of whole numbers", index.name(), code);
  auto const [width, is_signed] = kinds[code];
  auto const found = rest_of(ArrayFile(path), 0, width, is_signed);
  auto const sequences = static_cast<std::int64_t>(index.number<std::uint64_t>(type_offset + 1));
  auto const lengths =
      index.text(type_offset + 17, 4 * std::clamp<std::int64_t>(sequences, 0, index.size() / 4));
  std::int64_t count = 0;
  for (std::size_t at = 0; at + 4 <= lengths.size(); at += 4) {
    std::int32_t length = 0;
    std::memcpy(&length, lengths.data() + at, sizeof(length));
    count += length;
  }
  if (count != found.count || std::ssize(lengths) / 4 != sequences)
    throw_user("{} has {} tokens, and {} says {}", path.string(), found.count, index.name(), count);
  return found;
}

TokenArray describe_bin(fs::path const& path, std::int64_t vocabulary_size) {
  constexpr std::int64_t header_bytes = 1024;
  constexpr std::int32_t short_magic = 20240520;
  constexpr std::int32_t long_magic = 20240801;
  auto index_path = path;
  index_path.replace_extension(".idx");
  if (fs::is_regular_file(index_path)) {
    ArrayFile index(index_path);
    if (index.text(0, 7) == "MMIDIDX") return describe_megatron(path, index);
  }
  ArrayFile file(path);
  auto const magic = file.size() >= header_bytes ? file.number<std::int32_t>(0) : 0;
  if (magic == short_magic || magic == long_magic) {
    auto const found = rest_of(file, header_bytes, magic == short_magic ? 2 : 4, false);
    if (auto const count = file.number<std::int32_t>(8); count != found.count)
      throw_user("{} is damaged: it has {} tokens, and its header says {}", file.name(), found.count, count);
    return found;
  }
  return rest_of(file, 0, token_type(vocabulary_size) == runtime::Hdf5Type::uint16 ? 2 : 4, false);
}

/// Calls take(number) for the numbers [begin, end) of a file.
template<class Take>
void for_each_number(TokenArray const& array, runtime::Range range, Take&& take) {
  constexpr std::int64_t most_at_once = std::int64_t{1} << 18;
  ArrayFile file(array.path);
  for (auto begin = range.begin; begin < range.end; begin += most_at_once) {
    auto const count = std::min(most_at_once, range.end - begin);
    auto const bytes = file.text(array.offset_bytes + begin * array.width, count * array.width);
    for (std::size_t at = 0; at + static_cast<std::size_t>(array.width) <= bytes.size();
         at += static_cast<std::size_t>(array.width)) {
      std::uint64_t number = 0;
      std::memcpy(&number, bytes.data() + at, static_cast<std::size_t>(array.width));
      auto const unused = static_cast<unsigned>(64 - 8 * array.width);
      take(array.is_signed ? static_cast<std::int64_t>(number << unused) >> unused
                           : static_cast<std::int64_t>(number));
    }
  }
}

bool is_token_array(fs::path const& path) {
  return path.extension() == ".npy" || path.extension() == ".bin" || path.extension() == ".idx";
}

/// The files, except .idx files whose .bin file is also named.
std::vector<fs::path> without_second_names(std::vector<fs::path> paths) {
  auto const all = paths;
  std::erase_if(paths, [&](fs::path const& path) {
    return path.extension() == ".idx" &&
           std::ranges::find(all, fs::path(path).replace_extension(".bin")) != all.end();
  });
  return paths;
}

} // namespace

bool are_token_arrays(std::vector<fs::path> const& paths) {
  auto const array = std::ranges::find_if(paths, is_token_array);
  auto const text = std::ranges::find_if_not(paths, is_token_array);
  if (array != paths.end() && text != paths.end())
    throw_user("'{}' holds token numbers, and '{}' is a text; convert them one after the other",
               array->string(), text->string());
  return array != paths.end();
}

TokenArray describe_token_array(fs::path const& path, std::int64_t vocabulary_size) {
  if (path.extension() == ".idx")
    return describe_token_array(fs::path(path).replace_extension(".bin"), vocabulary_size);
  if (path.extension() == ".bin") return describe_bin(path, vocabulary_size);
  ArrayFile file(path);
  return describe_npy(file);
}

TokenFacts copy_tokens(runtime::Communicator const& comm, DocumentOptions const& options,
                       TokenizerFile const& tokenizer_file) {
  Tokenizer const tokenizer(tokenizer_file.definition, tokenizer_file.name);
  auto const& vocabulary = tokenizer.vocabulary();
  auto const end = find_end_token(tokenizer.definition(), options.end_token);
  auto const arrays = runtime::together(comm, [&] {
    std::vector<TokenArray> described;
    for (auto const& path : without_second_names(input_files(options.input)))
      described.push_back(describe_token_array(path, vocabulary.size()));
    return described;
  });
  std::int64_t all = 0;
  for (auto const& array : arrays)
    all += array.count;
  auto const share = runtime::balanced_range(all, comm.size(), comm.rank());
  // Calls take(number) for each number of a range.
  auto const for_range = [&](runtime::Range const& range, auto&& take) {
    std::int64_t first = 0;
    for (auto const& array : arrays) {
      runtime::Range const part{std::max<std::int64_t>(range.begin - first, 0),
                                std::min(range.end - first, array.count)};
      for_each_number(array, part, [&](std::int64_t id) {
        if (id < 0 || id >= vocabulary.size())
          throw_user("{} holds the token {}, and the tokenizer has {} tokens", array.path.string(), id,
                     vocabulary.size());
        take(static_cast<std::uint32_t>(id));
      });
      first += array.count;
    }
  };
  // A document begins at a token that is first or follows the end token, and is not the end token.
  std::int64_t num_documents = 0;
  runtime::together(comm, [&] {
    auto at = std::max<std::int64_t>(share.begin - 1, 0);
    auto follows_end = true;
    for_range({at, share.end}, [&](std::uint32_t id) {
      auto const is_end = end && id == *end;
      if (at++ >= share.begin && follows_end && !is_end) ++num_documents;
      follows_end = is_end;
    });
  });

  auto facts = bpe_facts(options.input, tokenizer_file, end);
  facts.num_documents = runtime::all_reduced(comm, num_documents);
  TokenOutput output(comm, options.output, facts, options.train_fraction, share.size(), vocabulary,
                     tokenizer_file.json);
  runtime::together(comm, [&] {
    for_range(share, [&](std::uint32_t id) {
      output.take(id, end && id == *end ? 0 : vocabulary.text_of(id).size());
    });
  });
  return output.publish();
}

} // namespace orthant::tokens

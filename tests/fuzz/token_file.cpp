// SPDX-License-Identifier: Apache-2.0
//
// A token file whose facts and arrays lie, with the checksum of its facts right: a small one with edits from the input
// (hdf5_arrays.hpp), opened, verified and read. Checksums of the arrays are those of the edited ones where the facts can
// be read at all.

#include "tokens/token_file.hpp"
#include "fuzz/fuzz_target.hpp"
#include "fuzz/hdf5_arrays.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <cstring>

namespace {

using namespace orthant;
using runtime::Hdf5File;

fuzz::EditedArrays make_small_file() {
  auto file = Hdf5File::create_in_memory("small");
  tokens::Vocabulary const vocabulary("ab\n", {1, 2, 3});
  tokens::TokenFacts facts{"text.txt", tokens::TokenizerKind::character, vocabulary.size(), {}, 0};
  for (auto const part : tokens::all_parts) {
    std::vector<std::uint16_t> const ids{0, 1, 0, 2, 1};
    facts.parts[static_cast<std::size_t>(part)] = {std::ssize(ids), std::ssize(ids), 0};
    file.create_array(tokens::array_of(part), runtime::Hdf5Type::uint16, {std::ssize(ids)});
    file.write(tokens::array_of(part), {0}, {std::ssize(ids)}, std::span(ids));
  }
  auto const* const bytes = reinterpret_cast<std::uint8_t const*>(vocabulary.bytes().data());
  file.create_array(tokens::bytes_array, runtime::Hdf5Type::uint8, {vocabulary.size()});
  file.write(tokens::bytes_array, {0}, {vocabulary.size()},
             std::span(bytes, static_cast<std::size_t>(vocabulary.size())));
  file.create_array(tokens::ends_array, runtime::Hdf5Type::int64, {vocabulary.size()});
  file.write(tokens::ends_array, {0}, {vocabulary.size()}, std::span<std::int64_t const>(vocabulary.ends()));
  return {facts.to_json(), fuzz::read_arrays(file)};
}

std::uint64_t sum_of(fuzz::Hdf5Content const& array) {
  if (array.extents.size() != 1) return 0;
  return fuzz::with_type(array.type, [&]<class T>(T) {
    std::vector<T> numbers(array.bytes.size() / sizeof(T));
    if (!numbers.empty()) std::memcpy(numbers.data(), array.bytes.data(), array.bytes.size());
    return runtime::sum_of_box<T>(array.extents, {0}, array.extents, std::span<T const>(numbers));
  });
}

/// The facts with the checksums that the arrays have; as they are if they cannot be read.
std::string with_right_sums(std::string const& text, fuzz::Hdf5Arrays const& arrays) {
  try {
    auto facts = tokens::TokenFacts::from_json(text, "edited");
    for (auto const part : tokens::all_parts)
      facts.parts[static_cast<std::size_t>(part)].sum = sum_of(arrays.at(tokens::array_of(part)));
    facts.sum_of_vocabulary = sum_of(arrays.at(tokens::bytes_array)) + sum_of(arrays.at(tokens::ends_array));
    return facts.to_json();
  } catch (runtime::UserError const&) {
    return text;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static auto const small = make_small_file();
  static fuzz::ScratchFolder const folder;
  auto [facts, arrays] = fuzz::edited(small, std::span(data, size));
  facts = with_right_sums(facts, arrays);

  auto edited = Hdf5File::create_in_memory("edited");
  fuzz::write_arrays(edited, arrays);
  edited.write_attribute("/", "format", std::string(tokens::file_format));
  edited.write_attribute("/", "version", tokens::file_version);
  edited.write_attribute("/", "facts", facts);
  edited.write_attribute("/", "facts_sum", tokens::sum_of(facts));
  auto const image = edited.image();
  auto const path = folder.write("tokens.h5", {reinterpret_cast<char const*>(image.data()), image.size()});

  return fuzz::accept_or_refuse([&] {
    auto file = tokens::TokenFile::open(fuzz::single_rank(), path);
    for (std::int64_t token = 0; token < file.vocabulary().size(); ++token)
      if (file.vocabulary().text_of(token).empty() && file.facts().tokenizer != tokens::TokenizerKind::bpe)
        __builtin_trap();
    file.verify(fuzz::single_rank());
    for (auto const part : tokens::all_parts) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(file.num_tokens(part)));
      file.read(part, 0, ids);
      for (auto const id : ids)
        if (id < 0 || id >= file.facts().vocabulary_size) __builtin_trap();
    }
  });
}

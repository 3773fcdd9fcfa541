// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/text_tokenizer.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "tokens/bpe/tokenizer_files.hpp"
#include "tokens/token_file.hpp"

#include <algorithm>

namespace orthant::tokens {

TextTokenizer TextTokenizer::of_json(std::string const& json, std::string const& name) {
  TextTokenizer made(name);
  auto definition = read_tokenizer_json(json, name);
  if (auto const end = find_end_token(definition, {})) made.end_token_ = static_cast<std::int32_t>(*end);
  made.bpe_ = std::make_shared<Tokenizer const>(std::move(definition), name);
  return made;
}

TextTokenizer TextTokenizer::read(runtime::Communicator const& comm, std::filesystem::path const& path) {
  TextTokenizer made(path.string());
  if (path == "byte") {
    made.vocabulary_ = Vocabulary::of_bytes();
  } else if (path.extension() == ".h5") {
    auto const file = TokenFile::open(comm, path);
    if (file.facts().bpe) {
      auto const json = file.tokenizer_json(comm);
      auto of_file = runtime::together(comm, [&] { return of_json(json, path.string()); });
      if (auto const end = file.facts().bpe->end_token) of_file.end_token_ = static_cast<std::int32_t>(*end);
      return of_file;
    }
    made.vocabulary_ = file.vocabulary();
  } else {
    auto file = read_tokenizer(comm, path, {});
    return runtime::together(comm, [&] {
      if (auto const end = find_end_token(file.definition, {}))
        made.end_token_ = static_cast<std::int32_t>(*end);
      made.bpe_ = std::make_shared<Tokenizer const>(std::move(file.definition), path.string());
      return made;
    });
  }
  for (std::int32_t id = 0; id < made.vocabulary_.size(); ++id)
    made.ids_.emplace(made.vocabulary_.text_of(id), id);
  return made;
}

std::vector<std::int32_t> TextTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  if (bpe_) {
    std::vector<std::uint32_t> numbers;
    Encoder(*bpe_).encode(text, numbers);
    ids.assign(numbers.begin(), numbers.end());
    return ids;
  }
  while (!text.empty()) {
    auto const num_bytes = ids_.contains(text.substr(0, 1)) ? 1 : first_character(text).num_bytes;
    auto const found = ids_.find(text.substr(0, num_bytes));
    if (num_bytes == 0 || found == ids_.end())
      runtime::throw_user("the text has '{}', which is no token of '{}'",
                          to_valid_utf8(text.substr(0, std::max<std::size_t>(num_bytes, 1))), name_);
    ids.push_back(found->second);
    text.remove_prefix(num_bytes);
  }
  return ids;
}

std::string_view TextTokenizer::text_of(std::int32_t token) const {
  return token < vocabulary().size() ? vocabulary().text_of(token) : std::string_view();
}

std::string to_valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    auto const num_bytes = first_character(text).num_bytes;
    if (num_bytes == 0) valid += to_utf8(0xfffd);
    valid += text.substr(0, num_bytes);
    text.remove_prefix(std::max<std::size_t>(num_bytes, 1));
  }
  return valid;
}

std::size_t unfinished_character(std::string_view text) {
  for (std::size_t count = 1; count < longest_character && count <= text.size(); ++count) {
    auto const first = text[text.size() - count];
    if (continues_character(first)) continue;
    return length_of_character(first) > count ? count : 0;
  }
  return 0;
}

} // namespace orthant::tokens

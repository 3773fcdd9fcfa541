#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A model of general.architecture "llama" in a GGUF file (gguf_file.hpp), seen as one of Hugging Face: its settings as a config.json, its
// tensors under the names of transformers, its tokenizer as a tokenizer.json.
//
// llama.cpp rotates neighboring numbers of a head, and transformers the two halves, so its converter permutes the rows of the queries' and
// keys' matrices. The inverse, for a head of d rows:
//
//   row j d/2 + i of Hugging Face = row 2 i + j of the file,  i < d/2, j < 2

#include "models/lm/files/gguf_file.hpp"
#include "models/lm/files/hf_config.hpp"

#include <map>
#include <span>

namespace orthant::models {

class GgufModel {
 public:
  static constexpr auto settings_name = "its metadata"; // for messages

  /// Throws UserError if the file is damaged, or if the model cannot be computed here; names the key.
  explicit GgufModel(std::filesystem::path const& path);

  [[nodiscard]] HfConfig const& config() const { return config_; }
  /// Text of a tokenizer.json; empty if the tokenizer is not one of GPT-2's or SmolLM's kind, with tokenizer_kind() for messages.
  [[nodiscard]] std::string const& tokenizer() const { return tokenizer_; }
  [[nodiscard]] std::string tokenizer_kind() const;

  // Tensors by their names in transformers; a tensor without such a name has that of the file.
  [[nodiscard]] GgufTensor const* find(std::string const& name) const;
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] static std::string named(std::string const& name) { return name; }
  [[nodiscard]] static bool has_doubles() { return false; }
  /// Numbers of whole rows of a tensor in the order of transformers.
  template<class T>
  [[nodiscard]] std::vector<T> read(std::string const& name, runtime::Range range) const {
    auto const numbers = read_floats(name, range);
    return {numbers.begin(), numbers.end()};
  }

 private:
  [[nodiscard]] std::vector<float> read_floats(std::string const& name, runtime::Range range) const;

  GgufFile file_;
  std::map<std::string, GgufTensor> tensors_;
  HfConfig config_;
  std::string tokenizer_;
};

} // namespace orthant::models

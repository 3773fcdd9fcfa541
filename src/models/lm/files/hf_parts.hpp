#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Maps the numbers of Orthant's parameters ("ours") to the tensors of a model of Hugging Face ("theirs", hf_weights.hpp).

#include "models/lm/files/hf_config.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace orthant::models {

/// Adjacent columns of one of their matrices as columns of ours: their_first + k there is our_first + k our_step here, k < count.
struct Columns {
  std::string tensor;
  std::int64_t count = 0;
  std::int64_t their_first = 0;
  std::int64_t our_first = 0;
  std::int64_t our_step = 1;
};

/// One of our parameters: its name, its shape [in x out] or [out], and where its columns are.
struct Part {
  std::string parameter;
  runtime::Hdf5File::Extents extents;
  std::vector<Columns> columns;
  bool is_out_in = true; // their matrices are [out x in]
};

/// The parameters of a model, with the names of a family.
[[nodiscard]] std::vector<Part> parts_of(HfFamily family, TransformerSettings const& settings);

/// Number of rows of a part's matrices; 1 for a vector.
[[nodiscard]] std::int64_t num_rows(Part const& part);
/// Shape of the tensor of Hugging Face that `columns` of `part` belong to.
[[nodiscard]] std::vector<std::int64_t> their_shape(Part const& part, std::string const& tensor);
/// Index of row i, column j in the memory of a tensor of Hugging Face with `count` columns.
[[nodiscard]] std::int64_t their_index(Part const& part, std::int64_t count, std::int64_t i, std::int64_t j);

/// Calls move(their index, our index) for all numbers of `columns`, whose tensor has `count` columns.
template<class Move>
void for_each_number(Part const& part, Columns const& columns, std::int64_t count, Move const& move) {
  for (std::int64_t i = 0; i < num_rows(part); ++i)
    for (std::int64_t k = 0; k < columns.count; ++k)
      move(their_index(part, count, i, columns.their_first + k),
           i * part.extents.back() + columns.our_first + k * columns.our_step);
}

} // namespace orthant::models

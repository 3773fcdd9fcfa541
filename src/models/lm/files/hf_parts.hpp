#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Maps the numbers of Orthant's parameters ("ours") to the tensors of a model of Hugging Face ("theirs", hf_weights.hpp).

#include "models/lm/files/hf_config.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/safetensors.hpp"
#include "runtime/range.hpp"

#include <algorithm>
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

/// A box of one of our parameters. Its numbers are in adjacent rows of their tensors: it has all of our rows if these are [out x in], and all
/// of our columns otherwise.
struct Piece {
  Part const* part = nullptr;
  runtime::Range rows, columns;
};

/// Boxes that cover all parts, each of at most `most` numbers or of a row or column. `parts` must outlive them.
[[nodiscard]] std::vector<Piece> pieces_of(std::vector<Part> const& parts,
                                           std::int64_t most = runtime::most_numbers_of_piece);

/// The numbers of a piece, row-major. read(tensor, range) must return the numbers in this range of a tensor, row-major. Holds one range in
/// addition to the result.
template<class T, class Read>
[[nodiscard]] std::vector<T> read_piece(Piece const& piece, Read const& read);
/// Numbers of the given rows of a tensor (all of a vector), row-major. read(parameter, rows, columns) must return the numbers of this box of
/// a parameter, row-major. Holds one box in addition to the result, of at most `most` numbers or a column.
template<class T, class Read>
[[nodiscard]] std::vector<T> read_their_rows(Part const& part, std::string const& tensor, runtime::Range rows,
                                             Read const& read,
                                             std::int64_t most = runtime::most_numbers_of_piece);

namespace detail {

/// The k of columns whose places in our parameter, our_first + k our_step, are in `ours`.
[[nodiscard]] runtime::Range within(Columns const& columns, runtime::Range ours);

} // namespace detail

template<class T, class Read>
std::vector<T> read_piece(Piece const& piece, Read const& read) {
  auto const& part = *piece.part;
  auto const width = piece.columns.size();
  std::vector<T> ours(static_cast<std::size_t>(piece.rows.size() * width));
  std::vector<T> theirs;
  std::string in_memory; // the tensor of `theirs`, if one range has all columns of the piece
  for (auto const& columns : part.columns) {
    auto const ks = detail::within(columns, piece.columns);
    if (ks.size() == 0) continue;
    auto const their_width = part.is_out_in ? num_rows(part) : their_shape(part, columns.tensor).back();
    if (part.is_out_in)
      theirs = read(columns.tensor, runtime::Range{(columns.their_first + ks.begin) * their_width,
                                                   (columns.their_first + ks.end) * their_width});
    else if (in_memory != columns.tensor)
      theirs =
          read(columns.tensor, runtime::Range{piece.rows.begin * their_width, piece.rows.end * their_width});
    in_memory = columns.tensor;
    auto const first = columns.our_first - piece.columns.begin;
    for (std::int64_t i = 0; i < piece.rows.size(); ++i)
      for (auto k = ks.begin; k < ks.end; ++k) {
        auto const from =
            part.is_out_in ? (k - ks.begin) * their_width + i : i * their_width + columns.their_first + k;
        ours[static_cast<std::size_t>(i * width + first + k * columns.our_step)] =
            theirs[static_cast<std::size_t>(from)];
      }
  }
  return ours;
}

template<class T, class Read>
std::vector<T> read_their_rows(Part const& part, std::string const& tensor, runtime::Range rows,
                               Read const& read, std::int64_t most) {
  auto const their_width = their_shape(part, tensor).back();
  std::vector<T> theirs(static_cast<std::size_t>(rows.size() * their_width));
  auto const our_rows = part.is_out_in ? runtime::Range{0, num_rows(part)} : rows;
  // Of rows that are whole in both, one box has all columns.
  auto const most_columns = part.is_out_in ? std::max(std::int64_t{1}, most / our_rows.size())
                                           : static_cast<std::int64_t>(part.extents.back());
  runtime::Range box; // of our columns
  std::vector<T> ours;
  for (auto const& columns : part.columns) {
    if (columns.tensor != tensor) continue;
    runtime::Range ks{0, columns.count};
    if (part.is_out_in)
      ks = {std::clamp(rows.begin - columns.their_first, std::int64_t{0}, columns.count),
            std::clamp(rows.end - columns.their_first, std::int64_t{0}, columns.count)};
    for (auto k = ks.begin; k < ks.end; ++k) {
      auto const place = columns.our_first + k * columns.our_step;
      if (place < box.begin || place >= box.end) {
        box = {place, std::min(place + most_columns, part.extents.back())};
        ours = read(part.parameter, our_rows, box);
      }
      for (std::int64_t i = 0; i < our_rows.size(); ++i) {
        auto const to = part.is_out_in ? (columns.their_first + k - rows.begin) * their_width + i
                                       : i * their_width + columns.their_first + k;
        theirs[static_cast<std::size_t>(to)] =
            ours[static_cast<std::size_t>(i * box.size() + place - box.begin)];
      }
    }
  }
  return theirs;
}

} // namespace orthant::models

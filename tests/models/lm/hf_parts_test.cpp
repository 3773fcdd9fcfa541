// SPDX-License-Identifier: Apache-2.0
//
// Parameters of language models from slices of the tensors of Hugging Face, and back, beside the mapping number by number.
#include "models/lm/files/hf_parts.hpp"

#include <gtest/gtest.h>
#include <map>
#include <numeric>

namespace orthant::testing {
namespace {

using models::HfFamily, models::Part, models::TransformerSettings, runtime::Range;
using Numbers = std::vector<double>;

struct NamedModel {
  HfFamily family;
  TransformerSettings settings;
};

/// Models whose parts have all kinds of columns: one tensor of queries, keys and values, three of them in groups, pairs of gate and up,
/// experts and shared experts, vectors and tables.
std::vector<NamedModel> models_of_test() {
  auto olmoe = models::llama_settings(2, 12, 6, 2, 11, 7);
  olmoe.feed_forward = 5;
  olmoe.query_key_norm = models::QueryKeyNorm::all;
  olmoe.experts.num_experts = 3;
  auto deepseek = models::llama_settings(3, 12, 3, 3, 11, 7);
  deepseek.feed_forward = 7;
  deepseek.experts.num_experts = 2;
  deepseek.experts.num_dense = 1;
  deepseek.experts.width = 4;
  deepseek.experts.num_shared = 3;
  return {{HfFamily::gpt2, models::gpt2_settings(2, 12, 3, 11, 7)},
          {HfFamily::olmoe, olmoe},
          {HfFamily::deepseek, deepseek}};
}

/// Tensors whose numbers are all different.
std::map<std::string, Numbers> tensors_of(std::vector<Part> const& parts) {
  std::map<std::string, Numbers> tensors;
  auto next = 0.0;
  for (auto const& part : parts)
    for (auto const& columns : part.columns) {
      if (tensors.contains(columns.tensor)) continue;
      auto size = std::int64_t{1};
      for (auto const extent : their_shape(part, columns.tensor))
        size *= extent;
      auto& numbers = tensors[columns.tensor];
      numbers.resize(static_cast<std::size_t>(size));
      std::iota(numbers.begin(), numbers.end(), next);
      next += static_cast<double>(size);
    }
  return tensors;
}

/// A parameter, number by number: column j of ours is column `their_first + k` of the tensor, which is transposed if it is [out x in].
Numbers parameter_of(Part const& part, std::map<std::string, Numbers> const& tensors) {
  auto const rows = num_rows(part), width = static_cast<std::int64_t>(part.extents.back());
  Numbers ours(static_cast<std::size_t>(rows * width), -1);
  for (auto const& columns : part.columns) {
    auto const& theirs = tensors.at(columns.tensor);
    auto const count = static_cast<std::int64_t>(theirs.size()) / rows;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t k = 0; k < columns.count; ++k) {
        auto const j = columns.their_first + k;
        auto const from = part.is_out_in ? j * rows + i : i * count + j;
        ours.at(static_cast<std::size_t>(i * width + columns.our_first + k * columns.our_step)) =
            theirs.at(static_cast<std::size_t>(from));
      }
  }
  return ours;
}

TEST(HfParts, PiecesOfAnySizeMakeTheParameters) {
  for (auto const& [family, settings] : models_of_test()) {
    auto const parts = parts_of(family, settings);
    auto const tensors = tensors_of(parts);
    for (std::int64_t const most : {1, 10, 37, 100, 100'000}) {
      std::map<std::string, Numbers> found;
      for (auto const& piece : pieces_of(parts, most)) {
        auto const width = static_cast<std::int64_t>(piece.part->extents.back());
        auto const shortest = piece.part->is_out_in ? piece.rows.size() : piece.columns.size();
        EXPECT_LE(piece.rows.size() * piece.columns.size(), std::max(most, shortest));
        std::int64_t longest = 0;
        auto const numbers = models::read_piece<double>(piece, [&](std::string const& tensor, Range range) {
          longest = std::max(longest, range.size());
          auto const& all = tensors.at(tensor);
          return Numbers(all.begin() + range.begin, all.begin() + range.end);
        });
        EXPECT_LE(longest, piece.rows.size() * piece.columns.size()) << piece.part->parameter;
        auto& ours = found[piece.part->parameter];
        ours.resize(static_cast<std::size_t>(num_rows(*piece.part) * width), -1);
        for (std::int64_t i = 0; i < piece.rows.size(); ++i)
          for (std::int64_t j = 0; j < piece.columns.size(); ++j) {
            auto& number =
                ours.at(static_cast<std::size_t>((piece.rows.begin + i) * width + piece.columns.begin + j));
            EXPECT_EQ(number, -1) << "twice";
            number = numbers.at(static_cast<std::size_t>(i * piece.columns.size() + j));
          }
      }
      for (auto const& part : parts)
        EXPECT_EQ(found.at(part.parameter), parameter_of(part, tensors)) << part.parameter << ", " << most;
    }
  }
}

TEST(HfParts, RowsOfTensorsComeFromBoxesOfTheParameters) {
  for (auto const& [family, settings] : models_of_test()) {
    auto const parts = parts_of(family, settings);
    auto const tensors = tensors_of(parts);
    for (auto const& part : parts) {
      auto const ours = parameter_of(part, tensors);
      auto const width = static_cast<std::int64_t>(part.extents.back());
      auto const read = [&](std::string const& parameter, Range rows, Range columns) {
        EXPECT_EQ(parameter, part.parameter);
        Numbers box;
        for (auto i = rows.begin; i < rows.end; ++i)
          for (auto j = columns.begin; j < columns.end; ++j)
            box.push_back(ours.at(static_cast<std::size_t>(i * width + j)));
        return box;
      };
      for (auto const& columns : part.columns)
        for (std::int64_t const most : {1, 20, 100'000})
          for (std::int64_t const step : {1, 4, 1000}) {
            auto const shape = their_shape(part, columns.tensor);
            auto const count = shape.size() == 1 ? 1 : shape.front();
            Numbers theirs;
            for (std::int64_t row = 0; row < count; row += step) {
              auto const some = models::read_their_rows<double>(
                  part, columns.tensor, {row, std::min(row + step, count)}, read, most);
              theirs.insert(theirs.end(), some.begin(), some.end());
            }
            EXPECT_EQ(theirs, tensors.at(columns.tensor)) << columns.tensor << ", " << most << ", " << step;
          }
    }
  }
}

} // namespace
} // namespace orthant::testing

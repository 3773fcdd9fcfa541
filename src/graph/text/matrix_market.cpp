// SPDX-License-Identifier: Apache-2.0
#include "graph/text/matrix_market.hpp"

#include "graph/text/text_blocks.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <string>

namespace orthant::graph {

namespace {
constexpr std::string_view banner = "%%matrixmarket";

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

void read_banner(TextBlocks const& blocks, char const* line, MatrixMarketHead& head) {
  std::istringstream words(lower_case(text::excerpt(line, 200)));
  std::string start;
  std::string object;
  std::string form;
  std::string field;
  std::string symmetry;
  words >> start >> object >> form >> field >> symmetry;
  std::string extra;
  if (words >> extra) blocks.fail(line, fmt::format("\"{}\" after the five words of the first line", extra));
  if (start != banner)
    blocks.fail(line, "a MatrixMarket file begins with \"%%MatrixMarket matrix coordinate ..\"");
  auto const expect = [&](std::string const& word, std::initializer_list<char const*> known) {
    if (std::ranges::none_of(known, [&](auto const* candidate) { return word == candidate; })) {
      std::string list;
      for (auto const* const candidate : known)
        list += (list.empty() ? "" : ", ") + std::string(candidate);
      blocks.fail(line, fmt::format("\"{}\" is not a graph that can be read; known here: {}", word, list));
    }
  };
  expect(object, {"matrix"});
  expect(form, {"coordinate"});
  expect(field, {"pattern", "real", "integer", "double"});
  expect(symmetry, {"general", "symmetric"});
  head.has_values = field != "pattern";
  head.has_integers = field == "integer";
  head.is_symmetric = symmetry == "symmetric";
}

void read_sizes(TextBlocks const& blocks, char const* line, MatrixMarketHead& head) {
  std::array<std::int64_t, 3> sizes{};
  auto const* p = text::skip_blanks(line);
  for (auto& size : sizes) {
    p = text::parse_natural(p, size);
    if (p == nullptr)
      blocks.fail(line, fmt::format("\"{}\" is not \"rows columns entries\"", text::excerpt(line)));
    p = text::skip_blanks(p);
  }
  if (*p != '\n')
    blocks.fail(line, fmt::format("\"{}\" is not \"rows columns entries\"", text::excerpt(line)));
  if (sizes[0] != sizes[1])
    blocks.fail(line, fmt::format("the matrix has {} rows and {} columns; that of a graph is square",
                                  sizes[0], sizes[1]));
  head.num_vertices = sizes[0];
  head.num_entries = sizes[2];
}

} // namespace

bool is_matrix_market(std::filesystem::path const& path) {
  return lower_case(first_line(path)).starts_with(banner);
}

MatrixMarketHead read_matrix_market_head(std::filesystem::path const& path) {
  TextBlocks blocks(path, {});
  MatrixMarketHead head;
  for (auto block = blocks.next(); !block.empty(); block = blocks.next()) {
    for (auto const* line = block.data(); line != block.data() + block.size();
         line = text::line_end(line) + 1) {
      auto const* const p = text::skip_blanks(line);
      if (head.num_lines++ == 0) {
        read_banner(blocks, line, head);
      } else if (*p != '%' && *p != '\n') {
        read_sizes(blocks, line, head);
        head.first_byte = blocks.byte_of(text::line_end(line) + 1);
        return head;
      }
    }
  }
  blocks.fail_at_end("the line \"rows columns entries\" is missing");
}

} // namespace orthant::graph

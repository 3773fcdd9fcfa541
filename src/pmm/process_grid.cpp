// SPDX-License-Identifier: Apache-2.0
#include "pmm/process_grid.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

namespace orthant::pmm {
namespace {

/// The ranks whose coordinates differ on `axis` only: they agree on the rank of the one that stands at 0.
Communicator split_along(Communicator const& world, GridShape const& shape, Coordinates coordinates,
                         Axis axis) {
  auto const key = coordinates.along(axis);
  coordinates.along(axis) = 0;
  return world.split(rank_of(shape, coordinates), key, std::string(name_of(axis)));
}

std::vector<int> parse_factors(std::string_view text) {
  std::vector<int> factors;
  auto const* position = text.data();
  auto const* const end = text.data() + text.size();
  while (true) {
    int factor = 0;
    auto const [next, error] = std::from_chars(position, end, factor);
    if (error != std::errc{} || factor < 1) return {};
    factors.push_back(factor);
    if (next == end) return factors;
    if (*next != 'x') return {};
    position = next + 1;
  }
}

} // namespace

std::string_view name_of(Axis axis) {
  switch (axis) {
  case Axis::x:
    return "x";
  case Axis::y:
    return "y";
  case Axis::z:
    return "z";
  case Axis::data:
    return "data";
  }
  return "unknown";
}

int GridShape::size(Axis axis) const {
  switch (axis) {
  case Axis::x:
    return x;
  case Axis::y:
    return y;
  case Axis::z:
    return z;
  case Axis::data:
    return data;
  }
  return 0;
}

std::string GridShape::to_string() const {
  return fmt::format("{}x{}x{}x{}", data, x, y, z);
}

GridShape parse_grid(std::string_view text, int num_ranks) {
  if (text == "auto") return near_cubic(num_ranks);
  auto const factors = parse_factors(text);
  auto const example = near_cubic(num_ranks).to_string();
  if (factors.size() != 4)
    runtime::throw_user(
        "--grid '{}' is not a grid; write data x X x Y x Z, such as --grid {}, or --grid auto", text,
        example);
  constexpr auto most_ranks = std::int64_t{1} << 30;
  auto product = std::int64_t{1};
  for (auto const factor : factors)
    product = std::min(product * factor, most_ranks + 1); // cannot overflow
  if (product != num_ranks)
    runtime::throw_user("--grid {} is for {} ranks, but the job has {}; for example --grid {}", text,
                        product > most_ranks ? "far more" : std::to_string(product), num_ranks, example);
  return {factors[0], factors[1], factors[2], factors[3]};
}

std::vector<GridShape> all_shapes(int num_ranks, int data) {
  std::vector<GridShape> shapes;
  if (num_ranks % data != 0) return shapes;
  auto const group = num_ranks / data;
  for (int x = 1; x <= group; ++x)
    for (int y = 1; group % x == 0 && y <= group / x; ++y)
      if (group / x % y == 0) shapes.push_back({data, x, y, group / x / y});
  return shapes;
}

GridShape near_cubic(int num_ranks) {
  auto const cost = [](GridShape const& s) { return std::tuple(s.x + s.y + s.z, -s.x, -s.y); };
  GridShape best{1, num_ranks, 1, 1};
  for (auto const& shape : all_shapes(num_ranks))
    if (cost(shape) < cost(best)) best = shape;
  return best;
}

int Coordinates::along(Axis axis) const {
  return Coordinates(*this).along(axis);
}

int& Coordinates::along(Axis axis) {
  switch (axis) {
  case Axis::x:
    return x;
  case Axis::y:
    return y;
  case Axis::z:
    return z;
  case Axis::data:
    break;
  }
  return data;
}

Coordinates coordinates_of(GridShape const& shape, int rank) {
  Coordinates c;
  c.y = rank % shape.y;
  c.x = rank / shape.y % shape.x;
  c.z = rank / (shape.y * shape.x) % shape.z;
  c.data = rank / (shape.y * shape.x * shape.z);
  return c;
}

int rank_of(GridShape const& shape, Coordinates const& c) {
  return c.y + shape.y * (c.x + shape.x * (c.z + shape.z * c.data));
}

ProcessGrid::ProcessGrid(Communicator const& world, GridShape const& shape)
    : world_(world),
      shape_(shape),
      coordinates_(coordinates_of(shape, world.rank())),
      axes_{split_along(world, shape, coordinates_, Axis::x),
            split_along(world, shape, coordinates_, Axis::y),
            split_along(world, shape, coordinates_, Axis::z),
            split_along(world, shape, coordinates_, Axis::data)},
      group_(world.split(coordinates_.data, world.rank(), "group")) {
  ORTHANT_REQUIRE(shape.num_ranks() == world.size(), "grid ", shape.to_string(), " on ", world.size(),
                  " ranks");
}

} // namespace orthant::pmm

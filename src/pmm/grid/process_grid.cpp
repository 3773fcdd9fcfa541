// SPDX-License-Identifier: Apache-2.0
#include "pmm/grid/process_grid.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <tuple>

namespace orthant::pmm {
namespace {

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
  case Axis::expert:
    return "expert";
  case Axis::pipe:
    return "pipe";
  case Axis::context:
    return "context";
  }
  return "unknown";
}

std::string name_of(AxisSet axes) {
  if (axes == group_axes) return "group";
  if (axes == AxisSet{}) return "none";
  std::string name;
  for (auto const axis : nested_axes)
    if (axes.contains(axis)) name.append(name.empty() ? "" : "+").append(name_of(axis));
  return name;
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
  case Axis::expert:
    return expert;
  case Axis::pipe:
    return pipe;
  case Axis::context:
    return context;
  }
  return 0;
}

int GridShape::size(AxisSet axes) const {
  auto product = 1;
  for (auto const axis : nested_axes)
    if (axes.contains(axis)) product *= size(axis);
  return product;
}

std::string GridShape::to_string() const {
  auto text = fmt::format("{}x{}x{}x{}", data, x, y, z);
  if (expert > 1) text += fmt::format(", expert {}", expert);
  if (context > 1) text += fmt::format(", context {}", context);
  if (pipe > 1) text += fmt::format(", pipe {}", pipe);
  return text;
}

std::optional<GridShape> read_grid(std::string_view text) {
  auto const factors = parse_factors(text);
  if (factors.size() != 4) return std::nullopt;
  constexpr auto most_ranks = std::int64_t{1} << 30;
  auto product = std::int64_t{1};
  for (auto const factor : factors)
    product = std::min(product * factor, most_ranks + 1); // cannot overflow
  if (product > most_ranks) return std::nullopt;
  return GridShape{factors[0], factors[1], factors[2], factors[3]};
}

GridShape parse_grid(std::string_view text, int num_ranks) {
  if (text == "auto") return near_cubic(num_ranks);
  auto const shape = read_grid(text);
  if (shape && shape->num_ranks() == num_ranks) return *shape;
  auto const example = near_cubic(num_ranks).to_string();
  if (parse_factors(text).size() != 4)
    runtime::throw_user(
        "--grid '{}' is not a grid; write data x X x Y x Z, such as --grid {}, or --grid auto", text,
        example);
  runtime::throw_user("--grid {} is for {} ranks, but the job has {}; for example --grid {}", text,
                      shape ? std::to_string(shape->num_ranks()) : "far more", num_ranks, example);
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

AxisSet sequence_axes(GridShape const& shape) {
  return shape.expert == 1 ? AxisSet{Axis::data} : AxisSet{Axis::expert, Axis::data};
}

AxisSet batch_axes(GridShape const& shape) {
  auto const axes = sequence_axes(shape);
  return shape.context == 1 ? axes : axes.with(Axis::context);
}

AxisSet parameter_axes(GridShape const& shape) {
  return shape.expert == 1 ? group_axes : group_axes.with(Axis::expert);
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
  case Axis::expert:
    return expert;
  case Axis::pipe:
    return pipe;
  case Axis::context:
    return context;
  case Axis::data:
    break;
  }
  return data;
}

Coordinates coordinates_of(GridShape const& shape, int rank) {
  Coordinates coordinates;
  for (auto const axis : nested_axes) {
    coordinates.along(axis) = rank % shape.size(axis);
    rank /= shape.size(axis);
  }
  return coordinates;
}

int rank_of(GridShape const& shape, Coordinates const& coordinates) {
  auto rank = 0;
  for (auto const axis : nested_axes | std::views::reverse)
    rank = rank * shape.size(axis) + coordinates.along(axis);
  return rank;
}

int rank_within(GridShape const& shape, Coordinates const& coordinates, AxisSet axes) {
  auto rank = 0;
  auto stride = 1;
  for (auto const axis : nested_axes) {
    if (!axes.contains(axis)) continue;
    rank += stride * coordinates.along(axis);
    stride *= shape.size(axis);
  }
  return rank;
}

Coordinates member_of(GridShape const& shape, Coordinates coordinates, AxisSet axes, int rank) {
  for (auto const axis : nested_axes) {
    if (!axes.contains(axis)) continue;
    coordinates.along(axis) = rank % shape.size(axis);
    rank /= shape.size(axis);
  }
  return coordinates;
}

ProcessGrid::ProcessGrid(Communicator const& world, GridShape const& shape)
    : world_(world),
      shape_(shape),
      coordinates_(coordinates_of(shape, world.rank())) {
  ORTHANT_REQUIRE(shape.num_ranks() == world.size(), "grid ", shape.to_string(), " on ", world.size(),
                  " ranks");
}

ProcessGrid::~ProcessGrid() {
  // Freeing a communicator is collective: all ranks free them in the order of their keys.
  while (!communicators_.empty())
    communicators_.erase(communicators_.begin());
}

Communicator const& ProcessGrid::over(AxisSet axes) const {
  RankGroup const group{axes};
  if (auto const made = communicators_.find(group); made != communicators_.end()) return made->second;
  std::vector<int> members(static_cast<std::size_t>(shape_.size(axes)));
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i] = rank_of(shape_, member_of(shape_, coordinates_, axes, static_cast<int>(i)));
  return communicators_.emplace(group, world_.subgroup(members, name_of(axes))).first->second;
}

Communicator const& ProcessGrid::over_run(Axis axis, int length) const {
  if (length == shape_.size(axis)) return over(axis);
  ORTHANT_REQUIRE(length > 0 && shape_.size(axis) % length == 0, "runs of ", length, " ranks along ",
                  name_of(axis), " of a grid ", shape_.to_string());
  RankGroup const group{axis, length};
  if (auto const made = communicators_.find(group); made != communicators_.end()) return made->second;
  auto const first = coordinates_.along(axis) / length * length;
  std::vector<int> members;
  for (int i = 0; i < length; ++i)
    members.push_back(rank_of(shape_, member_of(shape_, coordinates_, axis, first + i)));
  return communicators_.emplace(group, world_.subgroup(members, name_of_run(shape_, axis, length)))
      .first->second;
}

std::string name_of_run(GridShape const& shape, Axis axis, int length) {
  return length == shape.size(axis) ? std::string(name_of(axis))
                                    : fmt::format("{}/{}", name_of(axis), length);
}

} // namespace orthant::pmm

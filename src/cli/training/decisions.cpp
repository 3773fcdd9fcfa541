// SPDX-License-Identifier: Apache-2.0
#include "cli/training/train_settings.hpp"

#include "pmm/gemm/gemm_choice.hpp"
#include "runtime/machine/processor.hpp"

namespace orthant::cli {
namespace {

std::string machine_text(TrainOptions const& options) {
  return options.machine.empty() ? "the assumed machine" : fmt::format("the machine '{}'", options.machine);
}

void explain_schedule(Context const& context, pmm::ProcessGrid const& grid,
                      models::EpochSeconds const& seconds, models::NetworkSettings const& settings,
                      TrainOptions const& options) {
  auto& log = context.log();
  auto const chosen = models::name_of(settings.schedule);
  if (options.schedule != "auto") return log.debug("schedule {}: --schedule asks for it", chosen);
  if (models::open_schedules(settings, options.schedule) != options.schedule)
    return log.debug("schedule {}: this network has no other", chosen);
  log.debug("schedule {}: an epoch takes {:.3g} s in pmm3d and {:.3g} s in rows, by the constants of {}",
            chosen, seconds(grid.shape(), models::Schedule::pmm3d).total(),
            seconds(grid.shape(), models::Schedule::rows).total(), machine_text(options));
}

} // namespace

void explain_decisions(Context const& context, pmm::ProcessGrid const& grid,
                       models::EpochSeconds const& seconds, models::NetworkSettings const& settings,
                       models::NetworkPlan const& plan, TrainOptions const& options) {
  auto& log = context.log();
  if (!context.world().is_root() || !log.prints(runtime::LogLevel::debug)) return;
  log.debug("grid {}: {}", grid.shape().to_string(),
            options.grid == "auto"
                ? "--grid auto takes the grid whose steps take least by the constants of --machine"
                : "--grid asks for it");
  explain_schedule(context, grid, seconds, settings, options);
  for (auto const& layer : plan.layers)
    if (layer.kind == models::LayerKind::convolution)
      log.debug("layer {} ({} to {} columns): {} first, so A^ is multiplied by {} columns{}", layer.index,
                layer.input.extents.columns, layer.output.extents.columns,
                layer.aggregates_first ? "aggregates" : "transforms", layer.aggregated_width(),
                options.order == "auto" ? "" : "; --order asks for it");
  if (models::keeps_first_aggregate(plan) && settings.dropout == 0)
    log.debug("A^ times the features is computed once: layer 0 aggregates first, and nothing is dropped out");
  if (settings.schedule == models::Schedule::rows)
    log.debug("gather {}: {}", options.gather,
              options.gather == "auto" ? "needed rows move along an axis if they are less than 72 % of all"
                                       : "--gather asks for it");
  std::string axes;
  for (auto const axis : pmm::spatial_axes)
    if (settings.schedule == models::Schedule::rows ? settings.hidden_axes.contains(axis) : settings.overlaps)
      axes += fmt::format(" {}", pmm::name_of(axis));
  log.debug("overlap {}: messages travel behind products along{}", options.overlap,
            axes.empty() ? " no axis" : axes);
  auto const processor = runtime::find_processor();
  log.debug("kernels: {}, vectors of {}; dense products by {} ({})", processor.name,
            name_of(processor.vectors), pmm::describe_gemm_choice(),
            options.gemm_table.empty() ? "built-in table" : options.gemm_table);
  log.debug("sparse products: the ways of this processor are tried at first use, and the fastest is kept for "
            "each size");
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/study/study_file.hpp"

#include <fmt/format.h>

namespace orthant::cli {

std::string example_study(std::string_view name, std::string_view machine) {
  return fmt::format(R"toml(# A scaling study of Orthant (docs/studies.md).
#
#   orthant study submit {0}.toml       submits what is still to do; --here runs it on this machine (seconds of points on more
#                                      ranks than cores mean nothing, and are marked)
#   orthant study status {0}.toml
#   orthant study collect {0}.toml      reads the metrics of all points
#   orthant study report {0}.toml       tables, figures and a page
#
# Paths are relative to this file.
name = "{0}"
folder = "{0}.study"             # points, logs, results and report

[jobs]
machine = "{1}"                  # template of the batch jobs: generic, perlmutter, frontier, alps, tuolumne, or a script
ranks_per_node = 4
predict = "host"                 # seconds predicted by this machine's constants, as of plan --machine; "": none
# options = ["--time=00:30:00", "--account=m0000_g"]   # of sbatch or flux batch
# launcher = "mpirun -n"         # what stands before the number of ranks; by default that of the template
# emulate = "perlmutter"         # ranks take the clocks of this machine: the seconds are virtual, and marked

# One problem on growing numbers of ranks: every combination of ranks, grids, schedules, graphs and modes.
[[strong]]
name = "graph"
command = "train"                # or train-lm
graphs = ["rmat:vertices=20000,edges=400000,features=64,classes=16"]   # or stores, such as "products.h5"
ranks = [1, 2, 4]
grids = ["auto"]                 # or "1x2x2x1"; P is what the other axes leave of the ranks: "1xPx1x1"
schedules = ["pmm3d", "rows"]
modes = ["full"]                 # or minibatch
repeats = 1
options = "--epochs 6 --eval-every 0 --hidden 64"

# Problems that grow with the ranks: `partition --generate` makes each graph before it is trained on.
[[weak]]
name = "growing"
command = "train"
generate = "rmat"                # or sbm
vertices_per_rank = 5000
edges_per_rank = 100000
features = 64
classes = 16
ranks = [1, 2, 4]
schedules = ["rows"]
options = "--epochs 6 --eval-every 0 --hidden 64"

# [[strong]]
# name = "language-model"
# command = "train-lm"
# tokens = "text.h5"             # of `orthant tokenize`
# ranks = [1, 2, 4]
# grids = ["1xPx1x1", "Px1x1x1"] # tensor and data axes; weak scaling: sequences_per_rank = 4
# options = "--preset nanogpt-cpu --steps 12 --warmup-steps 2 --eval-every 0"
)toml",
                     name, machine);
}

} // namespace orthant::cli

// SPDX-License-Identifier: Apache-2.0
//
// Part of test programs under the leak sanitizer only. Open MPI closes its plug-ins before the process ends,
// and what they leaked then belongs to no module that a suppression could name. Here no module is ever
// unloaded.

extern "C" int dlclose(void* /*module*/) {
  return 0;
}

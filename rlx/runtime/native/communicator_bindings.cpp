#include "communicator_bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "gil.h"
#include "group.h"
#include "mpi_communicator.h"
#include "shared_team.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rlx {

namespace {

// A communicator as Python holds it.
struct PyCommunicator {
  std::shared_ptr<Group> group;
};

std::vector<PyCommunicator> held(std::vector<std::shared_ptr<Group>> groups) {
  std::vector<PyCommunicator> found;
  for (std::shared_ptr<Group>& group : groups) found.push_back({std::move(group)});
  return found;
}

void bind(const std::vector<std::string>& axes, const std::vector<PyCommunicator>& communicators,
          bool process) {
  Groups groups;
  for (size_t i = 0; i < axes.size(); ++i) groups.emplace_back(axes[i], communicators[i].group);
  if (process) {
    bind_process(std::move(groups));
  } else {
    bind_thread(std::move(groups));
  }
}

}  // namespace

void bind_communicators(nb::module_& module) {
  nb::class_<PyCommunicator>(module, "Communicator")
      .def_prop_ro("rank", [](const PyCommunicator& self) { return self.group->table.rank; })
      .def_prop_ro("ranks", [](const PyCommunicator& self) { return self.group->table.ranks; })
      .def(
          "split",
          [](const PyCommunicator& self, int color, int key) {
            GilReleased released;
            return PyCommunicator{mpi_split(self.group, color, key)};
          },
          "color"_a, "key"_a)
      .def("leave",
           [](const PyCommunicator& self) {
             const rlx_communicator& table = self.group->table;
             if (table.leave != nullptr) table.leave(table.context);
           })
      .def_prop_rw(
          "beside", [](const PyCommunicator& self) { return self.group->beside; },
          [](const PyCommunicator& self, bool beside) {
            if (beside && self.group->one_thread) {
              throw Error("collectives beside launches", self.group->engine + " for one thread alone",
                          "MPI_THREAD_SERIALIZED or more",
                          "start it by MPI_Init_thread, or leave RLX_COMM_BESIDE unset");
            }
            self.group->beside = beside;
          })
      .def_prop_ro("engine", [](const PyCommunicator& self) { return self.group->engine; });
  module.def("team_of_threads", [](int32_t ranks) { return held(team_of_threads(ranks)); },
             "ranks"_a);
  module.def(
      "team_of_processes",
      [](const std::string& path, int32_t ranks, int32_t rank) {
        return PyCommunicator{team_of_processes(path, ranks, rank)};
      },
      "path"_a, "ranks"_a, "rank"_a);
  module.def(
      "mpi_world",
      [](const std::vector<std::string>& libraries) {
        GilReleased released;
        return PyCommunicator{mpi_world(libraries)};
      },
      "libraries"_a);
  module.def("mpi_end", [] {
    GilReleased released;
    mpi_end();
  });
  module.def("bind_communicators", &bind, "axes"_a, "communicators"_a, "process"_a);
}

}  // namespace rlx

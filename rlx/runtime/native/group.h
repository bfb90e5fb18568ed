// Groups of ranks as programs meet them: communicators that are bound to the axes of meshes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "communicator.h"

namespace rlx {

// A communicator of this process, and what its ranks have agreed upon.
class Group {
 public:
  // `engine` names it in messages.
  Group(std::string engine, const rlx_communicator& table)
      : engine(std::move(engine)), table(table) {}
  virtual ~Group() {
    if (table.release != nullptr) table.release(table.context);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Throws Error unless all ranks run a program whose collectives have this digest. Each asks for
  // one that it has not asked for before.
  void agree(uint64_t digest, rlx_wait wait);

  const std::string engine;
  const rlx_communicator table;

  // Whether collectives that are apart run on a thread beside launches, or else when they must end:
  // where a network moves the bytes the ranks can compute meanwhile.
  bool beside = false;
  // Whether what carries it must not be called on a thread of RLX's own.
  bool one_thread = false;

  // The same ranks on the GPUs whose work goes through a stream, once they have met there.
  std::shared_ptr<Group> on_gpu;
  void* stream = nullptr;

 private:
  std::set<uint64_t> agreed_;
};

// Axes by name, with the groups along them that this rank is in.
using Groups = std::vector<std::pair<std::string, std::shared_ptr<Group>>>;

// Binds groups for what this thread runs, or for all of the process that is bound to none of its
// own. Empty: no longer.
void bind_thread(Groups groups);
void bind_process(Groups groups);

// The group along an axis; throws Error if none is bound or it has another number of ranks.
std::shared_ptr<Group> group_along(const std::string& axis, int64_t ranks);

// How long a rank waits for others: the seconds of RLX_COMM_TIMEOUT.
int64_t comm_limit_ns();

// What a status other than RLX_COMM_OK says.
std::string comm_message(int status, const rlx_wait& wait, const Group& group);

}  // namespace rlx

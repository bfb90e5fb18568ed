#include "group.h"

#include <cstdlib>
#include <cstring>

#include "error.h"

namespace rlx {

namespace {

std::mutex process_mutex;
// Never destroyed: as the process ends, what carries them may have ended before.
Groups& process_groups = *new Groups;
thread_local Groups thread_groups;

const std::shared_ptr<Group>* find(const Groups& groups, const std::string& axis) {
  for (const auto& [name, group] : groups) {
    if (name == axis) return &group;
  }
  return nullptr;
}

}  // namespace

void Group::agree(uint64_t digest, rlx_wait wait) {
  if (agreed_.count(digest) != 0) return;
  std::vector<uint64_t> all(static_cast<size_t>(table.ranks));
  const int status = table.all_gather(table.context, &digest, all.data(), sizeof digest, &wait);
  if (status != RLX_COMM_OK) {
    throw Error("the first run of a program of " + std::to_string(table.ranks) + " ranks",
                comm_message(status, wait, *this), "all of them");
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == digest) continue;
    throw Error("rank " + std::to_string(rank), "a program with other collectives",
                "that of rank " + std::to_string(table.rank), "give all ranks the same graph");
  }
  agreed_.insert(digest);
}

void bind_thread(Groups groups) { thread_groups = std::move(groups); }

void bind_process(Groups groups) {
  std::lock_guard<std::mutex> lock(process_mutex);
  process_groups = std::move(groups);
}

std::shared_ptr<Group> group_along(const std::string& axis, int64_t ranks) {
  std::shared_ptr<Group> found;
  std::string known;
  {
    std::lock_guard<std::mutex> lock(process_mutex);
    const Groups& groups = thread_groups.empty() ? process_groups : thread_groups;
    if (const std::shared_ptr<Group>* group = find(groups, axis)) found = *group;
    for (const auto& [name, group] : groups) known += (known.empty() ? "" : ", ") + name;
  }
  const std::string wanted = std::to_string(ranks) + " ranks along '" + axis + "'";
  if (found == nullptr) {
    throw Error("a graph with collectives over " + wanted,
                known.empty() ? "no communicator" : "communicators along " + known,
                "one along '" + axis + "'",
                "bind one by rlx.distributed.connect, and start the ranks by `rlx launch`");
  }
  if (found->table.ranks != ranks) {
    throw Error("a graph with collectives over " + wanted,
                "a communicator of " + std::to_string(found->table.ranks) + " ranks",
                "as many as the mesh of the graph has");
  }
  return found;
}

int64_t comm_limit_ns() {
  const char* text = std::getenv("RLX_COMM_TIMEOUT");
  constexpr double kDefault = 60;
  if (text == nullptr || *text == 0) return static_cast<int64_t>(kDefault * 1e9);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != 0 || !(seconds > 0) || seconds > 1e8) {
    throw Error("RLX_COMM_TIMEOUT", "'" + std::string(text) + "'", "seconds, such as 60");
  }
  return static_cast<int64_t>(seconds * 1e9);
}

std::string comm_message(int status, const rlx_wait& wait, const Group& group) {
  const std::string of = " of " + std::to_string(group.table.ranks);
  if (status == RLX_COMM_LATE) {
    const std::string who =
        wait.late < 0 ? "another rank" : "rank " + std::to_string(wait.late) + of;
    return who + " had not come after " + std::to_string(wait.limit_ns / 1000000) + " ms" +
           " (RLX_COMM_TIMEOUT)";
  }
  return std::string(wait.message);
}

}  // namespace rlx

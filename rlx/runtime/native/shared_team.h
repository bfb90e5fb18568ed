// Ranks that share memory: threads of a process, or processes of a machine.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "group.h"

namespace rlx {

// The ranks of a group in this process, one for each thread to be.
std::vector<std::shared_ptr<Group>> team_of_threads(int32_t ranks);

// A rank of a group of processes, which meet in the file at `path`: the first one makes it. It is to
// be on a file system in memory, and deleted by who gave its name. Throws Error if it cannot be.
std::shared_ptr<Group> team_of_processes(const std::string& path, int32_t ranks, int32_t rank);

}  // namespace rlx

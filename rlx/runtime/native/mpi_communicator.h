// Ranks that MPI connects, by its standard ABI: any library that has it, loaded as the program runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "group.h"

namespace rlx {

// All ranks that MPI has started. Starts MPI if nobody has. Throws Error if none of the libraries can
// be loaded, or lacks what the ABI has.
std::shared_ptr<Group> mpi_world(const std::vector<std::string>& libraries);

// The ranks of a group of MPI with the same color, in the order of their keys; all of them call it.
std::shared_ptr<Group> mpi_split(const std::shared_ptr<Group>& group, int color, int key);

// Ends MPI, unless a collective of it has failed. No rank is to use a group after that.
void mpi_end();

}  // namespace rlx

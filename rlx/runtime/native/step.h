// Common parts of steps: places in numbered memory, and launches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlx {

// Memory is numbered: these, then the params, the constants, the inputs, the outputs.
inline constexpr int64_t kBaseArena = 0, kBasePacked = 1, kBaseError = 2, kBaseFirstParam = 3;

// How far a place moves with the round of a loop around it.
struct Move {
  int64_t loop = 0;   // which of the `for` steps around the place, from 0, the outermost
  int64_t bytes = 0;  // for each round
};

// A place in a numbered memory.
struct Ref {
  int64_t base = 0;
  int64_t offset = 0;  // bytes
  std::vector<Move> moves;
};

// Steps nest at most so deep: more comes from a mistake, and would overflow the stack of a walk.
inline constexpr int kMaxDepth = 64;

struct Step;
using Steps = std::vector<Step>;

// A kernel on places. The other kinds of steps are in step_format.h, which is generated from the
// table in rlx/schedule/steps.py; fields have the names that they have there.
struct Launch {
  uint32_t number = 0;   // in this process, by number_launches; 0: none yet
  uintptr_t kernel = 0;  // in the code of one of the schedule's objects, or one of its functions
  std::array<int64_t, 3> grid = {0, 1, 0};
  std::vector<Ref> places;
  std::vector<int64_t> sizes;

  int64_t range() const { return grid[0]; }
  int64_t grain() const { return grid[1]; }
  int64_t scratch_bytes() const { return grid[2]; }
};

}  // namespace rlx

// A schedule for all sizes that meet its guards: read and checked once, and for the sizes of a call
// copied, with the numbers that follow from them put in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "schedule.h"
#include "size_program.h"

namespace rlx {

class SizedSchedule {
 public:
  // The main steps of `schedule` are those of the program's words; its launches have addresses of
  // its kernels. Throws Error for a patch of what is no number, and as check_kernels.
  SizedSchedule(std::shared_ptr<const SizeProgram> program, Schedule schedule);

  // The schedule for sizes, which a program has to check, or nothing where they do not meet the
  // guards. Throws Error as SizeProgram::numbers.
  std::optional<Schedule> bind(const std::vector<int64_t>& sizes) const;

 private:
  std::shared_ptr<const SizeProgram> program_;
  Schedule schedule_;
};

// Throws Error unless every patch of a program is of a number in the steps of its words, and the
// results are the sizes of so many memories, of which a CPU has the arena, a dim for each of the
// signatures, and so many facts of launches.
void check_patches(const SizeProgram& program, const Schedule& schedule, size_t memories,
                   size_t facts);

// How many facts the results of a CPU's program end in: the flops and the bytes of each launch of
// main, for profiles.
size_t fact_count(const Schedule& schedule);

}  // namespace rlx

// Schedules, which programs execute: trees of steps over named memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "elf_loader.h"
#include "pool.h"
#include "element_types.h"
#include "step_format.h"

namespace rlx {

const char* dtype_name(DType dtype);
size_t dtype_size(DType dtype);
// What divides the address of an element: of a complex number its part's size.
size_t dtype_alignment(DType dtype);
// Throws Error naming `where` for an unknown name.
DType parse_dtype(const std::string& where, const std::string& name);

// A dim that has no size before a call brings one.
inline constexpr int64_t kUnknown = -1;

// What Collective::kind is; the order is that of rlx/schedule/steps.py.
enum CollectiveKind : int64_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kPermute,
  kBroadcast,
  kAxisIndex,
};

// What a caller must pass for a param, an input or an output.
struct Signature {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  // Throws Error for a negative dim, or when the bytes do not fit int64.
  int64_t bytes() const;
  // "f32[2, 3]"
  std::string type() const;
};

struct PrologueStep {
  Step step;
  std::vector<int64_t> follows;  // params; empty: run once
};

// Read-only memory that never changes; `owner` keeps it alive.
struct Constant {
  const void* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<void> owner;
};

// What weights consist of: params, and the steps that fill the packed memory from them. The steps
// name packed memory, the error record, params and constants.
struct Prologue {
  std::vector<std::shared_ptr<const ElfObject>> objects;
  std::vector<uintptr_t> functions;  // of the process, which keeps them alive
  std::vector<Signature> params;
  std::vector<Constant> constants;
  int64_t packed_bytes = 0;
  std::vector<PrologueStep> steps;
  // Params that only the prologue reads, and that need no value while what it made of them is there.
  std::vector<bool> packed_params;

  bool only_packed(size_t param) const {
    return param < packed_params.size() && packed_params[param];
  }
};

// What a call executes.
struct Schedule {
  std::vector<std::shared_ptr<const ElfObject>> objects;
  std::vector<uintptr_t> functions;  // of the process, which keeps them alive
  std::vector<Constant> constants;
  std::vector<Signature> inputs, outputs;
  int64_t arena_bytes = 0;
  Steps main;
};

// What Launch::kernel is: an address, one that was looked at before, or still a kernel's number, which
// its reader has checked.
enum class Kernels { kAddresses, kKnown, kNumbers };

// Each throws Error unless every step is well-formed and every place lies inside its memory.
void check_prologue(const Prologue& prologue, Kernels kernels = Kernels::kAddresses);
void check_schedule(const Schedule& schedule, const Prologue& prologue,
                    Kernels kernels = Kernels::kAddresses);

// Throws Error unless every launch names code of the schedule's objects or one of its functions.
void check_kernels(const Schedule& schedule);

// As the first two, for steps whose launches name kernels by number, on memories of these sizes.
void check_steps(const char* where, const Steps& steps, std::vector<int64_t> sizes);

// Puts the address of each kernel in the place of its number.
void resolve(Step& step, const std::vector<uintptr_t>& addresses);
void resolve(Steps& steps, const std::vector<uintptr_t>& addresses);

// The numbers of an entry's launches: neighbours, in the order in which a reader meets them. An
// entry without launches has a number too, by which its runs are known.
struct LaunchNumbers {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Numbers the launches of an entry, unlike those of any other of this process. They start at 1.
LaunchNumbers number_launches(Steps& steps);
LaunchNumbers number_launches(Prologue& prologue);

size_t launch_count(const Steps& steps);
size_t launch_count(const Prologue& prologue);

// The collectives of steps, in the order in which a reader meets them.
std::vector<const Collective*> collectives(const Steps& steps);
// A digest of what ranks must have alike to run steps together.
uint64_t collective_digest(const Steps& steps);
// The name of a collective's axis.
std::string axis_of(const Collective& step);

// The largest number of buffers of any launch.
size_t most_buffers(const Steps& steps);
size_t most_buffers(const Prologue& prologue);

}  // namespace rlx

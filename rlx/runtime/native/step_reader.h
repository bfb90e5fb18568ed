// Reads the steps of schedules from words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule.h"
#include "words.h"

namespace rlx {

// What a launch of a device's kernel must fit.
struct DeviceKernel {
  size_t bindings = 0;
  int64_t params = 0;  // its numbers: those of a launch, then the start of each view
};

// Reads steps; the numbers of their kernels are below `kernels`. Those of a device have launches
// that fit `device`.
class StepReader {
 public:
  StepReader(Words& words, size_t kernels, const std::vector<DeviceKernel>* device = nullptr)
      : words_(words), kernels_(kernels), device_(device) {}

  // Each reads the version of the words, and throws Error for what is malformed.
  Steps main();
  std::vector<PrologueStep> prologue();

 private:
  struct Fields;

  void version();
  Steps steps(int depth);
  Step step(int depth);
  void check(const DeviceKernel& kernel, const Launch& launch) const;

  Words& words_;
  size_t kernels_;
  const std::vector<DeviceKernel>* device_;
};

}  // namespace rlx

// Artifacts: what a compile gave, read from the bytes of a file and made ready to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "container.h"
#include "program.h"
#include "schedule.h"
#include "weights.h"

namespace rlx {

// A kernel: a symbol of one of the variant's objects.
struct KernelSymbol {
  size_t object = 0;
  std::string symbol;
};

// What a fault at a site means, and the line of the user's graph that can cause it.
struct Site {
  std::string message, file;
  int64_t line = 0;
};

// A schedule and its kernels, for machines that have certain features. Until it is loaded, its
// launches name kernels by number and there are no objects.
struct Variant {
  std::string features, machine;
  std::vector<std::string> required;
  std::vector<Part> objects;
  std::vector<KernelSymbol> kernels;
  std::vector<Site> sites;
  Prologue prologue;
  Schedule schedule;
};

struct Artifact {
  std::string target;
  std::vector<Part> values;  // of the params, in order; without data: the artifact carries none
  std::vector<Variant> variants;  // the best first
};

// Reads the bytes of a file, which the result shares. Throws Error on whatever is damaged, out of
// range, or not for this version. What it lets through does no harm before it runs; the code in its
// objects is code, and is trusted as far as its file is.
Artifact read_artifact(const void* data, size_t size);

// The number of the first variant that runs on this machine. Throws Error: what they all lack.
size_t fitting_variant(const Artifact& artifact);

// A program with weights of its own, on the values that the artifact carries. `owner` keeps the
// artifact's bytes alive.
struct Loaded {
  std::shared_ptr<Weights> weights;
  std::unique_ptr<Program> program;
  std::vector<Site> sites;
};
Loaded load_artifact(Artifact artifact, std::shared_ptr<void> owner);

}  // namespace rlx

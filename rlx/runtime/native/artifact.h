// Artifacts: what a compile gave, read from the bytes of a file and made ready to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "container.h"
#include "schedule.h"
#include "size_program.h"

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

// A size that a call brings: by an axis of an input, which is `factor` times the size and `number`.
struct Symbol {
  std::string name;
  int64_t least = 0, most = -1;  // -1: no limit
  size_t input = 0, axis = 0;
  int64_t factor = 1, number = 0;
};

// A schedule and its kernels, for machines that have certain features. Until it is loaded, its
// launches name kernels by number and there are no objects. With symbols `sizes` says what a call puts
// in the place of numbers of the schedule.
struct Variant {
  std::string features, machine;
  std::vector<std::string> required;
  std::vector<Part> objects;
  std::vector<KernelSymbol> kernels;
  std::vector<Site> sites;
  Prologue prologue;
  Part prologue_words;
  size_t prologue_kernels = 0;  // the first so many
  Part packed;                  // what the prologue made; without data: it is to run
  Schedule schedule;
  std::shared_ptr<const SizeProgram> sizes;
  std::string conditions;  // the guards of `sizes`, for people
};

struct Artifact {
  std::string target;
  std::vector<Symbol> symbols;
  std::vector<Signature> params, inputs, outputs;  // a dim that is no number is kUnknown
  std::vector<Part> values;  // of the params, in order; without data: the artifact carries none
  std::vector<bool> packed_params;  // those that the packed memory of the variants stands for
  std::vector<Variant> variants;  // the best first
};

// Reads the bytes of a file, which the result shares. Throws Error on whatever is damaged, out of
// range, or not for this version. What it lets through does no harm before it runs; the code in its
// objects is code, and is trusted as far as its file is.
Artifact read_artifact(const void* data, size_t size);

// The numbers of the variants that run on this machine, in order. Throws Error where there is none:
// what they all lack.
std::vector<size_t> fitting_variants(const Artifact& artifact);

}  // namespace rlx

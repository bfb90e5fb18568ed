// Ranks whose memory is that of GPUs, connected by NCCL or RCCL: any library that has NCCL's
// interface, loaded as the program runs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "group.h"

namespace rlx {

// The GPU of a rank: the stream that its work goes through, and what is asked of its driver.
struct Gpu {
  std::string engine;                  // "NCCL"
  std::vector<std::string> libraries;  // the likeliest first
  std::string hint;                    // what to do where there is none
  void* stream = nullptr;
  int (*query)(void* stream) = nullptr;
  int (*copy_in)(void* to, const void* from, size_t bytes, void* stream) = nullptr;
  int (*copy_out)(void* to, const void* from, size_t bytes, void* stream) = nullptr;
};

// The same ranks as `host` on GPUs; all of them call it. It is kept by `host`, one for a stream.
// Throws Error if none of the libraries can be loaded, or it does not connect the ranks.
std::shared_ptr<Group> on_gpu(const std::shared_ptr<Group>& host, const Gpu& gpu, rlx_wait wait);

}  // namespace rlx

// Buffers: memory, and what is asked about it.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "../result_array.h"
#include "../schedule.h"
#include "pjrt.h"

namespace rlx::pjrt {

namespace {

// By the number of the element type.
constexpr PJRT_Buffer_Type kTypes[] = {
    PJRT_Buffer_Type_F16, PJRT_Buffer_Type_BF16, PJRT_Buffer_Type_F32,  PJRT_Buffer_Type_F64,
    PJRT_Buffer_Type_S8,  PJRT_Buffer_Type_S16,  PJRT_Buffer_Type_S32,  PJRT_Buffer_Type_S64,
    PJRT_Buffer_Type_U8,  PJRT_Buffer_Type_U16,  PJRT_Buffer_Type_U32,  PJRT_Buffer_Type_U64,
    PJRT_Buffer_Type_PRED, PJRT_Buffer_Type_C64, PJRT_Buffer_Type_C128,
    PJRT_Buffer_Type_F8E4M3FN, PJRT_Buffer_Type_F8E5M2};
static_assert(std::size(kTypes) == std::size(kDTypes));

size_t item_size(PJRT_Buffer_Type type) {
  const auto* found = std::find(std::begin(kTypes), std::end(kTypes), type);
  if (found == std::end(kTypes)) {
    throw unimplemented("there are no elements of the type that PJRT numbers " +
                        std::to_string(type));
  }
  return kDTypes[found - std::begin(kTypes)].size;
}

// Memory of results whose arrays are gone, as for those of Python.
struct Kept {
  std::mutex mutex;
  KeptBlocks blocks{kMostKept};
};
Kept& kept() {
  static auto* kept = new Kept;
  return *kept;
}

PJRT_Error* dimensions(PJRT_Buffer_Dimensions_Args* args) {
  args->dims = args->buffer->layout->dims.data();
  args->num_dims = args->buffer->layout->dims.size();
  return nullptr;
}

PJRT_Error* unpadded(PJRT_Buffer_UnpaddedDimensions_Args* args) {
  args->unpadded_dims = args->buffer->layout->dims.data();
  args->num_dims = args->buffer->layout->dims.size();
  return nullptr;
}

PJRT_Error* memory_layout(PJRT_Buffer_GetMemoryLayout_Args* args) {
  const std::vector<int64_t>& order = args->buffer->layout->minor_to_major;
  args->layout = {};
  args->layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  args->layout.tiled.minor_to_major = order.data();
  args->layout.tiled.minor_to_major_size = order.size();
  return nullptr;
}

}  // namespace

PJRT_Buffer_Type buffer_type(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }

std::shared_ptr<const Layout> make_layout(PJRT_Buffer_Type type, const int64_t* dims, size_t rank) {
  auto layout = std::make_shared<Layout>();
  layout->type = type;
  layout->item = item_size(type);
  layout->dims.assign(dims, dims + rank);
  layout->strides.resize(rank);
  int64_t stride = static_cast<int64_t>(layout->item);
  for (size_t i = rank; i-- > 0; stride *= dims[i]) {
    layout->strides[i] = stride;
    layout->minor_to_major.push_back(static_cast<int64_t>(i));
  }
  layout->bytes = static_cast<size_t>(stride);
  return layout;
}

std::shared_ptr<HostMemory> HostMemory::make(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  KeptBlocks::Block block;
  if (bytes < kLeastKept) {
    block = std::make_unique<AlignedBuffer>();
    if (block->reserve(bytes) == nullptr) block = nullptr;
  } else {
    const std::lock_guard lock(kept().mutex);
    block = kept().blocks.take(bytes);
  }
  if (block == nullptr) {
    throw Refusal(PJRT_Error_Code_RESOURCE_EXHAUSTED,
                  "RLX: there is no memory for " + std::to_string(bytes) + " bytes");
  }
  return std::shared_ptr<HostMemory>(new HostMemory(std::move(block)));
}

HostMemory::~HostMemory() {
  if (give_back_) give_back_();
  if (block_ == nullptr || block_->capacity() < kLeastKept) return;
  const std::lock_guard lock(kept().mutex);
  kept().blocks.give(std::move(block_));
}

void add_buffers(PJRT_Api& api) {
  api.PJRT_Buffer_Destroy = [](auto* args) -> PJRT_Error* {
    delete args->buffer;
    return nullptr;
  };
  api.PJRT_Buffer_ElementType = [](auto* args) -> PJRT_Error* {
    args->type = args->buffer->layout->type;
    return nullptr;
  };
  api.PJRT_Buffer_Dimensions = dimensions;
  api.PJRT_Buffer_UnpaddedDimensions = unpadded;
  api.PJRT_Buffer_DynamicDimensionIndices = [](auto* args) -> PJRT_Error* {
    args->dynamic_dim_indices = nullptr;
    args->num_dynamic_dims = 0;
    return nullptr;
  };
  api.PJRT_Buffer_GetMemoryLayout = memory_layout;
  api.PJRT_Buffer_OnDeviceSizeInBytes = [](auto* args) -> PJRT_Error* {
    args->on_device_size_in_bytes = args->buffer->layout->bytes;
    return nullptr;
  };
  api.PJRT_Buffer_Device = [](auto* args) -> PJRT_Error* {
    args->device = &pjrt_device;
    return nullptr;
  };
  api.PJRT_Buffer_Memory = [](auto* args) -> PJRT_Error* {
    args->memory = &pjrt_memory;
    return nullptr;
  };
  api.PJRT_Buffer_Delete = [](auto* args) -> PJRT_Error* {
    args->buffer->remove();
    return nullptr;
  };
  api.PJRT_Buffer_IsDeleted = [](auto* args) -> PJRT_Error* {
    args->is_deleted = args->buffer->is_deleted();
    return nullptr;
  };
  api.PJRT_Buffer_IsOnCpu = [](auto* args) -> PJRT_Error* {
    args->is_on_cpu = true;
    return nullptr;
  };
  api.PJRT_Buffer_ReadyEvent = [](auto* args) -> PJRT_Error* {
    args->event = ready_event();
    return nullptr;
  };
  api.PJRT_Buffer_UnsafePointer = [](auto* args) -> PJRT_Error* {
    return guarded([&] {
      args->buffer_pointer = reinterpret_cast<uintptr_t>(args->buffer->memory()->data);
    });
  };
  api.PJRT_Buffer_OpaqueDeviceMemoryDataPointer = [](auto* args) -> PJRT_Error* {
    return guarded([&] { args->device_memory_ptr = args->buffer->memory()->data; });
  };
  api.PJRT_Buffer_IncreaseExternalReferenceCount = [](auto* args) -> PJRT_Error* {
    return guarded([&] { args->buffer->hold(); });
  };
  api.PJRT_Buffer_DecreaseExternalReferenceCount = [](auto* args) -> PJRT_Error* {
    return guarded([&] { args->buffer->let_go(); });
  };
}

}  // namespace rlx::pjrt

std::shared_ptr<rlx::pjrt::HostMemory> PJRT_Buffer::memory() {
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) throw rlx::pjrt::invalid("the buffer was deleted or donated");
  return memory_;
}

bool PJRT_Buffer::is_deleted() {
  const std::lock_guard lock(mutex_);
  return memory_ == nullptr;
}

void PJRT_Buffer::remove() {
  std::shared_ptr<rlx::pjrt::HostMemory> gone;  // let go without the lock
  const std::lock_guard lock(mutex_);
  gone.swap(memory_);
}

bool PJRT_Buffer::take_over(const std::shared_ptr<rlx::pjrt::HostMemory>& held) {
  const std::lock_guard lock(mutex_);
  // This buffer's reference, and the one that the caller holds for each time that it is passed.
  return held->is_own() && memory_ == held && held.use_count() == 2;
}

void PJRT_Buffer::hold() {
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) throw rlx::pjrt::invalid("the buffer was deleted or donated");
  held_ = memory_;
  ++holders_;
}

void PJRT_Buffer::let_go() {
  std::shared_ptr<rlx::pjrt::HostMemory> gone;
  const std::lock_guard lock(mutex_);
  if (holders_ == 0) throw rlx::pjrt::invalid("nobody outside holds the buffer");
  if (--holders_ == 0) gone.swap(held_);
}

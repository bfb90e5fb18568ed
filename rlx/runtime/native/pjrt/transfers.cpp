// Buffers from arrays of the host and back.
#include <cstring>

#include "pjrt.h"

namespace rlx::pjrt {

namespace {

// Copies elements of `item` bytes between memories of these strides.
void copy_strided(std::byte* to, const int64_t* to_strides, const std::byte* from,
                  const int64_t* from_strides, const int64_t* dims, size_t rank, size_t item) {
  if (rank == 0) {
    std::memcpy(to, from, item);
    return;
  }
  for (int64_t i = 0; i < dims[0]; ++i) {
    copy_strided(to + i * to_strides[0], to_strides + 1, from + i * from_strides[0],
                 from_strides + 1, dims + 1, rank - 1, item);
  }
}

// Whether these strides are those of rows; what they are of dims of 1 does not matter.
bool is_dense(const Layout& layout, const int64_t* strides) {
  if (layout.bytes == 0) return true;
  for (size_t i = 0; i < layout.dims.size(); ++i) {
    if (layout.dims[i] != 1 && strides[i] != layout.strides[i]) return false;
  }
  return true;
}

// The strides in bytes that a layout of the caller's says.
std::vector<int64_t> strides_of(const PJRT_Buffer_MemoryLayout& asked, const Layout& layout) {
  const size_t rank = layout.dims.size();
  if (asked.type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    if (asked.strides.num_byte_strides != rank) throw invalid("a layout has a stride for each dim");
    return {asked.strides.byte_strides, asked.strides.byte_strides + rank};
  }
  if (asked.tiled.num_tiles != 0) throw unimplemented("arrays have no tiles");
  if (asked.tiled.minor_to_major_size != rank) throw invalid("a layout has a place for each dim");
  std::vector<int64_t> strides(rank);
  int64_t stride = static_cast<int64_t>(layout.item);
  for (size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<size_t>(asked.tiled.minor_to_major[i]);
    if (dim >= rank) throw invalid("a layout names a dim that is not there");
    strides[dim] = stride;
    stride *= layout.dims[dim];
  }
  return strides;
}

void check_rows(const PJRT_Buffer_MemoryLayout* asked, const Layout& layout) {
  if (asked == nullptr || is_dense(layout, strides_of(*asked, layout).data())) return;
  throw unimplemented("buffers are in rows, the last dim the fastest; ask for no other layout");
}

bool may_be_lent(PJRT_HostBufferSemantics semantics, const void* data, const Layout& layout) {
  const bool lends = semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy ||
                     semantics == PJRT_HostBufferSemantics_kMutableZeroCopy;
  return lends && reinterpret_cast<uintptr_t>(data) % layout.item == 0;
}

void from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  std::shared_ptr<const Layout> layout = make_layout(args->type, args->dims, args->num_dims);
  check_rows(args->device_layout, *layout);
  if (args->num_byte_strides != 0 && args->num_byte_strides != args->num_dims) {
    throw invalid("an array has a stride for each dim");
  }
  const bool dense = args->num_byte_strides == 0 || is_dense(*layout, args->byte_strides);
  auto* data = static_cast<std::byte*>(const_cast<void*>(args->data));
  if (dense && may_be_lent(args->host_buffer_semantics, data, *layout)) {
    auto signal = std::make_shared<Signal>();
    auto memory =
        std::make_shared<HostMemory>(data, [signal] { signal->set(nullptr); });
    args->buffer = new PJRT_Buffer(std::move(layout), std::move(memory));
    args->done_with_host_buffer = new PJRT_Event{std::move(signal)};
    return;
  }
  std::shared_ptr<HostMemory> memory = HostMemory::make(layout->bytes);
  if (dense) {
    if (layout->bytes != 0) std::memcpy(memory->data, data, layout->bytes);
  } else {
    copy_strided(memory->data, layout->strides.data(), data, args->byte_strides,
                 layout->dims.data(), layout->dims.size(), layout->item);
  }
  args->buffer = new PJRT_Buffer(std::move(layout), std::move(memory));
  args->done_with_host_buffer = ready_event();
}

void to_host(PJRT_Buffer_ToHostBuffer_Args* args) {
  const Layout& layout = *args->src->layout;
  if (args->dst == nullptr) {
    args->dst_size = layout.bytes;
    return;
  }
  if (args->dst_size < layout.bytes) throw invalid("the array to copy to is too small");
  const std::shared_ptr<HostMemory> memory = args->src->memory();
  auto* to = static_cast<std::byte*>(args->dst);
  std::vector<int64_t> strides = layout.strides;
  if (args->host_layout != nullptr) strides = strides_of(*args->host_layout, layout);
  if (is_dense(layout, strides.data())) {
    if (layout.bytes != 0) std::memcpy(to, memory->data, layout.bytes);
  } else {
    copy_strided(to, strides.data(), memory->data, layout.strides.data(), layout.dims.data(),
                 layout.dims.size(), layout.item);
  }
  args->event = ready_event();
}

void raw_to_host(PJRT_Buffer_CopyRawToHost_Args* args) {
  const auto bytes = static_cast<int64_t>(args->buffer->layout->bytes);
  if (args->offset < 0 || args->transfer_size < 0 || args->offset > bytes - args->transfer_size) {
    throw invalid("the bytes to copy do not lie in the buffer");
  }
  std::memcpy(args->dst, args->buffer->memory()->data + args->offset,
              static_cast<size_t>(args->transfer_size));
  args->event = ready_event();
}

PJRT_Buffer* copy_of(PJRT_Buffer* buffer) {
  const std::shared_ptr<HostMemory> from = buffer->memory();
  std::shared_ptr<HostMemory> to = HostMemory::make(buffer->layout->bytes);
  std::memcpy(to->data, from->data, buffer->layout->bytes);
  return new PJRT_Buffer(buffer->layout, std::move(to));
}

void view(PJRT_Client_CreateViewOfDeviceBuffer_Args* args) {
  std::shared_ptr<const Layout> layout = make_layout(args->element_type, args->dims, args->num_dims);
  check_rows(args->layout, *layout);
  void* data = args->device_buffer_ptr;
  std::function<void()> give_back;
  if (args->on_delete_callback != nullptr) {
    give_back = [call = args->on_delete_callback, data, argument = args->on_delete_callback_arg] {
      call(data, argument);
    };
  }
  auto memory = std::make_shared<HostMemory>(static_cast<std::byte*>(data), std::move(give_back));
  args->buffer = new PJRT_Buffer(std::move(layout), std::move(memory));
}

}  // namespace

void add_transfers(PJRT_Api& api) {
  api.PJRT_Client_BufferFromHostBuffer = [](auto* args) -> PJRT_Error* {
    return guarded([&] { from_host(args); });
  };
  api.PJRT_Buffer_ToHostBuffer = [](auto* args) -> PJRT_Error* {
    return guarded([&] { to_host(args); });
  };
  api.PJRT_Buffer_CopyRawToHost = [](auto* args) -> PJRT_Error* {
    return guarded([&] { raw_to_host(args); });
  };
  api.PJRT_Buffer_CopyToDevice = [](auto* args) -> PJRT_Error* {
    return guarded([&] { args->dst_buffer = copy_of(args->buffer); });
  };
  api.PJRT_Buffer_CopyToMemory = [](auto* args) -> PJRT_Error* {
    return guarded([&] { args->dst_buffer = copy_of(args->buffer); });
  };
  api.PJRT_Client_CreateViewOfDeviceBuffer = [](auto* args) -> PJRT_Error* {
    return guarded([&] { view(args); });
  };
}

}  // namespace rlx::pjrt

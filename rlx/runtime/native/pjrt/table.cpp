// The table of functions.
#include "pjrt.h"

namespace rlx::pjrt {

namespace {

// What RLX does not do says so by name: a null pointer would end the process that calls it.
template <typename Args>
void refuse(PJRT_Error* (*&slot)(Args*), const char* name) {
  static const char* const function = name;
  slot = [](Args*) -> PJRT_Error* {
    return new PJRT_Error{PJRT_Error_Code_UNIMPLEMENTED,
                          std::string("RLX: ") + function + " is not there"};
  };
}

}  // namespace

#define REFUSE(name) refuse(api.name, #name)

void add_refused(PJRT_Api& api) {
  REFUSE(PJRT_Device_MemoryStats);
  REFUSE(PJRT_Device_PoisonExecution);
  REFUSE(PJRT_Device_CreateAsyncTrackingEvent);
  REFUSE(PJRT_AsyncTrackingEvent_Destroy);
  REFUSE(PJRT_Executable_OptimizedProgram);
  REFUSE(PJRT_Executable_GetCompileOptions);
  REFUSE(PJRT_LoadedExecutable_Fingerprint);
  REFUSE(PJRT_Compile);
  REFUSE(PJRT_CopyToDeviceStream_Destroy);
  REFUSE(PJRT_CopyToDeviceStream_AddChunk);
  REFUSE(PJRT_CopyToDeviceStream_TotalBytes);
  REFUSE(PJRT_CopyToDeviceStream_GranuleSize);
  REFUSE(PJRT_CopyToDeviceStream_CurrentBytes);
  REFUSE(PJRT_TopologyDescription_Serialize);
  REFUSE(PJRT_TopologyDescription_Deserialize);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_Destroy);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_TransferData);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_Device);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_BufferCount);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_BufferSize);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_SetBufferError);
  REFUSE(PJRT_AsyncHostToDeviceTransferManager_AddMetadata);
  REFUSE(PJRT_Client_CreateBuffersForAsyncHostToDevice);
  REFUSE(PJRT_Client_CreateUninitializedBuffer);
  REFUSE(PJRT_Client_CreateErrorBuffer);
  REFUSE(PJRT_Client_CreateAliasBuffer);
  REFUSE(PJRT_Client_FulfillAliasBuffer);
  REFUSE(PJRT_Client_UpdateGlobalProcessInfo);
  REFUSE(PJRT_Client_DmaMap);
  REFUSE(PJRT_Client_DmaUnmap);
  REFUSE(PJRT_Buffer_CopyRawToHostFuture);
  REFUSE(PJRT_Buffer_DonateWithControlDependency);
}

#undef REFUSE

const PJRT_Api* table() {
  static const PJRT_Api* const made = [] {
    auto* api = new PJRT_Api{};
    api->struct_size = PJRT_Api_STRUCT_SIZE;
    api->pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
    api->pjrt_api_version.major_version = PJRT_API_MAJOR;
    api->pjrt_api_version.minor_version = PJRT_API_MINOR;
    add_refused(*api);
    add_events(*api);
    add_client(*api);
    add_buffers(*api);
    add_transfers(*api);
    add_executables(*api);
    return api;
  }();
  return made;
}

}  // namespace rlx::pjrt

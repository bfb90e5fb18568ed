#ifndef RLX_COMMUNICATOR_TABLE_H
#define RLX_COMMUNICATOR_TABLE_H

#include "communicator.h"
#include "schedule.h"

namespace rlx {

// The table of an engine whose ranks are objects of a class with these methods. It owns `made`.
template <class Ranks>
rlx_communicator table_of(Ranks* made, int32_t rank, int32_t ranks) {
  rlx_communicator table{};
  table.abi = RLX_COMMUNICATOR_ABI;
  table.rank = rank;
  table.ranks = ranks;
  table.context = made;
  table.all_reduce = [](void* of, const void* in, void* out, int64_t count, int32_t dtype,
                        int32_t reduction, rlx_wait* wait) {
    return static_cast<Ranks*>(of)->all_reduce(in, out, count, static_cast<DType>(dtype), reduction,
                                               wait);
  };
  table.reduce_scatter = [](void* of, const void* in, void* out, int64_t count, int32_t dtype,
                            rlx_wait* wait) {
    return static_cast<Ranks*>(of)->reduce_scatter(in, out, count, static_cast<DType>(dtype), wait);
  };
  table.all_gather = [](void* of, const void* in, void* out, int64_t bytes, rlx_wait* wait) {
    return static_cast<Ranks*>(of)->all_gather(in, out, bytes, wait);
  };
  table.all_to_all = [](void* of, const void* in, void* out, int64_t bytes, rlx_wait* wait) {
    return static_cast<Ranks*>(of)->all_to_all(in, out, bytes, wait);
  };
  table.permute = [](void* of, const void* in, void* out, int64_t bytes, int32_t to, int32_t from,
                     rlx_wait* wait) {
    return static_cast<Ranks*>(of)->permute(in, out, bytes, to, from, wait);
  };
  table.broadcast = [](void* of, const void* in, void* out, int64_t bytes, int32_t root,
                       rlx_wait* wait) {
    return static_cast<Ranks*>(of)->broadcast(in, out, bytes, root, wait);
  };
  table.release = [](void* of) { delete static_cast<Ranks*>(of); };
  return table;
}

}  // namespace rlx

#endif

#include "transport/processors.h"

#include <pthread.h>
#include <sched.h>

namespace furrow::transport {

bool may_run_on(unsigned processor) {
  cpu_set_t allowed;
  if (processor >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  return CPU_ISSET(processor, &allowed);
}

bool stay_on(unsigned processor) {
  if (processor >= CPU_SETSIZE) return false;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  return pthread_setaffinity_np(pthread_self(), sizeof only, &only) == 0;
}

}  // namespace furrow::transport

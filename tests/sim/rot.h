// Bit rot: a bit of what was durable is not what was written any more, and the device does not
// know. Struck are places whose loss the engine can make good or must confine:
//
// summary: all records that it holds stand in batch headers too, so nothing may be missed;
// page: of a zone that is full and not the newest of its stream; that page alone may be lost (its
//   reads say corrupt, its collection drops it), no other, and no older version may come back.
//
// Pure functions of the medium. For use while nothing runs on it.
#pragma once

#include "tests/sim/sim_medium.h"
#include "tests/sim/sim_random.h"

namespace furrow::sim {

// False: none was found where a few random looks went.
bool rot_summary(SimMedium& medium, SimRandom& random);
bool rot_page(SimMedium& medium, SimRandom& random);

}  // namespace furrow::sim

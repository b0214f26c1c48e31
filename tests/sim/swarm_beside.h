// What a swarm has beside its pages, which are few then: volumes of other kinds, and what may go
// wrong with them.
#pragma once

#include "tests/sim/swarm.h"

namespace furrow::sim {

void add_files(Swarm& swarm, SimRandom& random);
void add_disk(Swarm& swarm, SimRandom& random);
void add_disks(Swarm& swarm, SimRandom& random);
void add_zones(Swarm& swarm, SimRandom& random);

}  // namespace furrow::sim

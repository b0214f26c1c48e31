// Rebuilding a data zone whose headers or summaries are damaged: what they said is known from each
// other, and a zone cannot be written in place, so all of it is written again to an empty zone, at
// the same LBAs and with the same sequences, and only then the old zone is reset. Its headers stand
// before what they speak of is durable: until rebuild_zone() returns, the caller's journal must say
// that it is void. After that a crash leaves both, which say the same.
//
// Blocking; one thread. The pool is not open.
#pragma once

#include "log/zone_survey.h"
#include "zone/device.h"

namespace furrow {

// Is everything known that the zone's structures said?
bool is_rebuildable(const ZoneSurvey& survey);

// Writes what `survey` found in `from` to the empty zone that `header` is for, flushes it and reads
// it back. Returns where its data ends. On an error the new zone is reset, and `from` is untouched
// in any case. io_error: a page cannot be read; too_many_zones: no zone can be opened.
Result<std::uint64_t> rebuild_zone(IoQueue& queue, const Geometry& geometry,
                                   const SurveyedZone& from, const ZoneSurvey& survey,
                                   const ZoneHeader& header);

}  // namespace furrow

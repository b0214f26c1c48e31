// The seeds of target_fuzz (target_seeds.cc).
#pragma once

#include "tests/fuzz/corpus_text.h"

namespace furrow::fuzz {

void target_seeds(Corpus& out);

}  // namespace furrow::fuzz

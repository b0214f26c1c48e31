// Embeds a page store: keeps one page and reads it back. usage: example DEVICE-URI
#include <cstdio>

#include "engine/embedded_pool.h"

int main(int argc, char** argv) {
  const auto fail = [](const furrow::Status& why) { return std::puts(why.describe().c_str()), 1; };
  const auto pool = furrow::EmbeddedPool::open(
      argc == 2 ? argv[1] : "", {.size_bytes = 256 << 20, .volume = {.name = "pages"}});
  if (!pool) return fail(pool.status());
  auto pages = (*pool)->store("pages");
  if (!pages) return fail(pages.status());
  const auto stored = pages->put(furrow::Key::from("a"), std::as_bytes(std::span("kept in zones")));
  if (!stored.ok()) return fail(stored);
  const auto page = pages->get(furrow::Key::from("a"));
  if (!page) return fail(page.status());
  std::puts(reinterpret_cast<const char*>(page->data()));
}

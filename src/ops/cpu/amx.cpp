#include "ops/cpu/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace strata::cpu {

#if defined(__x86_64__)
namespace {

bool ask() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kInt8 = 1U << 25;
  if ((d & kBf16) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool amx_available() {
  static const bool available = ask();
  return available;
}
#else
bool amx_available() { return false; }
#endif

}  // namespace strata::cpu

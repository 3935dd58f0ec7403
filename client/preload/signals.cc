// Notices that the program has a signal handler: from then on the library blocks signals where it
// holds locks (section.h). A program without handlers is spared the two system calls.
#include <csignal>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/real_calls.h"

namespace salius::preload {
namespace {

bool IsHandler(sighandler_t handler) { return handler != SIG_DFL && handler != SIG_IGN; }

sighandler_t Install(sighandler_t (*real)(int, sighandler_t), int signal, sighandler_t handler) {
  if (IsHandler(handler)) library.HandlerInstalled();
  return real(signal, handler);
}

}  // namespace
}  // namespace salius::preload

using salius::preload::Install;
using salius::preload::library;
using salius::preload::real_calls;

SALIUS_INTERPOSE(int, sigaction, int signal, const struct sigaction* action,
                 struct sigaction* old) {
  // sa_handler and sa_sigaction are one word.
  if (action != nullptr && salius::preload::IsHandler(action->sa_handler)) {
    library.HandlerInstalled();
  }
  return real_calls.sigaction(signal, action, old);
}
SALIUS_INTERPOSE(sighandler_t, signal, int number, sighandler_t handler) {
  return Install(real_calls.signal, number, handler);
}
SALIUS_INTERPOSE(sighandler_t, bsd_signal, int number, sighandler_t handler) {
  return Install(real_calls.signal, number, handler);
}
SALIUS_INTERPOSE(sighandler_t, ssignal, int number, sighandler_t handler) {
  return Install(real_calls.signal, number, handler);
}
SALIUS_INTERPOSE(sighandler_t, sysv_signal, int number, sighandler_t handler) {
  return Install(real_calls.sysv_signal, number, handler);
}
SALIUS_INTERPOSE(sighandler_t, __sysv_signal, int number, sighandler_t handler) {
  return Install(real_calls.sysv_signal, number, handler);
}
SALIUS_INTERPOSE(sighandler_t, sigset, int number, sighandler_t handler) {
  return Install(real_calls.sigset, number, handler);
}

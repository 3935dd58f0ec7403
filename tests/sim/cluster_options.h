// What can go wrong in a simulated cluster, and how often.
#pragma once

#include <cstdint>

namespace salius::sim {

struct ClusterOptions {
  // ---- size of a lifetime
  int lives = 2;        // sessions, each ended by a crash and a recovery
  int steps = 60;       // of a session
  double issue = 0.6;   // an operation per step
  double bulky = 0.08;  // of the lifetimes: large records, so that rings go round and memories fill

  // ---- network, per datagram
  double loss = 0.04, duplicate = 0.04, late = 0.03, corrupt = 0.02;
  // ---- per step and replica
  double partition = 0.004;  // both ways, or one
  double restart = 0.002;    // the process, with its memory
  double amnesia = 0.003;    // the host: memory gone (within what f allows)
  double stuck = 0.002;      // takes nothing for a while, then everything
  // ---- per control call
  double open_fails = 0.05, small_grant = 0.05;
  // ---- the primary
  double slow_disk = 0.03;    // per job
  double disk_error = 0.002;  // per job: a sync fails
  double clock_jump = 0.01;   // per step: of the real-time clock
  double drift = 0.2;         // of a lifetime: clocks of the hosts run at different speeds
  double power_cut = 0.8;     // of the crashes: otherwise only the process dies
  double zombie = 0.15;       // of the crashes: the primary was only frozen, and goes on later
  // ---- recovery
  double recovery_crash = 0.35;  // of the runs
  double stream_breaks = 0.05;   // per chunk of a fetch
  double replica_away = 0.3;     // of the replicas, per run
  // ---- the end: without faults everything must become durable and the mode replicated
  double heal = 0.15;  // of the sessions
};

}  // namespace salius::sim

------------------------------ MODULE Trace ------------------------------
(***************************************************************************)
(* Replays histories of the engine on the specification. Each step of a    *)
(* history says what was done, and what the server then had. The           *)
(* specification must have an action of that name that leads there: if it  *)
(* has none, TLC reports a deadlock, and the history is refused.           *)
(*                                                                         *)
(* Module Histories is written by check.py from `dlock-simulation --trace`.*)
(***************************************************************************)
EXTENDS Lock, Histories

VARIABLES history, at

\* The requests of the queue, as a history shows them.
Shown(q) == [i \in DOMAIN q |-> <<q[i].owner, q[i].mode>>]

\* The program has been told what the engine answered. Only a grant has a token.
Told(c, program) ==
  /\ c.state = program.state
  /\ c.state \in {"answered", "holds"} => c.token = program.token

Action(step) ==
  LET o == step.owner IN
  \/ step.do = "tick" /\ Tick
  \/ step.do = "send" /\ Send(o)
       /\ client'[o].mode = step.mode /\ client'[o].waits = step.waits /\ client'[o].session = step.session
  \/ step.do = "execute" /\ Execute(o)
  \/ step.do = "read" /\ Read(o)
  \/ step.do = "renew" /\ Renew(o)
  \/ step.do = "release" /\ Release(o)
       /\ step.released = (holds[o][client[o].mode].token = client[o].token)
  \/ step.do = "die" /\ Die(o)

Follow(step) ==
  /\ Action(step)
  /\ now' = step.now
  /\ holds' = step.holds
  /\ Shown(queue') = step.queue
  /\ last' = step.last
  /\ \A o \in Owners : Told(client'[o], step.programs[o])

TraceInit == Init /\ at = 1 /\ history \in DOMAIN All

TraceNext ==
  \/ /\ at <= Len(All[history])
     /\ Follow(All[history][at])
     /\ at' = at + 1 /\ UNCHANGED history
  \/ at > Len(All[history]) /\ UNCHANGED <<vars, history, at>>

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, history, at>>

\* Violated by a history that was followed to its end: to show that a changed one never is.
NeverFollowed == at <= Len(All[history])
=============================================================================

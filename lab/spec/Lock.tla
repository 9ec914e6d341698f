------------------------------- MODULE Lock -------------------------------
(***************************************************************************)
(* One lock on one server: modes, queue, leases, sessions, fencing, and    *)
(* what a client may believe. The server executes one request at a time.   *)
(* A client sends, the server executes later, the client reads the answer  *)
(* later still, and may be paused for any time in between.                 *)
(*                                                                         *)
(* Broken names a rule that is left out. With "none" every invariant       *)
(* holds; each other value must violate one (lab/spec/README.md).          *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Owners, Lease, MaxTime, MaxToken, Broken

VARIABLES
  now,      \* the server's clock
  holds,    \* holds[o][m]: what the server stores for owner o in mode m
  queue,    \* the requests that wait, first come, first served
  last,     \* the highest token so far
  client,   \* client[o]: what the program of owner o knows
  fence,    \* the highest token that the protected data has accepted
  faults    \* what must never happen, and has

vars == <<now, holds, queue, last, client, fence, faults>>

Modes == {"exclusive", "shared"}
None == [until |-> 0, token |-> 0, session |-> FALSE]
Idle == [state |-> "idle"]

---------------------------------------------------------------------------
(* The server *)

Live(h, t) == IF Broken = "lapse" THEN h.token > 0 ELSE t < h.until

HoldsAny(hs, o, t) == \E m \in Modes : Live(hs[o][m], t)

\* Exclusive excludes every hold of others, shared the exclusive ones.
Excluded(hs, o, m, t) ==
  Broken # "exclusion" /\ \E p \in Owners \ {o} :
    \/ Live(hs[p]["exclusive"], t)
    \/ m = "exclusive" /\ Live(hs[p]["shared"], t)

NextToken(hs, l, t) ==
  IF Broken = "token"   \* a counter that lives in the key: gone with the last hold
  THEN 1 + (IF \E o \in Owners : HoldsAny(hs, o, t) THEN l ELSE 0)
  ELSE l + 1

Put(hs, r, token, t) ==
  [hs EXCEPT ![r.owner][r.mode] = [until |-> t + Lease, token |-> token, session |-> r.session]]

\* An owner that holds the lock shared and wants it exclusively.
Upgrades(hs, r, t) == r.mode = "exclusive" /\ Live(hs[r.owner]["shared"], t)

\* Grants the head of the queue for as long as nothing excludes it.
RECURSIVE Serve(_, _, _, _, _)
Serve(hs, q, l, cs, t) ==
  IF q = <<>> THEN [holds |-> hs, queue |-> q, last |-> l, client |-> cs]
  ELSE LET at == IF Broken = "fifo" THEN Len(q) ELSE 1
           r == q[at]
           rest == SubSeq(q, 1, at - 1) \o SubSeq(q, at + 1, Len(q))
           token == NextToken(hs, l, t)
       IN IF Excluded(hs, r.owner, r.mode, t)
          THEN [holds |-> hs, queue |-> q, last |-> l, client |-> cs]
          ELSE Serve(Put(hs, r, token, t), rest, IF token > l THEN token ELSE l,
                     [cs EXCEPT ![r.owner] =
                        [state |-> "answered", mode |-> r.mode, token |-> token, sent |-> r.sent]], t)

Becomes(s) ==
  /\ holds' = s.holds /\ queue' = s.queue /\ last' = s.last /\ client' = s.client

\* Grants that the step has made with a token that an earlier one had, or that pass a waiter.
Noted(s) ==
  faults' = faults
    \cup (IF s.last = last /\ \E o \in Owners, m \in Modes :
             s.holds[o][m].token > 0 /\ s.holds[o][m] # holds[o][m] /\ s.holds[o][m].token # holds[o][m].token
          THEN {"token reused"} ELSE {})
    \cup (IF Len(s.queue) < Len(queue) /\ Len(s.queue) > 0 /\ s.queue[1] = queue[1]
             /\ \E i \in 2..Len(queue) : \A j \in 1..Len(s.queue) : s.queue[j] # queue[i]
          THEN {"overtaken"} ELSE {})

\* The server executes the request that o has sent.
Execute(o) ==
  /\ client[o].state = "sent"
  /\ LET r == [owner |-> o, mode |-> client[o].mode, session |-> client[o].session, sent |-> client[o].sent]
         upgrades == Upgrades(holds, r, now)
         downgrades == r.mode = "shared" /\ Live(holds[o]["exclusive"], now)
         passes == queue = <<>> \/ upgrades \/ downgrades \/ Broken = "barging"
         joined == IF upgrades THEN <<r>> \o queue ELSE Append(queue, r)
         token == NextToken(holds, last, now)
         refused == [client EXCEPT ![o] = Idle]
     IN IF passes /\ ~Excluded(holds, o, r.mode, now)
        THEN LET s == [holds |-> Put(holds, r, token, now), queue |-> queue,
                       last |-> IF token > last THEN token ELSE last,
                       client |-> [client EXCEPT ![o] =
                          [state |-> "answered", mode |-> r.mode, token |-> token, sent |-> r.sent]]]
             IN /\ Becomes(s)
                /\ faults' = faults
                     \cup (IF token <= last THEN {"token reused"} ELSE {})
                     \cup (IF queue # <<>> /\ ~upgrades /\ ~downgrades THEN {"overtaken"} ELSE {})
        ELSE IF client[o].waits /\ ~(upgrades /\ \E i \in 1..Len(queue) : Upgrades(holds, queue[i], now))
        THEN /\ queue' = joined /\ client' = [client EXCEPT ![o] = [@ EXCEPT !.state = "waits"]]
             /\ UNCHANGED <<holds, last, faults>>
        ELSE /\ client' = refused /\ UNCHANGED <<holds, queue, last, faults>>   \* nil, or DEADLOCK
  /\ UNCHANGED <<now, fence>>

Without(q, o) == SelectSeq(q, LAMBDA r : r.owner # o)

\* The holds that the server may extend when the clock shows t: those of a session whose connection has not ended.
Bound(t) == {h \in Owners \X Modes : holds[h[1]][h[2]].session /\ Live(holds[h[1]][h[2]], t)}

\* Time passes: some leases are extended, others end, and the next in the queue is served in the same turn.
Tick ==
  /\ now < MaxTime
  /\ now' = now + 1
  /\ \E extended \in SUBSET Bound(now + 1) :
     LET kept == [o \in Owners |-> [m \in Modes |->
                    IF holds[o][m].token > 0 /\ ~Live(holds[o][m], now + 1) THEN None
                    ELSE IF <<o, m>> \in extended THEN [holds[o][m] EXCEPT !.until = now + 1 + Lease]
                    ELSE holds[o][m]]]
         s == IF Broken = "forgotten"
              THEN [holds |-> kept, queue |-> queue, last |-> last, client |-> client]
              ELSE Serve(kept, queue, last, client, now + 1)
     IN Becomes(s) /\ Noted(s)
  /\ UNCHANGED fence

---------------------------------------------------------------------------
(* The clients *)

Send(o) ==
  /\ client[o].state = "idle"
  /\ \E m \in Modes, waits, session \in BOOLEAN :
       /\ ~Live(holds[o][m], now)
       /\ client' = [client EXCEPT ![o] =
            [state |-> "sent", mode |-> m, waits |-> waits, session |-> session, sent |-> now]]
  /\ UNCHANGED <<now, holds, queue, last, fence, faults>>

\* The answer to a grant is read, at any later time.
Read(o) ==
  /\ client[o].state = "answered"
  /\ client' = [client EXCEPT ![o] =
       [state |-> "holds", mode |-> @.mode, token |-> @.token,
        until |-> (IF Broken = "counts from the answer" THEN now ELSE @.sent) + Lease]]
  /\ UNCHANGED <<now, holds, queue, last, fence, faults>>

\* A renewal that is executed and answered now, and was sent now or one unit of time ago.
Renew(o) ==
  /\ client[o].state = "holds"
  /\ LET m == client[o].mode
         h == holds[o][m]
     IN IF Live(h, now) /\ h.token = client[o].token
        THEN /\ holds' = [holds EXCEPT ![o][m].until = now + Lease]
             /\ \E sent \in {now - 1, now} : client' = [client EXCEPT ![o].until =
                  IF sent + Lease > @ THEN sent + Lease ELSE @]
        ELSE holds' = holds /\ client' = [client EXCEPT ![o] = Idle]
  /\ UNCHANGED <<now, queue, last, fence, faults>>

\* The client stops believing before the release is sent.
Release(o) ==
  /\ client[o].state = "holds"
  /\ LET m == client[o].mode
         mine == holds[o][m].token = client[o].token
         freed == IF mine THEN [holds EXCEPT ![o][m] = None] ELSE holds
         s == Serve(freed, queue, last, [client EXCEPT ![o] = Idle], now)
     IN Becomes(s) /\ Noted(s)
  /\ UNCHANGED <<now, fence>>

\* The program dies: its connection ends, what is bound to it is released, its request leaves the queue.
Die(o) ==
  /\ client[o].state # "idle"
  /\ LET freed == [holds EXCEPT ![o] = [m \in Modes |-> IF @[m].session THEN None ELSE @[m]]]
         s == Serve(freed, Without(queue, o), last, [client EXCEPT ![o] = Idle], now)
     IN Becomes(s) /\ faults' = faults
  /\ UNCHANGED <<now, fence>>

\* A write to the protected data. The program may have been paused since it last looked at the time.
Write(o) ==
  /\ client[o].state = "holds" /\ client[o].mode = "exclusive"
  /\ client[o].token >= fence \/ Broken = "fencing"
  /\ fence' = client[o].token
  /\ faults' = faults \cup (IF client[o].token < fence THEN {"stale write"} ELSE {})
  /\ UNCHANGED <<now, holds, queue, last, client>>

---------------------------------------------------------------------------

Init ==
  /\ now = 1 /\ holds = [o \in Owners |-> [m \in Modes |-> None]]
  /\ queue = <<>> /\ last = 0 /\ client = [o \in Owners |-> Idle] /\ fence = 0 /\ faults = {}

Next == Tick \/ \E o \in Owners :
  Send(o) \/ Execute(o) \/ Read(o) \/ Renew(o) \/ Release(o) \/ Die(o) \/ Write(o)

Spec == Init /\ [][Next]_vars

Bounded == last <= MaxToken
Symmetric == Permutations(Owners)

(* What must always hold *)

Exclusion ==
  \A o, p \in Owners : o # p /\ now < holds[o]["exclusive"].until =>
    ~(now < holds[p]["exclusive"].until) /\ ~(now < holds[p]["shared"].until)

\* A client that believes to hold the lock does.
Certain ==
  \A o \in Owners : client[o].state = "holds" /\ now < client[o].until =>
    now < holds[o][client[o].mode].until /\ holds[o][client[o].mode].token = client[o].token

\* The head of the queue waits only for a hold that excludes it, and a lapsed one excludes nobody.
NobodyForgotten ==
  queue # <<>> =>
    \E p \in Owners \ {queue[1].owner} :
      \/ now < holds[p]["exclusive"].until
      \/ queue[1].mode = "exclusive" /\ now < holds[p]["shared"].until

NoFault == faults = {}
=============================================================================

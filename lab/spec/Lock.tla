------------------------------- MODULE Lock -------------------------------
(***************************************************************************)
(* One lock on one server: modes, queue, leases, sessions, fencing, and    *)
(* what a client may believe. The server executes one request at a time.   *)
(* A client sends, the server executes later, the client reads the answer  *)
(* later still, and may be paused for any time in between.                 *)
(*                                                                         *)
(* Broken names a rule that is left out. With "none" all that the end of   *)
(* the module says is true; each other value must violate a part of it.    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Owners, Lease, MaxTime, MaxToken, Broken

VARIABLES
  now,      \* the server's clock
  holds,    \* holds[o][m]: what the server stores for owner o in mode m
  queue,    \* the requests that wait, first come, first served
  last,     \* the highest token so far
  client,   \* client[o]: what the program of owner o knows
  fence     \* the highest token that the protected data has accepted

vars == <<now, holds, queue, last, client, fence>>

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
  ELSE LET at == CASE Broken = "fifo" -> Len(q) [] Broken = "third" /\ Len(q) > 2 -> 2 [] OTHER -> 1
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

Front(q) == SubSeq(q, 1, Len(q) - 1)

\* The server executes the request that o has sent.
Execute(o) ==
  /\ client[o].state = "sent"
  /\ LET r == [owner |-> o, mode |-> client[o].mode, session |-> client[o].session, sent |-> client[o].sent]
         upgrades == Upgrades(holds, r, now)
         downgrades == r.mode = "shared" /\ Live(holds[o]["exclusive"], now)
         passes == queue = <<>> \/ upgrades \/ downgrades \/ Broken = "barging"
         joined == CASE upgrades -> <<r>> \o queue
                     [] Broken = "order" /\ queue # <<>> -> Front(queue) \o <<r, queue[Len(queue)]>>
                     [] OTHER -> Append(queue, r)
         token == NextToken(holds, last, now)
         refused == [client EXCEPT ![o] = Idle]
     IN IF passes /\ ~Excluded(holds, o, r.mode, now)
        THEN Becomes([holds |-> Put(holds, r, token, now), queue |-> queue,
                      last |-> IF token > last THEN token ELSE last,
                      client |-> [client EXCEPT ![o] =
                         [state |-> "answered", mode |-> r.mode, token |-> token, sent |-> r.sent]]])
        ELSE IF client[o].waits /\ Broken # "refusal" /\ ~(Broken # "deadlock"
                /\ upgrades /\ \E i \in 1..Len(queue) : Upgrades(holds, queue[i], now))
        THEN /\ queue' = joined /\ client' = [client EXCEPT ![o] = [@ EXCEPT !.state = "waits"]]
             /\ UNCHANGED <<holds, last>>
        ELSE /\ client' = refused /\ UNCHANGED <<holds, queue, last>>   \* nil, or DEADLOCK
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
     IN Becomes(s)
  /\ UNCHANGED fence

\* A RELEASE or RENEW ends or extends the hold that has its token. A hold that is over does not come back.
Released(h, token) == IF h.token = token \/ Broken = "any release" THEN None ELSE h

Renewed(h, token) ==
  CASE h.token = token \/ (Broken = "any renewal" /\ h # None) -> [h EXCEPT !.until = now + Lease]
    [] Broken = "revival" -> [until |-> now + Lease, token |-> token, session |-> FALSE]
    [] OTHER -> h

\* A RELEASE or RENEW that arrives late, is sent twice, or comes from a stranger: no hold has its token. The server
\* answers nil and changes nothing, which is no step.
Stray(o) ==
  \E m \in Modes, token \in 1..last :
    LET h == holds[o][m] IN
    /\ token # h.token
    /\ \E after \in {Released(h, token), Renewed(h, token)} \ {h} :
         Becomes(Serve([holds EXCEPT ![o][m] = after], queue, last, client, now))
    /\ UNCHANGED <<now, fence>>

---------------------------------------------------------------------------
(* The clients *)

Send(o) ==
  /\ client[o].state = "idle"
  /\ \E m \in Modes, waits, session \in BOOLEAN :
       /\ ~Live(holds[o][m], now)
       /\ client' = [client EXCEPT ![o] =
            [state |-> "sent", mode |-> m, waits |-> waits, session |-> session, sent |-> now]]
  /\ UNCHANGED <<now, holds, queue, last, fence>>

\* The answer to a grant is read, at any later time.
Read(o) ==
  /\ client[o].state = "answered"
  /\ client' = [client EXCEPT ![o] =
       [state |-> "holds", mode |-> @.mode, token |-> @.token,
        until |-> (IF Broken = "counts from the answer" THEN now ELSE @.sent) + Lease]]
  /\ UNCHANGED <<now, holds, queue, last, fence>>

\* A renewal that is executed and answered now, and was sent now or one unit of time ago.
Renew(o) ==
  /\ client[o].state = "holds"
  /\ LET m == client[o].mode
         h == Renewed(holds[o][m], client[o].token)
     IN /\ holds' = [holds EXCEPT ![o][m] = h]
        /\ IF h.token = client[o].token
           THEN \E sent \in {now - 1, now} : client' = [client EXCEPT ![o].until =
                  IF sent + Lease > @ THEN sent + Lease ELSE @]
           ELSE client' = [client EXCEPT ![o] = Idle]
  /\ UNCHANGED <<now, queue, last, fence>>

\* The client stops believing before the release is sent.
Release(o) ==
  /\ client[o].state = "holds"
  /\ LET m == client[o].mode
         freed == [holds EXCEPT ![o][m] = Released(@, client[o].token)]
         s == Serve(freed, queue, last, [client EXCEPT ![o] = Idle], now)
     IN Becomes(s)
  /\ UNCHANGED <<now, fence>>

\* The program dies: its connection ends, what is bound to it is released, its request leaves the queue.
Die(o) ==
  /\ client[o].state # "idle"
  /\ LET freed == [holds EXCEPT ![o] = [m \in Modes |->
                   IF @[m].session /\ Broken # "session" THEN None ELSE @[m]]]
         s == Serve(freed, Without(queue, o), last, [client EXCEPT ![o] = Idle], now)
     IN Becomes(s)
  /\ UNCHANGED <<now, fence>>

\* A write to the protected data. The program may have been paused since it last looked at the time.
Write(o) ==
  /\ client[o].state = "holds" /\ client[o].mode = "exclusive"
  /\ client[o].token >= fence \/ Broken = "fencing"
  /\ fence' = client[o].token
  /\ UNCHANGED <<now, holds, queue, last, client>>

---------------------------------------------------------------------------

Init ==
  /\ now = 1 /\ holds = [o \in Owners |-> [m \in Modes |-> None]]
  /\ queue = <<>> /\ last = 0 /\ client = [o \in Owners |-> Idle] /\ fence = 0

Next == Tick \/ \E o \in Owners :
  Send(o) \/ Execute(o) \/ Read(o) \/ Renew(o) \/ Release(o) \/ Stray(o) \/ Die(o) \/ Write(o)

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

\* A live hold of p keeps the request waiting.
Blocks(p, r) ==
  /\ p # r.owner
  /\ now < holds[p]["exclusive"].until \/ (r.mode = "exclusive" /\ now < holds[p]["shared"].until)

\* The head of the queue waits only for a hold that excludes it, and a lapsed one excludes nobody.
NobodyForgotten == queue # <<>> => \E p \in Owners : Blocks(p, queue[1])

\* The queue has one request of each program that waits, and no other.
OnlyWaiters ==
  /\ \A i \in 1..Len(queue) : client[queue[i].owner].state = "waits"
  /\ Len(queue) = Cardinality({o \in Owners : client[o].state = "waits"})

\* Requests wait for those before them, and for holds that exclude them, never in a circle.
NoCircle ==
  \A waiting \in SUBSET (1..Len(queue)) : waiting # {} =>
    \E i \in waiting : \A j \in waiting \ {i} : i < j /\ ~Blocks(queue[j].owner, queue[i])

\* A hold that is bound to a session is that of a program which lives and has its token.
SessionsEnd ==
  \A o \in Owners, m \in Modes : holds[o][m].session =>
    client[o].state \in {"answered", "holds"} /\ client[o].mode = m /\ client[o].token = holds[o][m].token

(* What each step must obey *)

\* A live hold is extended by its own program or its session, and ends by that program's release or with the session.
OnlyItsOwn ==
  [][\A o \in Owners, m \in Modes :
       LET h == holds[o][m]
           own == client[o].state = "holds" /\ client[o].mode = m /\ client[o].token = h.token
       IN now' < h.until /\ holds'[o][m] # h =>
            IF holds'[o][m].token = h.token
            THEN holds'[o][m].until > h.until /\ (own \/ (h.session /\ now' > now))
            ELSE client[o].state # "idle" /\ client'[o] = Idle /\ (own \/ h.session)]_vars

\* A hold is new, with a token above all before, or was live until now: none comes back, and no token does.
NothingComesBack ==
  [][\A o \in Owners, m \in Modes : LET token == holds'[o][m].token IN
       \/ token = 0 \/ token > last
       \/ (token = holds[o][m].token /\ now' < holds[o][m].until)]_vars

\* Requests are served in the order in which they came, except that an upgrade goes first and a downgrade at once.
Common(q, p) == SelectSeq(q, LAMBDA r : \E i \in 1..Len(p) : p[i] = r)
Gets(o, from) == client[o].state = from /\ client'[o].state = "answered"

InOrder ==
  [][/\ Common(queue, queue') = Common(queue', queue)
     /\ \A i \in 1..Len(queue') : client[queue'[i].owner].state = "sent" =>
          i = (IF Upgrades(holds, queue'[i], now) THEN 1 ELSE Len(queue'))
     /\ \A i, j \in 1..Len(queue) : i < j /\ Gets(queue[j].owner, "waits") =>
          client'[queue[i].owner].state # "waits"
     /\ queue # <<>> => \A o \in Owners : Gets(o, "sent") =>
          \E m \in Modes \ {client[o].mode} : now < holds[o][m].until]_vars

\* A request is refused only if it would not wait and has to, or if it would wait in a circle.
RefusedForAReason ==
  [][\A o \in Owners : client[o].state = "sent" /\ client'[o] = Idle /\ Execute(o) =>
       LET r == [owner |-> o, mode |-> client[o].mode] IN
       IF client[o].waits THEN \E i \in 1..Len(queue) : Blocks(o, queue[i]) /\ Blocks(queue[i].owner, r)
       ELSE queue # <<>> \/ \E p \in Owners : Blocks(p, r)]_vars

\* The protected data never goes back to an earlier owner.
FencesOff == [][fence' >= fence]_vars

(* What must happen: programs that do not die, and release what they get, are all served. *)

Patient == Tick \/ \E o \in Owners : (last < MaxToken /\ Send(o)) \/ Execute(o) \/ Read(o) \/ Release(o)

FairSpec == Init /\ [][Patient]_vars /\ \A o \in Owners : WF_vars(Execute(o)) /\ WF_vars(Read(o)) /\ WF_vars(Release(o))

Served == \A o \in Owners : client[o].state = "sent" /\ client[o].waits ~> client[o].state = "answered"
=============================================================================

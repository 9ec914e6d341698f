------------------------------ MODULE Quorum ------------------------------
(***************************************************************************)
(* One exclusive lock on several independent servers: the owner holds it   *)
(* on a majority. Servers forget everything when they restart. Requests    *)
(* arrive late, in any order, even after the client gave up. Clocks run at *)
(* rates that differ by at most Drift over a lease.                        *)
(*                                                                         *)
(* Broken names a rule that is left out, as in Lock.tla. docs/quorum.md    *)
(* refers to the actions by their names.                                   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Servers, Clients, Lease, Drift, Attempts, MaxTime, MaxRestarts, Broken

VARIABLES
  now,       \* true time
  lock,      \* lock[s]: who holds it there, until when, with which token
  last,      \* last[s]: the highest token that s knows
  born,      \* born[s]: when s has started
  restarts,  \* how often servers have restarted
  asked,     \* requests on their way: client, attempt, server
  client,    \* client[c]: what the client knows
  top,       \* the highest token that any client held the lock with
  faults

vars == <<now, lock, last, born, restarts, asked, client, top, faults>>

Longest == Lease            \* the longest lease that any client uses
Start == Longest + 1        \* all servers are old enough at the beginning
Free == [owner |-> "nobody", until |-> 0, token |-> 0]
Idle(n) == [state |-> "idle", attempt |-> n]

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Is(rule) == Broken = rule

\* A server that has started lately may have forgotten a hold that is in force.
Counts(s) == Is("young servers count") \/ now >= born[s] + Longest

IsMajority(S) ==
  CASE Is("half is a majority") -> 2 * Cardinality(S) >= Cardinality(Servers)
    [] OTHER -> 2 * Cardinality(S) > Cardinality(Servers)

\* Tokens come from the clock: after a restart they go on above those of before.
Token(s) == Max({last[s] + 1, 10 * now})

\* A clock may be fast, so that the server ends a lease early.
Ends == {now + Lease - Drift, now + Lease}

\* How long a hold is good whose commands were sent at that time.
Good(sent) ==
  CASE Is("drift is forgotten") -> sent + Lease
    [] Is("counts from the answer") -> now + Lease - Drift
    [] OTHER -> sent + Lease - Drift

IsFree(s) == lock[s].owner = "nobody" \/ now >= lock[s].until

---------------------------------------------------------------------------

Ask(c) ==
  /\ client[c].state = "idle" /\ client[c].attempt < Attempts
  /\ LET n == client[c].attempt + 1 IN
       /\ client' = [client EXCEPT ![c] = [state |-> "asks", attempt |-> n, sent |-> now, got |-> {}]]
       /\ asked' = asked \cup {<<c, n, s>> : s \in Servers}
  /\ UNCHANGED <<now, lock, last, born, restarts, top, faults>>

\* A server executes a request, early or late, and the client reads the answer. An answer to an earlier attempt is none.
Execute(c, n, s) ==
  /\ <<c, n, s>> \in asked
  /\ asked' = asked \ {<<c, n, s>>}
  /\ IF IsFree(s)
     THEN /\ \E until \in Ends : lock' = [lock EXCEPT ![s] = [owner |-> c, until |-> until, token |-> Token(s)]]
          /\ last' = [last EXCEPT ![s] = Token(s)]
          /\ client' =
               IF client[c].state = "asks" /\ Counts(s)
                  /\ client[c].attempt = n
               THEN [client EXCEPT ![c].got = @ \cup {[server |-> s, token |-> Token(s)]}]
               ELSE client
     ELSE UNCHANGED <<lock, last, client>>
  /\ UNCHANGED <<now, born, restarts, top, faults>>

\* A majority has granted it: the highest token counts, and the others are raised to it (MINTOKEN).
Hold(c) ==
  /\ client[c].state = "asks"
  /\ LET got == client[c].got
         on == {g.server : g \in got}
         token == Max({g.token : g \in got})
     IN /\ got # {} /\ IsMajority(on)
        /\ now < Good(client[c].sent)
        /\ client' = [client EXCEPT ![c] =
             [state |-> "holds", attempt |-> @.attempt, until |-> Good(@.sent), token |-> token]]
        /\ IF Is("tokens are not raised") THEN UNCHANGED <<last, lock>>
           ELSE /\ last' = [s \in Servers |-> IF s \in on THEN Max({last[s], token}) ELSE last[s]]
                /\ lock' = [s \in Servers |->
                     IF s \in on /\ lock[s].owner = c THEN [lock[s] EXCEPT !.token = token] ELSE lock[s]]
        /\ faults' = faults \cup (IF token <= top THEN {"token is not higher"} ELSE {})
        /\ top' = Max({top, token})
  /\ UNCHANGED <<now, born, restarts, asked>>

Given(c) == [s \in Servers |-> IF lock[s].owner = c THEN Free ELSE lock[s]]

\* Too few servers, or too late: what was granted is given back. Requests on their way may still be executed.
GiveUp(c) ==
  /\ client[c].state = "asks"
  /\ client' = [client EXCEPT ![c] = Idle(@.attempt)]
  /\ lock' = Given(c)
  /\ UNCHANGED <<now, last, born, restarts, asked, top, faults>>

Release(c) ==
  /\ client[c].state = "holds"
  /\ client' = [client EXCEPT ![c] = Idle(@.attempt)]
  /\ lock' = Given(c)
  /\ UNCHANGED <<now, last, born, restarts, asked, top, faults>>

\* A renewal extends the lease where the hold is, and repairs it where a server has forgotten it. It was sent now or one
\* unit of time ago.
Renew(c) ==
  /\ client[c].state = "holds"
  /\ now < client[c].until \/ Is("a lost hold comes back")
  /\ \E sent \in {now - 1, now}, until \in Ends :
       LET on == {s \in Servers : lock[s].owner = c /\ now < lock[s].until}
           repaired == {s \in Servers : IsFree(s)}
           kept == {s \in on \cup repaired : Counts(s)}
           enough == IsMajority(kept)
       IN /\ lock' = [s \in Servers |->
               IF s \in on \cup repaired
               THEN [owner |-> c, until |-> until, token |-> client[c].token] ELSE lock[s]]
          /\ last' = [s \in Servers |->
               IF s \in on \cup repaired THEN Max({last[s], client[c].token}) ELSE last[s]]
          /\ client' = IF enough THEN [client EXCEPT ![c].until = Max({@, Good(sent)})] ELSE client
          /\ faults' = faults \cup (IF enough /\ client[c].token < top THEN {"token goes back"} ELSE {})
  /\ UNCHANGED <<now, born, restarts, asked, top>>

\* A server without persistence loses its memory.
Restart(s) ==
  /\ restarts < MaxRestarts
  /\ restarts' = restarts + 1
  /\ lock' = [lock EXCEPT ![s] = Free] /\ last' = [last EXCEPT ![s] = 0] /\ born' = [born EXCEPT ![s] = now]
  /\ UNCHANGED <<now, asked, client, top, faults>>

Tick == now < MaxTime /\ now' = now + 1 /\ UNCHANGED <<lock, last, born, restarts, asked, client, top, faults>>

Init ==
  /\ now = Start /\ lock = [s \in Servers |-> Free] /\ last = [s \in Servers |-> 0]
  /\ born = [s \in Servers |-> 0] /\ restarts = 0 /\ asked = {}
  /\ client = [c \in Clients |-> Idle(0)] /\ top = 0 /\ faults = {}

Next ==
  \/ Tick
  \/ \E s \in Servers : Restart(s)
  \/ \E c \in Clients : Ask(c) \/ Hold(c) \/ GiveUp(c) \/ Release(c) \/ Renew(c)
  \/ \E a \in asked : Execute(a[1], a[2], a[3])

Spec == Init /\ [][Next]_vars

Symmetric == Permutations(Servers) \cup Permutations(Clients)

(* What must always hold *)

OneBelieves ==
  \A c, d \in Clients :
    c # d /\ client[c].state = "holds" /\ client[d].state = "holds" =>
      ~(now < client[c].until /\ now < client[d].until)

NoFault == faults = {}
=============================================================================

----------------------------- MODULE Messages -----------------------------
(* The promises of a quorum queue, as docs/ state them, checked on recorded deliveries.
   The behaviour consumes each queue's deliveries one by one. A delivery that breaks a promise is
   no step, so TLC reports a deadlock there; at the end of a queue nothing confirmed may be missing.

   Data.tla defines Queues, a sequence of records:
     kind        "work", "letters" (dead letters arrive, at least once) or "delayed"
     publishes   sequence of <<channel, number, outcome>>; its index is the message
     deliveries  sequence of <<message, consumer, redelivered>>; message 0 was never published
     counted     messages that a delayed queue says it holds at the end *)
EXTENDS Integers, Sequences, FiniteSets, TLC, Data

VARIABLES queue, at, got, plain, newest

vars == <<queue, at, got, plain, newest>>

Nothing == [pair \in {} |-> 0]

Init == queue = 1 /\ at = 1 /\ got = {} /\ plain = {} /\ newest = Nothing

Here == Queues[queue]

Number(pair) == IF pair \in DOMAIN newest THEN newest[pair] ELSE -1

(* No phantom; flagged when delivered before; first deliveries of a channel in order, as far as one
   consumer can see. A dead letter may be published anew under the same content, without a flag. *)
Deliver ==
    /\ queue <= Len(Queues)
    /\ at <= Len(Here.deliveries)
    /\ LET message == Here.deliveries[at][1]
           first == ~Here.deliveries[at][3]
           ordered == first /\ Here.kind = "work"
       IN /\ message # 0
          /\ Here.kind # "delayed"
          /\ LET pair == <<Here.deliveries[at][2], Here.publishes[message][1]>>
                 number == Here.publishes[message][2]
             IN /\ ordered => message \notin plain /\ number > Number(pair)
                /\ newest' = IF ordered THEN (pair :> number) @@ newest ELSE newest
          /\ got' = got \cup {message}
          /\ plain' = IF ordered THEN plain \cup {message} ELSE plain
    /\ at' = at + 1
    /\ UNCHANGED queue

With(outcome) == {m \in 1..Len(Here.publishes) : Here.publishes[m][3] = outcome}

Counted == Cardinality(With("confirmed")) <= Here.counted
           /\ Here.counted <= Cardinality(With("confirmed")) + Cardinality(With("unknown"))

(* At least once: what was confirmed was delivered, or is still held for later. *)
NextQueue ==
    /\ queue <= Len(Queues)
    /\ at = Len(Here.deliveries) + 1
    /\ IF Here.kind = "delayed" THEN Counted ELSE With("confirmed") \subseteq got
    /\ queue' = queue + 1
    /\ at' = 1 /\ got' = {} /\ plain' = {} /\ newest' = Nothing

Accepted == queue > Len(Queues) /\ UNCHANGED vars

Spec == Init /\ [][Deliver \/ NextQueue \/ Accepted]_vars
=============================================================================

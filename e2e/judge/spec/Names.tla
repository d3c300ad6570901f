------------------------------- MODULE Names -------------------------------
(* Linearizability of the catalog: whether each name exists is a register. An operation takes effect
   at one moment between its invocation and its completion; a write without a known completion takes
   effect once after its invocation, or never.

   Data.tla defines Histories, a sequence with one history a name: a sequence of
   <<write, value, invoked, completed>>, ordered by invoked; times are ranks, and completed is 0 if
   it is not known. TLC searches for a linearization of each in turn: a name without one is a state
   in which nothing is possible, and `name` is then its number in every state that is left.

   `done` holds what took effect of the operations from `low` on; all before have. *)
EXTENDS Integers, Sequences, FiniteSets, Data

VARIABLES name, low, done, value

vars == <<name, low, done, value>>

Init == name = 1 /\ low = 1 /\ done = {} /\ value = FALSE

Ops == Histories[name]
Known(i) == Ops[i][4] # 0
Open == {i \in 1..Len(Ops) : ~Known(i)}

(* The first operation, from `from` on, that has to take effect and has not yet. *)
RECURSIVE First(_, _)
First(from, after) ==
    IF from > Len(Ops) \/ (from \notin after /\ Known(from)) THEN from
    ELSE First(from + 1, after)

(* The earliest completion among what has not taken effect; later invocations have to wait. *)
RECURSIVE Bound(_, _)
Bound(from, bound) ==
    IF from > Len(Ops) \/ Ops[from][3] > bound THEN bound
    ELSE Bound(from + 1, IF from \notin done /\ Known(from) /\ Ops[from][4] < bound
                         THEN Ops[from][4] ELSE bound)

Unbounded == 1000000000

RECURSIVE Until(_, _)
Until(i, bound) == IF i > Len(Ops) \/ Ops[i][3] > bound THEN i - 1 ELSE Until(i + 1, bound)

Candidates ==
    LET bound == Bound(low, Unbounded)
    IN {i \in low..Until(low, bound) : i \notin done}
       \cup {i \in Open : i < low /\ i \notin done}

TakeEffect ==
    /\ name <= Len(Histories)
    /\ \E i \in Candidates :
        /\ IF Ops[i][1] THEN value' = Ops[i][2] ELSE value = Ops[i][2] /\ UNCHANGED value
        /\ LET after == done \cup {i}
               next == First(low, after)
           IN low' = next /\ done' = {k \in after : k >= next \/ ~Known(k)}
    /\ UNCHANGED name

NextName ==
    /\ name <= Len(Histories)
    /\ low > Len(Ops)
    /\ name' = name + 1 /\ low' = 1 /\ done' = {} /\ value' = FALSE

Spec == Init /\ [][TakeEffect \/ NextName]_vars

(* "Violated" when every name has a linearization: the counterexample is all of them. *)
NotAccepted == name <= Len(Histories)
=============================================================================

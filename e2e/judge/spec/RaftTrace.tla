----------------------------- MODULE RaftTrace -----------------------------
(* Elections and commits of one Raft group under joint consensus (thesis, 3.4, 3.5 and 4.3), checked
   on a trace of the simulator. Each event of the trace has to be a step; a deadlock is a violation.

   Data.tla defines Trace, a sequence of
     <<"vote", member, term, candidate>>          durable
     <<"log", member, base, terms>>               durable; a snapshot covers all up to base
     <<"lead", member, term, voters, outgoing>>   it became leader under this membership
     <<"commit", member, term, voters, outgoing, base, terms>>
                                                  the leader committed the entries behind base *)
EXTENDS Integers, Sequences, FiniteSets, TLC, Data

VARIABLES at, votes, logs, leaders, committed

vars == <<at, votes, logs, leaders, committed>>

Nothing == [key \in {} |-> 0]

Init == at = 1 /\ votes = Nothing /\ logs = Nothing /\ leaders = Nothing /\ committed = Nothing

E == Trace[at]

Majority(who, electorate) == 2 * Cardinality(who \cap electorate) > Cardinality(electorate)
Quorum(who, voters, outgoing) ==
    Majority(who, voters) /\ (outgoing # {} => Majority(who, outgoing))

(* One vote a term. *)
Vote ==
    /\ E[1] = "vote"
    /\ LET key == <<E[2], E[3]>>
       IN (key \in DOMAIN votes => votes[key] = E[4]) /\ votes' = (key :> E[4]) @@ votes
    /\ UNCHANGED <<logs, leaders, committed>>

Log ==
    /\ E[1] = "log"
    /\ logs' = (E[2] :> <<E[3], E[4]>>) @@ logs
    /\ UNCHANGED <<votes, leaders, committed>>

Holds(member, index, term) ==
    /\ member \in DOMAIN logs
    /\ LET base == logs[member][1]
           terms == logs[member][2]
       IN index <= base \/ (index <= base + Len(terms) /\ terms[index - base] = term)

(* One leader a term, elected by durable votes of a quorum. *)
Lead ==
    /\ E[1] = "lead"
    /\ E[3] \in DOMAIN leaders => leaders[E[3]] = E[2]
    /\ Quorum({key[1] : key \in {k \in DOMAIN votes : k[2] = E[3] /\ votes[k] = E[2]}}, E[4], E[5])
    /\ leaders' = (E[3] :> E[2]) @@ leaders
    /\ UNCHANGED <<votes, logs, committed>>

(* A leader commits up to an entry of its own term that a quorum holds on disk; what was committed
   stays as it is. *)
Commit ==
    /\ E[1] = "commit"
    /\ LET base == E[6]
           terms == E[7]
           last == base + Len(terms)
           new == [index \in (base + 1)..last |-> terms[index - base]]
       IN /\ E[3] \in DOMAIN leaders /\ leaders[E[3]] = E[2]
          /\ terms[Len(terms)] = E[3]
          /\ Quorum({m \in E[4] \cup E[5] : Holds(m, last, E[3])}, E[4], E[5])
          /\ \A index \in DOMAIN new \cap DOMAIN committed : committed[index] = new[index]
          /\ committed' = committed @@ new
    /\ UNCHANGED <<votes, logs, leaders>>

Step == at <= Len(Trace) /\ (Vote \/ Log \/ Lead \/ Commit) /\ at' = at + 1
Accepted == at > Len(Trace) /\ UNCHANGED vars

Spec == Init /\ [][Step \/ Accepted]_vars
=============================================================================

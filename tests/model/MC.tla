--------------------------------- MODULE MC ---------------------------------
(* What TLC checks. Two states that differ only in what can never matter again count once. *)
EXTENDS Protocol

\* The names of runs, identifiers and values do not matter.
Symmetry == Permutations(Runs) \cup Permutations(Ids) \cup Permutations(Values)

\* The rows of a snapshot that nothing names and to which no table can be rolled back do not matter.
Over(batch) == IF batch.kind = "none" THEN NoBatch ELSE batch.over
InUse ==
    {head} \cup EverNamed(pos) \cup Named([pos EXCEPT !.batch = Over(pos.batch)])
    \cup Named([pos EXCEPT !.batch = Over(Over(pos.batch))])
    \cup UNION {IF "batch" \in DOMAIN run[r] THEN {run[r].batch.to} \cup run[r].batch.cut ELSE {} : r \in Runs}
    \cup UNION {IF "memory" \in DOMAIN run[r] /\ run[r].memory # None THEN Named(run[r].memory) ELSE {} : r \in Runs}
    \cup {run[r].view.head : r \in {r \in Runs : "view" \in DOMAIN run[r]}}
    \cup {run[r].snap : r \in {r \in Runs : run[r].at \in {"compared", "repair"}}}
Used(t) == IF left.rollbacks > 0 THEN 1..Len(snaps[t]) ELSE {v[t] : v \in InUse}
View ==
    <<[t \in Tables |-> [s \in 1..Len(snaps[t]) |-> IF s \in Used(t) THEN snaps[t][s] ELSE None]],
      head, {g \in gone : g[2] \in Used(g[1])}, pos, owner, docs, alias, late, run, left, Cardinality(gone)>>
=============================================================================

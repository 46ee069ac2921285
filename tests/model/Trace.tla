-------------------------------- MODULE Trace --------------------------------
(* Is a recorded run of icecdc a behaviour of the protocol? docs/proof.md explains it in words.

   `Traces` are lists of events that tests/model/translation.py made of recorded requests. One of them is chosen at the
   start. Each event must be a step of `Protocol`; between two events only steps happen that nobody outside the run can
   see. A trace is accepted if some behaviour reaches its end. In every state on the way the invariants must hold. *)
EXTENDS TraceData \* which extends Protocol

VARIABLES
    t,          \* the number of the trace
    i,          \* the number of its next event
    shadow,     \* indexes that exist although the model has none: not recorded yet, or not deleted yet
    foreign     \* documents <<index, id>> whose content somebody else wrote

Event == Traces[t][i]
Real == <<shadow, foreign>>

TraceOrders == OrdersOf[t]
TraceGroupsOf(order) == Groupings[order]
TraceKeeps(batch) == Event.pos.kept # None
TraceRewritten(batch) == IF batch.epoch \in DOMAIN Rewrites[t] THEN Rewrites[t][batch.epoch] ELSE {}

TraceInit ==
    /\ snaps = [each \in Tables |-> <<[id \in Ids |-> None]>>] \* the table before its first snapshot
    /\ head = [each \in Tables |-> 1] /\ gone = {}
    /\ pos = [snap |-> Nowhere, idx |-> 0, epoch |-> 0, batch |-> NoBatch, kept |-> None]
    /\ owner = None /\ docs = <<>> /\ alias = {} /\ late = {}
    /\ run = [r \in Runs |-> Idle]
    /\ left = [commits |-> 0, exports |-> Exports, rollbacks |-> Rollbacks, losses |-> Losses, repairs |-> Repairs,
             undos |-> Undos]
    /\ t \in DOMAIN Traces /\ i = 1
    /\ shadow = {} /\ foreign = {}

-----------------------------------------------------------------------------
(* Events. *)

\* The table has the snapshot that the next batch names. A recording does not say when its run opened the table.
Opened == run' = [r \in Runs |-> IF "view" \in DOMAIN run[r] THEN [run[r] EXCEPT !.view = TableNow'] ELSE run[r]]
SnapshotIsNamed ==
    /\ snaps' = [snaps EXCEPT ![Root] = Append(@, Event.rows)] /\ head' = [head EXCEPT ![Root] = Len(snaps'[Root])]
    /\ Opened
    /\ UNCHANGED <<gone, pos, owner, docs, alias, late, left, Real>>
TableIsRolledBack ==
    /\ left.rollbacks > 0 /\ left' = [left EXCEPT !.rollbacks = @ - 1]
    /\ Event.to \in 1..Len(snaps[Root]) /\ head' = [head EXCEPT ![Root] = Event.to] /\ head' # head
    /\ UNCHANGED <<snaps, gone, pos, owner, docs, alias, late, Real>>
    /\ Opened

\* The model creates and deletes indexes in the steps that write the position; the requests come before and after.
Created == DOMAIN docs' \ DOMAIN docs
Dropped == DOMAIN docs \ DOMAIN docs'
IndexIsCreated ==
    /\ Event.idx \notin DOMAIN docs \cup shadow
    /\ shadow' = shadow \cup {Event.idx}
    /\ UNCHANGED <<vars, foreign>>
IndexIsDeleted ==
    /\ \/ Event.idx \notin DOMAIN docs /\ UNCHANGED vars \* a run may delete an index that is gone
       \/ Event.idx \in DOMAIN docs /\ LoseIndex /\ Event.idx \in Dropped
       \/ Event.idx \in DOMAIN docs /\ (\E r \in Runs : Drop(r)) /\ Event.idx \in Dropped
    /\ shadow' = (shadow \cup Dropped) \ {Event.idx}
    /\ UNCHANGED foreign

\* A run writes the position. Whatever step of the run this is, it leads to the recorded position.
PositionIsWritten ==
    LET r == Event.run IN
    /\ Event.accepted
    /\ \/ /\ RunStep(r)
          /\ <<pos', owner'>> = <<Event.pos, Event.owner>>
          /\ <<pos', owner'>> # <<pos, owner>>
          /\ Event.from = 0 \/ Event.from = pos'.snap[Root]
       \/ /\ <<pos, owner>> = <<Event.pos, Event.owner>> \* it renews its lease
          /\ owner = r /\ UNCHANGED vars
    /\ Created \subseteq shadow
    /\ shadow' = (shadow \cup Dropped) \ Created
    /\ UNCHANGED foreign

\* A conditional write was refused: the run lost the lock, or it does not know its own last write, whose answer was lost.
PositionIsRefused ==
    /\ ~Event.accepted
    /\ IF owner = Event.run
       THEN UNCHANGED vars
       ELSE run' = [run EXCEPT ![Event.run] = Idle] /\ UNCHANGED <<table, pos, owner, docs, alias, late, left>>
    /\ UNCHANGED Real

\* OpenSearch executes an operation of a bulk request. A run must have sent it, and its version decides whether it applies.
OperationIsExecuted ==
    LET item == [idx |-> Event.idx, key |-> <<Event.id, None>>, ver |-> Event.ver, val |-> Event.val] IN
    /\ item \in late
    /\ IF Event.idx \in DOMAIN docs
       THEN Event.applied = Applies(item, docs) /\ Outcome(item)
       ELSE Event.idx \in shadow /\ UNCHANGED vars
    /\ foreign' = IF Event.applied THEN foreign \ {<<Event.idx, Event.id>>} ELSE foreign
    /\ UNCHANGED shadow

AliasIsMoved ==
    /\ \E r \in Runs : Publish(r) \/ MoveBack(r)
    /\ alias' = Event.indexes /\ shadow' = shadow \cup Dropped /\ UNCHANGED foreign

\* Somebody else writes a document.
DocumentIsForeign ==
    /\ Event.idx \in DOMAIN docs
    /\ docs' = [docs EXCEPT ![Event.idx].doc[<<Event.id, None>>] = [ver |-> Event.ver, val |-> Event.val]]
    /\ foreign' = foreign \cup {<<Event.idx, Event.id>>}
    /\ UNCHANGED <<table, pos, owner, alias, late, run, left, shadow>>

Happens ==
    CASE Event.event = "snapshot" -> SnapshotIsNamed
      [] Event.event = "rollback" -> TableIsRolledBack
      [] Event.event = "create" -> IndexIsCreated
      [] Event.event = "delete" -> IndexIsDeleted
      [] Event.event = "position" -> PositionIsWritten \/ PositionIsRefused
      [] Event.event = "item" -> OperationIsExecuted
      [] Event.event = "alias" -> AliasIsMoved
      [] Event.event = "foreign" -> DocumentIsForeign

-----------------------------------------------------------------------------
(* Steps that nobody sees: a run reads the position or compares documents, and a run that has the lock goes on with the
   begun batch. *)

\* The step is taken only where it can explain what follows. Otherwise TLC would try it before every event.
BeforeLock ==
    /\ Event.event = "position" /\ Event.accepted
    /\ run[Event.run].at = "idle" /\ owner # Event.run
    /\ Open(Event.run) \/ Compare(Event.run)
AfterWrite ==
    /\ i > 1 /\ Traces[t][i - 1].event = "position"
    /\ LET r == Traces[t][i - 1].run IN run[r].at = "locked" /\ owner = r /\ (Replay(r) \/ Resume(r) \/ ResumeUndo(r))
\* The run before this one moved the alias, and did not come to its commit.
NothingToPublish ==
    /\ Event.event = "position" /\ Event.accepted
    /\ Publish(Event.run) \/ MoveBack(Event.run)
    /\ alias' = alias /\ run'[Event.run].at \in {"commit", "undone"}
NothingToDrop ==
    /\ Event.event = "position" /\ Event.accepted
    /\ Drop(Event.run) /\ docs' = docs

Silent == BeforeLock \/ AfterWrite \/ NothingToPublish \/ NothingToDrop

-----------------------------------------------------------------------------
(* The invariants, but for documents that somebody else wrote. *)

Intact ==
    Committed =>
        /\ pos.idx \in DOMAIN docs
        /\ \A id \in Ids : <<pos.idx, id>> \notin foreign => docs[pos.idx].doc[<<id, None>>].val = Row(pos.snap, id)
Sound == Intact /\ ReadersSeeWholeExports /\ ReadersSeeTheCommittedIndex /\ EpochsAreUnique /\ RunsKnowThePosition

TraceNext ==
    /\ i <= Len(Traces[t])
    /\ \/ Happens /\ i' = i + 1
       \/ Silent /\ UNCHANGED <<i, Real>>
    /\ Sound' /\ EpochGrows /\ (Event.event = "foreign" \/ NoVersionFalls)
    /\ UNCHANGED t
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, t, i, shadow, foreign>>

\* Says how far each trace came.
ASSUME \A trace \in DOMAIN Traces : TLCSet(trace, 0)
Reached == IF i > TLCGet(t) THEN TLCSet(t, i) /\ PrintT(<<"next", t, i>>) ELSE TRUE
=============================================================================

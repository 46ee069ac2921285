------------------------------ MODULE Protocol ------------------------------
(* The commit protocol of icecdc: one table, one index, several runs. docs/proof.md explains it in words.

   Time does not exist here. A lease may expire at any moment, a process may stop at any moment and continue at any
   later one, and a request that was sent may be executed at any later moment or never. So what is shown here holds for
   every lease, delay and clock.

   Each action is one step of icecdc_core that others can see; its comment names the function. *)
EXTENDS Integers, FiniteSets, Sequences, TLC

CONSTANTS
    Runs,          \* driver processes; one that ends starts again as a new run
    Ids,           \* identifiers of rows, and so of documents
    Values,        \* what a row can contain
    None,          \* no row, no document, no run
    Commits,       \* commits to the table after its first snapshot
    Batches,       \* batches that are begun
    Exports,       \* exports that are begun
    Rollbacks,     \* rollbacks of the table
    Expirations,   \* snapshots that expire
    Losses,        \* physical indexes that somebody deletes before readers see them
    Synced,        \* the index exists at the start and is in sync with the first snapshot
    Pairs,         \* an update arrives as a DELETE and an INSERT of one document, in any order
    Repairs,       \* repairs that compare table and index
    Collects,      \* OpenSearch forgets tombstones (index.gc_deletes) while old requests are on their way
    Reduced,       \* leave out steps of a run that lost the lock if they change nothing, see `Overtaken`
    Mutations      \* what a wrong implementation would do

VARIABLES
    snaps,         \* the snapshots of the table, oldest first; a snapshot is a row or None for each identifier
    head,          \* the table's current snapshot
    gone,          \* snapshots that expired
    pos,           \* the stored position
    owner,         \* the run that the position names as holder of the lock
    docs,          \* physical indexes: which rows the export has, and version and value of each document
    alias,         \* physical indexes behind the readers' alias
    late,          \* bulk operations that were sent and may still be executed
    run,           \* what each run is doing
    left           \* how many of the bounded events may still happen

table == <<snaps, head, gone>>
vars == <<snaps, head, gone, pos, owner, docs, alias, late, run, left>>

Mutated(name) == name \in Mutations

-----------------------------------------------------------------------------
(* Positions and batches. `from_snapshot_id` of a begun batch is the position's snapshot, so it needs no field. *)

NoBatch == [kind |-> "none"]
Batch(kind, epoch, to, cut, idx) ==
    [kind |-> kind, epoch |-> epoch, to |-> to, cut |-> cut, idx |-> idx, made |-> FALSE, done |-> 0, order |-> None]

Idle == [at |-> "idle"]
NoDocument == [ver |-> 0, val |-> None]
RowsOf(snapshot) == {i \in Ids : snaps[snapshot][i] # None}
Empty(snapshot) == [rows |-> RowsOf(snapshot), doc |-> [i \in Ids |-> NoDocument]]
Exported(snapshot) ==
    [rows |-> RowsOf(snapshot),
     doc |-> [i \in Ids |-> IF snaps[snapshot][i] = None THEN NoDocument ELSE [ver |-> 3, val |-> snaps[snapshot][i]]]]

Init ==
    /\ snaps \in {<<rows>> : rows \in [Ids -> Values \cup {None}]}
    /\ head = 1
    /\ gone = {}
    /\ pos = IF Synced THEN [snap |-> 1, idx |-> 1, epoch |-> 1, batch |-> NoBatch]
                       ELSE [snap |-> 0, idx |-> 0, epoch |-> 0, batch |-> NoBatch]
    /\ owner = None
    /\ docs = IF Synced THEN (1 :> Exported(1)) ELSE <<>>
    /\ alias = IF Synced THEN {1} ELSE {}
    /\ late = {}
    /\ run = [r \in Runs |-> Idle]
    /\ left = [exports |-> Exports, rollbacks |-> Rollbacks, losses |-> Losses, repairs |-> Repairs]

-----------------------------------------------------------------------------
(* Bulk operations and their versions. *)

UpsertVersion(epoch) == 2 * epoch + 1
DeleteVersion(epoch) == IF Mutated("equal versions") THEN 2 * epoch + 1 ELSE 2 * epoch

Upsert(idx, id, epoch, value) == [idx |-> idx, id |-> id, ver |-> UpsertVersion(epoch), val |-> value]
Delete(idx, id, epoch) == [idx |-> idx, id |-> id, ver |-> DeleteVersion(epoch), val |-> None]

\* What a sync writes: the last step in which a row changed decides, so the value is that of the last snapshot. A sync
\* may also write rows that did not change, with the values they have. No check needs that; Trace.tla says which they were.
Rewritten(batch) == {}
Changed(from, batch) == {i \in Ids : \E s \in batch.cut \cup {batch.to} : snaps[s][i] # snaps[from][i]}
SyncItems(from, batch) ==
    LET after == snaps[batch.to]
        one(i) == IF after[i] = None THEN Delete(batch.idx, i, batch.epoch)
                  ELSE Upsert(batch.idx, i, batch.epoch, after[i])
        pair(i) == IF Pairs /\ after[i] # None /\ snaps[from][i] # None THEN {Delete(batch.idx, i, batch.epoch)} ELSE {}
    IN UNION {{one(i)} \cup pair(i) : i \in Changed(from, batch) \cup Rewritten(batch)}

\* An export has two file groups: the row of one identifier, and the others. `order` says which one is first.
\* Trace.tla replaces both definitions by the groups that were recorded.
Orders == Ids
GroupsOf(order) == <<{order}, Ids \ {order}>>
Complete(batch) == batch.done = Len(GroupsOf(batch.order))
Group(batch) == GroupsOf(batch.order)[batch.done + 1]
GroupItems(batch) ==
    {Upsert(batch.idx, i, batch.epoch, snaps[batch.to][i]) : i \in Group(batch) \cap RowsOf(batch.to)}

\* OpenSearch with version_type=external applies an operation whose version is newer than the one it remembers.
Applies(item, indexes) ==
    /\ item.idx \in DOMAIN indexes
    /\ Mutated("internal versions") \/ Mutated("any version") \/ item.ver > indexes[item.idx].doc[item.id].ver

\* While versions are external and no tombstone is forgotten, an operation that does not apply now never will.
NeverForgets == ~Collects /\ ~Mutated("internal versions") /\ ~Mutated("any version")
Pending(items, indexes) == IF NeverForgets THEN {m \in items : Applies(m, indexes)} ELSE items

-----------------------------------------------------------------------------
(* The table. A run knows it as it was when the run opened it: which snapshots there are, and which one is current. *)

TableNow == [known |-> Len(snaps), head |-> head]

CommitRows(rows) ==
    /\ snaps' = Append(snaps, rows)
    /\ head' = Len(snaps')
    /\ UNCHANGED <<gone, pos, owner, docs, alias, late, run, left>>
CommitTable ==
    /\ Len(snaps) <= Commits
    /\ \E rows \in [Ids -> Values \cup {None}] : rows # snaps[head] /\ CommitRows(rows)

RollBack ==
    /\ left.rollbacks > 0
    /\ head' \in (1..Len(snaps)) \ (gone \cup {head})
    /\ left' = [left EXCEPT !.rollbacks = @ - 1]
    /\ UNCHANGED <<snaps, gone, pos, owner, docs, alias, late, run>>

\* Only the snapshots that the position names matter: of the others an expiration forbids just the rollback to it.
Named(p) == {p.snap} \cup (IF p.batch.kind = "none" THEN {} ELSE {p.batch.to} \cup p.batch.cut)
Expire ==
    /\ Cardinality(gone) < Expirations
    /\ \E s \in (Named(pos) \cap 1..Len(snaps)) \ (gone \cup {head}) : gone' = gone \cup {s}
    /\ UNCHANGED <<snaps, head, pos, owner, docs, alias, late, run, left>>

-----------------------------------------------------------------------------
(* OpenSearch. Each sent operation stays in `late` until it cannot change anything any more: so it may be executed late,
   several times, in any order, or never; and an answer may be lost, after which the same operation is sent again. *)

Outcome(item) ==
    LET old == docs[item.idx].doc[item.id]
        ver == IF Mutated("internal versions") THEN old.ver + 1 ELSE item.ver
    IN
    /\ docs' = IF Applies(item, docs)
               THEN [docs EXCEPT ![item.idx].doc[item.id] = [ver |-> ver, val |-> item.val]]
               ELSE docs
    /\ late' = Pending(late, docs')
    \* Whoever sent it gets an outcome: applied (200), or not newer (409).
    /\ run' = [r \in Runs |-> IF run[r].at = "write" /\ item.idx \in DOMAIN docs
                              THEN [run[r] EXCEPT !.todo = IF NeverForgets THEN Pending(@, docs') ELSE @ \ {item}]
                              ELSE run[r]]
    /\ UNCHANGED <<table, pos, owner, alias, left>>
Execute == \E item \in late : Outcome(item) /\ <<docs', late', run'>> # <<docs, late, run>>

\* index.gc_deletes is over.
ForgetTombstone ==
    /\ Collects
    /\ \E idx \in DOMAIN docs : \E id \in Ids :
        /\ docs[idx].doc[id].val = None /\ docs[idx].doc[id].ver > 0
        /\ docs' = [docs EXCEPT ![idx].doc[id] = NoDocument]
    /\ UNCHANGED <<table, pos, owner, alias, late, run, left>>

Without(idxs) == [i \in DOMAIN docs \ idxs |-> docs[i]]

LoseIndex ==
    /\ left.losses > 0
    /\ \E idx \in DOMAIN docs \ (alias \cup {pos.idx}) : docs' = Without({idx})
    /\ late' = Pending(late, docs')
    /\ left' = [left EXCEPT !.losses = @ - 1]
    /\ UNCHANGED <<table, pos, owner, alias, run>>

-----------------------------------------------------------------------------
(* A run: the lock. Every write of the position is conditional: it succeeds if nobody else wrote the position since this
   run read or wrote it. A run that lost the answer to its own write reads the position and recognizes itself, so after
   it has the lock the condition is that the position still names it. *)

Remembers == Mutated("begin without compare-and-set") \/ Mutated("lock without compare-and-set")
Memory == IF Remembers THEN pos ELSE None

MoreBatches(p) == p.epoch < Batches + (IF Synced THEN 1 ELSE 0)

\* Run.look: read the position, then open the table. A table that is opened later knows more, so that both happen in one
\* step here leaves nothing out. A holder is in nobody's way once its lease expires, which may be now.
Open(r) ==
    /\ run[r].at = "idle"
    /\ pos.batch.kind # "none" \/ (MoreBatches(pos) /\ (pos.snap # head \/ left.exports > 0))
    /\ run' = [run EXCEPT ![r] = [at |-> "opened", fresh |-> TRUE, memory |-> Memory, view |-> TableNow]]
    /\ UNCHANGED <<table, pos, owner, docs, alias, late, left>>

\* After this run wrote the position, the lock is lost for those that read it before.
Stale(runs, r) ==
    [s \in Runs |-> IF s = r \/ runs[s].at # "opened" THEN runs[s]
                    ELSE IF Reduced THEN Idle ELSE [runs[s] EXCEPT !.fresh = FALSE]]

\* After this run acquired the lock, the next write of the position by another run ends that run and changes nothing.
\* What it sent is in `late`. So a run whose next step is such a write may just as well end now. Its other steps remain.
OtherSteps == {"idle", "opened", "compared", "drop", "publish"}
Overtaken(runs, r) == [s \in Runs |-> IF Reduced /\ s # r /\ runs[s].at \notin OtherSteps THEN Idle ELSE runs[s]]

\* Run.lock: write the position with this run as holder. The one that loses reads again, and opens the table again.
Lock(r) ==
    /\ run[r].at = "opened"
    /\ IF run[r].fresh \/ Mutated("lock without compare-and-set")
       THEN /\ owner' = r
            /\ pos' = IF Mutated("lock without compare-and-set") THEN run[r].memory ELSE pos
            /\ run' = Overtaken(Stale([run EXCEPT ![r] = [@ EXCEPT !.at = "locked"]], r), r)
       ELSE /\ run' = [run EXCEPT ![r] = IF Mutated("the table is opened before the position is read")
                                        THEN [@ EXCEPT !.fresh = TRUE, !.memory = Memory]
                                        ELSE Idle]
            /\ UNCHANGED <<owner, pos>>
    /\ UNCHANGED <<table, docs, alias, late, left>>

\* IndexLock.write: FencedError ends the run.
Fenced(r) ==
    /\ run' = [run EXCEPT ![r] = Idle]
    /\ UNCHANGED <<pos, owner, docs, alias, late, left>>

\* The process is killed, or an error ends it. What it sent may still be executed.
Crash(r) ==
    /\ run[r].at # "idle"
    /\ run' = [run EXCEPT ![r] = Idle]
    /\ owner' = IF owner = r THEN None ELSE owner
    /\ UNCHANGED <<table, pos, docs, alias, late, left>>

-----------------------------------------------------------------------------
(* A run: sync batches (jobs/sync.py, runs/plan.py). *)

Known(p) == IF Mutated("begin without compare-and-set") THEN p.memory ELSE pos

\* check_preconditions: the snapshots that a sync reads are still there.
Readable(p) == p.snap \notin gone /\ (p.batch.kind = "sync" => Named(p) \cap gone = {})

NextEpoch(p) == IF Mutated("reused epoch") /\ p.batch.kind # "none" THEN p.epoch ELSE p.epoch + 1

\* Writes the items of a batch: all of them are sent before the first answer counts.
Writing(r, batch, items, indexes) ==
    [at |-> "write", batch |-> batch, todo |-> Pending(items, indexes), view |-> run[r].view]
Sent(items, indexes) == Pending(late \cup items, indexes)

\* next_range: the begun batch is repeated exactly, with its epoch.
Replay(r) ==
    LET p == Known(run[r])
        new == Mutated("replay with a new epoch")
        batch == IF new THEN [p.batch EXCEPT !.epoch = p.epoch + 1] ELSE p.batch
        items == SyncItems(p.snap, batch)
    IN
    /\ run[r].at = "locked"
    /\ p.batch.kind = "sync" /\ Readable(p)
    /\ new => MoreBatches(p)
    /\ run' = [run EXCEPT ![r] = Writing(r, batch, items, docs)]
    /\ late' = Sent(items, docs)
    /\ UNCHANGED <<table, pos, owner, docs, alias, left>>

\* next_range: everything that is new. A begun batch whose rows were rejected, or whose schema or policy changed, is not
\* repeated; its snapshot is a cut of the new batch, which so writes again whatever the earlier one wrote.
NewBatch(p, view) ==
    LET begun == p.batch.kind = "sync" /\ ~Mutated("no cut")
        cut == IF begun THEN p.batch.cut \cup {p.batch.to} ELSE {}
    IN Batch("sync", NextEpoch(p), view.head, cut, p.idx)
Recorded(batch) == IF Mutated("a batch forgets its cuts") THEN [batch EXCEPT !.cut = {}] ELSE batch
CanBegin(p, view) ==
    /\ p.idx # 0 /\ p.batch.kind \in {"none", "sync", "repair"} /\ Readable(p) /\ MoreBatches(p)
    /\ view.head \notin gone
    /\ NewBatch(p, view).cut \cup {view.head} # {p.snap}

\* jobs/sync.py: a begun repair may be dropped at any point, because it writes documents of the position's snapshot.
ForgetRepair(r) ==
    /\ run[r].at = "locked" /\ owner = r
    /\ pos.batch.kind = "repair"
    /\ pos' = [pos EXCEPT !.batch = NoBatch]
    /\ run' = Stale(run, r)
    /\ UNCHANGED <<table, owner, docs, alias, late, left>>

BeginSync(r) ==
    LET p == Known(run[r])
        batch == NewBatch(p, run[r].view)
        items == SyncItems(p.snap, batch)
    IN
    /\ run[r].at = "locked"
    /\ CanBegin(p, run[r].view)
    /\ IF owner = r \/ Mutated("begin without compare-and-set")
       THEN /\ pos' = [p EXCEPT !.batch = Recorded(batch), !.epoch = batch.epoch]
            /\ run' = Stale([run EXCEPT ![r] = Writing(r, batch, items, docs)], r)
            /\ late' = Sent(items, docs)
            /\ UNCHANGED <<owner, docs, alias, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

WriteBeforeBegin(r) ==
    /\ Mutated("write before begin")
    /\ run[r].at = "locked" /\ CanBegin(pos, run[r].view)
    /\ late' = Sent(SyncItems(pos.snap, NewBatch(pos, run[r].view)), docs)
    /\ late' # late
    /\ UNCHANGED <<table, pos, owner, docs, alias, run, left>>

\* IndexLock.commit: the position moves after every operation has an outcome. The run goes on with what is new.
Commit(r) ==
    LET batch == run[r].batch
        after == [snap |-> batch.to, idx |-> batch.idx, epoch |-> batch.epoch, batch |-> NoBatch]
        exported == batch.kind = "export"
        written == run[r].todo = {} \/ Mutated("position before write")
        done == run[r].at = "commit" \/ (run[r].at = "write" /\ ~exported /\ written)
        leftovers == \E i \in DOMAIN docs : i < batch.idx
        \* A repair opened the table before it had the lock; whatever its run does next, it looks again.
        view == IF batch.kind = "repair" THEN TableNow ELSE run[r].view
        next == IF exported \/ (batch.kind = "sync" /\ leftovers) THEN [at |-> "drop", batch |-> batch, view |-> view]
                ELSE [at |-> "locked", memory |-> IF Remembers THEN after ELSE None, view |-> view]
    IN
    /\ run[r].at \in {"write", "commit"} /\ done
    /\ IF owner = r \/ Mutated("commit without lease check")
       THEN /\ pos' = after
            /\ run' = Stale([run EXCEPT ![r] = next], r)
            /\ UNCHANGED <<owner, docs, alias, late, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

-----------------------------------------------------------------------------
(* A run: exports (jobs/export.py, runs/resume.py). *)

\* jobs/sync.py, _reexport: the changes cannot be read any more.
ForgetBatch(r) ==
    /\ Mutated("a re-export forgets the begun batch")
    /\ run[r].at = "locked" /\ owner = r
    /\ pos.idx # 0 /\ ~Readable(pos) /\ pos.batch.kind # "none"
    /\ pos' = [pos EXCEPT !.batch = NoBatch]
    /\ run' = Stale(run, r)
    /\ UNCHANGED <<table, owner, docs, alias, late, left>>

MayExport(p) == p.batch.kind = "export" \/ p.idx = 0 \/ ~Readable(p) \/ left.exports > 0

BeginExport(r) ==
    LET p == Known(run[r])
        epoch == p.epoch + 1
        idx == IF Mutated("export into the live index") /\ p.idx # 0 THEN p.idx ELSE epoch
    IN
    /\ run[r].at = "locked"
    /\ MoreBatches(p) /\ left.exports > 0 /\ MayExport(p) /\ run[r].view.head \notin gone
    /\ IF owner = r
       THEN \E order \in Orders :
            LET batch == [Batch("export", epoch, run[r].view.head, {}, idx) EXCEPT !.order = order]
                previous == IF p.batch.kind = "export" THEN {p.batch.idx} ELSE {}
            IN
            /\ pos' = [p EXCEPT !.batch = batch, !.epoch = epoch]
            /\ run' = Stale([run EXCEPT ![r] =
                   [at |-> "create", batch |-> batch, previous |-> previous, view |-> run[r].view]], r)
            /\ left' = [left EXCEPT !.exports = @ - 1]
            /\ UNCHANGED <<owner, docs, alias, late>>
       ELSE Fenced(r)
    /\ UNCHANGED table

StartGroup(r, batch, indexes) ==
    LET items == GroupItems(batch) IN
    /\ run' = Stale([run EXCEPT ![r] = Writing(r, batch, items, indexes)], r)
    /\ late' = Pending(late \cup items, indexes)

Publishing(r, batch) == [at |-> "publish", batch |-> batch, view |-> run[r].view]

\* The next group, or the publication if there is none left.
Continue(r, batch, indexes) ==
    IF Complete(batch)
    THEN run' = Stale([run EXCEPT ![r] = Publishing(r, batch)], r) /\ UNCHANGED late
    ELSE StartGroup(r, batch, indexes)

\* create_physical, IndexLock.record, drop_unless_read: the index exists and is recorded before the first document.
Create(r) ==
    LET batch == [run[r].batch EXCEPT !.made = TRUE]
        kept == Without(run[r].previous \ alias)
        created == IF batch.idx \in DOMAIN kept THEN kept ELSE (batch.idx :> Empty(batch.to)) @@ kept
    IN
    /\ run[r].at = "create"
    /\ IF owner = r
       THEN /\ pos' = [pos EXCEPT !.batch = batch]
            /\ docs' = created
            /\ Continue(r, batch, created)
            /\ UNCHANGED <<owner, alias, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

\* resumed_groups: only if everything the export depends on is proven unchanged.
Resume(r) ==
    LET begun == pos.batch
        to == IF Mutated("resume with the current snapshot") THEN head ELSE begun.to
        deleted == begun.idx \notin DOMAIN docs
        created == IF deleted THEN (begun.idx :> Empty(to)) @@ docs ELSE docs
    IN
    /\ run[r].at = "locked" /\ owner = r
    /\ begun.kind = "export" /\ begun.made /\ begun.to \notin gone
    /\ deleted => Mutated("resume in an index created again")
    /\ \E order \in Orders :
        LET batch == [begun EXCEPT !.order = order, !.to = to] IN
        /\ order = begun.order \/ Mutated("resume by count")
        /\ docs' = created
        /\ IF Complete(batch)
           THEN run' = [run EXCEPT ![r] = Publishing(r, batch)] /\ UNCHANGED late
           ELSE StartGroup(r, batch, created)
    /\ UNCHANGED <<table, pos, owner, alias, left>>

\* IndexLock.record: a group is recorded when each of its operations has an outcome.
Progress(r) ==
    LET batch == [run[r].batch EXCEPT !.done = @ + 1] IN
    /\ run[r].at = "write" /\ run[r].batch.kind = "export"
    /\ run[r].todo = {} \/ Mutated("group recorded before it is written")
    /\ IF owner = r
       THEN /\ pos' = [pos EXCEPT !.batch = batch]
            /\ Continue(r, batch, docs)
            /\ UNCHANGED <<owner, docs, alias, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

\* publish: the alias moves in one step, if the index is still the one that the export created, and if readers still see
\* what they saw when this run had the lock: no newer index. The lock itself is not checked again.
Publish(r) ==
    /\ \/ run[r].at = "publish"
       \/ Mutated("alias before the last group") /\ run[r].at = "write" /\ run[r].batch.kind = "export"
    /\ run[r].batch.idx \in DOMAIN docs
    /\ IF (\A idx \in alias : idx <= run[r].batch.idx) \/ Mutated("a run without the lock moves the alias")
       THEN /\ alias' = {run[r].batch.idx}
            /\ run' = IF run[r].at = "publish"
                      THEN [run EXCEPT ![r] = [@ EXCEPT !.at = "commit"]]
                      ELSE run
            /\ UNCHANGED <<pos, owner, docs, late, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

\* commit_batch: drop_leftovers, after the commit.
Drop(r) ==
    LET kept == run[r].batch.idx
        others == IF Mutated("a run without the lock deletes a newer index") THEN DOMAIN docs \ {kept}
                  ELSE {i \in DOMAIN docs : i < kept}
    IN
    /\ run[r].at = "drop"
    /\ docs' = Without(others)
    /\ alias' = alias \ others
    /\ late' = Pending(late, docs')
    /\ run' = [run EXCEPT ![r] = [at |-> "locked", memory |-> None, view |-> run[r].view]]
    /\ UNCHANGED <<table, pos, owner, left>>

-----------------------------------------------------------------------------
(* A run: validation with repair (jobs/validate.py, jobs/repair.py). It compares, then acquires the lock. *)

Differences(snapshot, idx) ==
    {[id |-> i, extra |-> snaps[snapshot][i] = None] : i \in {i \in Ids : docs[idx].doc[i].val # snaps[snapshot][i]}}

Compare(r) ==
    /\ left.repairs > 0
    /\ run[r].at = "idle" /\ pos.idx \in DOMAIN docs /\ pos.snap \notin gone
    /\ Differences(pos.snap, pos.idx) # {}
    /\ left' = [left EXCEPT !.repairs = @ - 1]
    /\ run' = [run EXCEPT ![r] = [at |-> "compared", differences |-> Differences(pos.snap, pos.idx), snap |-> pos.snap,
                                   view |-> TableNow]]
    /\ UNCHANGED <<table, pos, owner, docs, alias, late>>

LockForRepair(r) ==
    /\ run[r].at = "compared"
    /\ owner' = r
    /\ run' = Overtaken(Stale([run EXCEPT ![r] = [@ EXCEPT !.at = "repair"]], r), r)
    /\ UNCHANGED <<table, pos, docs, alias, late, left>>

\* repair_differences: a batch of its own, at the position's snapshot. The code also asks for the index and the epoch that
\* were compared, so it refuses more than this step.
BeginRepair(r) ==
    LET batch == Batch("repair", pos.epoch + 1, pos.snap, {}, pos.idx)
        rows == snaps[pos.snap]
        item(d) == IF d.extra THEN {Delete(pos.idx, d.id, batch.epoch)}
                   ELSE IF rows[d.id] # None THEN {Upsert(pos.idx, d.id, batch.epoch, rows[d.id])} ELSE {}
        items == UNION {item(d) : d \in run[r].differences}
    IN
    /\ run[r].at = "repair" /\ MoreBatches(pos)
    /\ pos.batch.kind \in {"none", "repair"} \/ Mutated("a repair replaces a begun batch")
    /\ pos.snap = run[r].snap \/ Mutated("a repair writes what it compared with an older position")
    /\ IF owner = r
       THEN /\ pos' = [pos EXCEPT !.batch = batch, !.epoch = batch.epoch]
            /\ run' = Stale([run EXCEPT ![r] = Writing(r, batch, items, docs)], r)
            /\ late' = Sent(items, docs)
            /\ UNCHANGED <<owner, docs, alias, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

-----------------------------------------------------------------------------

RunStep(r) ==
    \/ Open(r) \/ Lock(r) \/ Crash(r)
    \/ Replay(r) \/ ForgetRepair(r) \/ BeginSync(r) \/ WriteBeforeBegin(r) \/ Commit(r)
    \/ ForgetBatch(r) \/ BeginExport(r) \/ Create(r) \/ Resume(r) \/ Progress(r) \/ Publish(r) \/ Drop(r)
    \/ Compare(r) \/ LockForRepair(r) \/ BeginRepair(r)

Next ==
    \/ CommitTable \/ RollBack \/ Expire
    \/ Execute \/ LoseIndex \/ ForgetTombstone
    \/ \E r \in Runs : RunStep(r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

\* Committed and no batch begun: the index equals the table at the position's snapshot.
Committed == pos.idx # 0 /\ pos.batch.kind = "none"
RowsAreIndexed ==
    Committed => /\ pos.idx \in DOMAIN docs
                 /\ \A i \in RowsOf(pos.snap) : docs[pos.idx].doc[i].val = snaps[pos.snap][i]
NoExtraDocuments ==
    Committed => /\ pos.idx \in DOMAIN docs
                 /\ \A i \in Ids \ RowsOf(pos.snap) : docs[pos.idx].doc[i].val = None
IndexIsSnapshot == RowsAreIndexed /\ NoExtraDocuments

\* Every index that readers see has all documents of its export, each as exported or newer.
ReadersSeeWholeExports ==
    \A idx \in alias :
        /\ idx \in DOMAIN docs
        /\ \A i \in docs[idx].rows : docs[idx].doc[i].ver > 2 * idx

\* Committed and no batch begun: readers see the index of the position and no other.
ReadersSeeTheCommittedIndex == Committed => alias = {pos.idx}

\* Two runs that write with one epoch write the same batch, and no epoch in use is above the recorded one.
AtWork == {r \in Runs : run[r].at \in {"create", "write", "publish", "commit"}}
Identity(batch) == [kind |-> batch.kind, to |-> batch.to, idx |-> batch.idx, order |-> batch.order]
EpochsAreUnique ==
    \A r \in AtWork :
        /\ run[r].batch.epoch <= pos.epoch
        /\ \A s \in AtWork : run[r].batch.epoch = run[s].batch.epoch => Identity(run[r].batch) = Identity(run[s].batch)

\* Whoever has the lock has opened the table late enough: it has every snapshot that the position names. Otherwise a
\* snapshot that is merely newer would look like an expired one, and an export would bring an older one.
RunsKnowThePosition ==
    \A r \in Runs : run[r].at = "locked" /\ owner = r => \A s \in Named(pos) : s <= run[r].view.known

\* A new batch has an epoch above all before, and the recorded epoch never falls.
Begins == pos'.batch.kind # "none" /\ (pos.batch.kind = "none" \/ Identity(pos'.batch) # Identity(pos.batch))
EpochGrows == pos'.epoch >= pos.epoch /\ (Begins => pos'.epoch > pos.epoch /\ pos'.batch.epoch = pos'.epoch)
EpochsGrow == [][EpochGrows]_vars

\* The version of a document never falls, that of a deleted one included.
NoVersionFalls ==
    \A idx \in DOMAIN docs \cap DOMAIN docs' : \A i \in Ids : docs'[idx].doc[i].ver >= docs[idx].doc[i].ver
VersionsNeverFall == [][NoVersionFalls]_vars
=============================================================================

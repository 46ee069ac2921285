------------------------------ MODULE Protocol ------------------------------
(* The commit protocol of icecdc: one index, its tables, several runs. docs/proof.md explains it in words.

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
    Nested,        \* tables nested in the documents; their row of an identifier belongs to the root of that identifier
    Moving,        \* the row of the root decides in which place (routing, index) its document is
    Commits,       \* commits to the tables after their first snapshots
    Batches,       \* batches that are begun
    Exports,       \* exports that are begun
    Rollbacks,     \* rollbacks of a table
    Undos,         \* rollbacks of the index to the one before its last export
    Expirations,   \* snapshots that expire
    Losses,        \* physical indexes that somebody deletes before readers see them
    Synced,        \* the index exists at the start and is in sync with the first snapshot
    Pairs,         \* an update arrives as a DELETE and an INSERT of one document, in any order
    Repairs,       \* repairs that compare table and index
    Collects,      \* OpenSearch forgets tombstones (index.gc_deletes) while old requests are on their way
    Reduced,       \* leave out steps of a run that lost the lock if they change nothing, see `Overtaken`
    Mutations      \* what a wrong implementation would do

VARIABLES
    snaps,         \* the snapshots of each table, oldest first; a snapshot is a row or None for each identifier
    head,          \* the vector of current snapshots: one for each table
    gone,          \* snapshots that expired: <<table, snapshot>>
    pos,           \* the stored position
    owner,         \* the run that the position names as holder of the lock
    docs,          \* physical indexes: where the documents of the export are, and version and value of each document
    alias,         \* physical indexes behind the readers' alias
    late,          \* bulk operations that were sent and may still be executed
    run,           \* what each run is doing
    left           \* how many of the bounded events may still happen

table == <<snaps, head, gone>>
vars == <<snaps, head, gone, pos, owner, docs, alias, late, run, left>>

Mutated(name) == name \in Mutations

-----------------------------------------------------------------------------
(* Positions and batches speak of vectors. A begun batch begins at that of the position, so it needs no field for it. *)

Root == "root"
Tables == {Root} \cup Nested
Nowhere == [t \in Tables |-> 0]
Expired(vector) == \E t \in Tables : <<t, vector[t]>> \in gone

\* The document of an identifier: its rows in all tables, where the root has one.
Row(vector, id) == snaps[Root][vector[Root]][id]
Document(vector, id) ==
    IF Row(vector, id) = None \/ Nested = {} THEN Row(vector, id) ELSE [t \in Tables |-> snaps[t][vector[t]][id]]
Places == IF Moving THEN Values ELSE {None}
PlaceOf(vector, id) == IF Moving THEN Row(vector, id) ELSE None
Keys == Ids \X Places
Wanted(vector, key) == IF PlaceOf(vector, key[1]) = key[2] THEN Document(vector, key[1]) ELSE None

NoBatch == [kind |-> "none"]
Batch(kind, epoch, to, cut, idx) ==
    [kind |-> kind, epoch |-> epoch, to |-> to, cut |-> cut, idx |-> idx, made |-> FALSE, done |-> 0, order |-> None,
     over |-> NoBatch] \* the begun batch whose place it took

Idle == [at |-> "idle"]
NoDocument == [ver |-> 0, val |-> None]
KeysOf(vector) == {key \in Keys : Wanted(vector, key) # None}
Empty(vector) == [rows |-> KeysOf(vector), doc |-> [key \in Keys |-> NoDocument]]
Exported(vector) ==
    [rows |-> KeysOf(vector),
     doc |-> [key \in Keys |->
                 IF key \in KeysOf(vector) THEN [ver |-> 3, val |-> Wanted(vector, key)] ELSE NoDocument]]

Init ==
    /\ snaps \in [Tables -> {<<rows>> : rows \in [Ids -> Values \cup {None}]}]
    /\ head = [t \in Tables |-> 1]
    /\ gone = {}
    /\ pos = IF Synced THEN [snap |-> head, idx |-> 1, epoch |-> 1, batch |-> NoBatch, kept |-> None]
                       ELSE [snap |-> Nowhere, idx |-> 0, epoch |-> 0, batch |-> NoBatch, kept |-> None]
    /\ owner = None
    /\ docs = IF Synced THEN (1 :> Exported(head)) ELSE <<>>
    /\ alias = IF Synced THEN {1} ELSE {}
    /\ late = {}
    /\ run = [r \in Runs |-> Idle]
    /\ left = [commits |-> Commits, exports |-> Exports, rollbacks |-> Rollbacks, losses |-> Losses,
               repairs |-> Repairs, undos |-> Undos]

-----------------------------------------------------------------------------
(* Bulk operations and their versions. *)

UpsertVersion(epoch) == 2 * epoch + 1
DeleteVersion(epoch) == IF Mutated("equal versions") THEN 2 * epoch + 1 ELSE 2 * epoch

Upsert(batch, id) ==
    [idx |-> batch.idx, key |-> <<id, PlaceOf(batch.to, id)>>, ver |-> UpsertVersion(batch.epoch),
     val |-> Document(batch.to, id)]
Delete(batch, key) == [idx |-> batch.idx, key |-> key, ver |-> DeleteVersion(batch.epoch), val |-> None]

\* What a sync writes: the document of each root that changed in any table, as it is at the last vector. It deletes in
\* every place that the document had at the position or at a cut. A sync may also write documents that did not change.
\* No check needs that; Trace.tla says which they were.
Rewritten(batch) == {}
Changed(from, batch) ==
    {i \in Ids : \E v \in batch.cut \cup {batch.to} : Document(v, i) # Document(from, i)}
SyncItems(from, batch) ==
    LET earlier == {from} \cup (IF Mutated("deletes go to the place at the position") THEN {} ELSE batch.cut)
        new(i) == IF Row(batch.to, i) = None THEN {} ELSE {<<i, PlaceOf(batch.to, i)>>}
        old(i) == {<<i, PlaceOf(v, i)>> : v \in earlier} \cap Keys
        items(i) == {Upsert(batch, key[1]) : key \in new(i)}
                    \cup {Delete(batch, key) : key \in IF Pairs THEN old(i) ELSE old(i) \ new(i)}
    IN UNION {items(i) : i \in Changed(from, batch) \cup Rewritten(batch)}

\* An export has two file groups: the row of one identifier, and the others. `order` says which one is first.
\* Trace.tla replaces both definitions by the groups that were recorded.
Orders == Ids
GroupsOf(order) == <<{order}, Ids \ {order}>>
Complete(batch) == batch.done = Len(GroupsOf(batch.order))
Group(batch) == GroupsOf(batch.order)[batch.done + 1]
GroupItems(batch) == {Upsert(batch, i) : i \in {i \in Group(batch) : Row(batch.to, i) # None}}

\* OpenSearch with version_type=external applies an operation whose version is newer than the one it remembers.
Applies(item, indexes) ==
    /\ item.idx \in DOMAIN indexes
    /\ Mutated("internal versions") \/ Mutated("any version") \/ item.ver > indexes[item.idx].doc[item.key].ver
    \* An index for some documents is created by the first operation: a delete must leave its tombstone there, too.
    /\ Mutated("a delete creates no index") /\ item.val = None =>
        \E i \in Ids : indexes[item.idx].doc[<<i, item.key[2]>>].ver > 0

\* While versions are external and no tombstone is forgotten, an operation that does not apply now never will.
NeverForgets == ~Collects /\ {"internal versions", "any version", "a delete creates no index"} \cap Mutations = {}
Pending(items, indexes) == IF NeverForgets THEN {m \in items : Applies(m, indexes)} ELSE items

-----------------------------------------------------------------------------
(* The tables. A run knows them as they were when the run opened them: which snapshots there are, and which are current. *)

TableNow == [known |-> [t \in Tables |-> Len(snaps[t])], head |-> head]

CommitTable ==
    /\ left.commits > 0 /\ left' = [left EXCEPT !.commits = @ - 1]
    /\ \E t \in Tables : \E rows \in [Ids -> Values \cup {None}] :
        /\ rows # snaps[t][head[t]]
        /\ snaps' = [snaps EXCEPT ![t] = Append(@, rows)]
        /\ head' = [head EXCEPT ![t] = Len(snaps[t]) + 1]
    /\ UNCHANGED <<gone, pos, owner, docs, alias, late, run>>

RollBack ==
    /\ left.rollbacks > 0
    /\ \E t \in Tables : \E s \in 1..Len(snaps[t]) :
        s # head[t] /\ <<t, s>> \notin gone /\ head' = [head EXCEPT ![t] = s]
    /\ left' = [left EXCEPT !.rollbacks = @ - 1]
    /\ UNCHANGED <<snaps, gone, pos, owner, docs, alias, late, run>>

\* Only the snapshots that the position names matter: of the others an expiration forbids just the rollback to it.
\* A table that is dropped and created again is one whose snapshots all expired.
Named(p) == {p.snap} \cup (IF p.batch.kind = "none" THEN {} ELSE {p.batch.to} \cup p.batch.cut)
EverNamed(p) == Named(p) \cup (IF p.kept = None THEN {} ELSE Named(p.kept))
Expire ==
    /\ Cardinality(gone) < Expirations
    /\ \E t \in Tables : \E s \in {v[t] : v \in EverNamed(pos)} \ {0, head[t]} :
        <<t, s>> \notin gone /\ gone' = gone \cup {<<t, s>>}
    /\ UNCHANGED <<snaps, head, pos, owner, docs, alias, late, run, left>>

-----------------------------------------------------------------------------
(* OpenSearch. Each sent operation stays in `late` until it cannot change anything any more: so it may be executed late,
   several times, in any order, or never; and an answer may be lost, after which the same operation is sent again. *)

Outcome(item) ==
    LET old == docs[item.idx].doc[item.key]
        ver == IF Mutated("internal versions") THEN old.ver + 1 ELSE item.ver
    IN
    /\ docs' = IF Applies(item, docs)
               THEN [docs EXCEPT ![item.idx].doc[item.key] = [ver |-> ver, val |-> item.val]]
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
    /\ \E idx \in DOMAIN docs : \E key \in Keys :
        /\ docs[idx].doc[key].val = None /\ docs[idx].doc[key].ver > 0
        /\ docs' = [docs EXCEPT ![idx].doc[key] = NoDocument]
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
    /\ pos.batch.kind # "none" \/ (MoreBatches(pos) /\ (pos.snap # head \/ left.exports > 0 \/ pos.kept # None))
    /\ run' = [run EXCEPT ![r] = [at |-> "opened", fresh |-> TRUE, memory |-> Memory, view |-> TableNow]]
    /\ UNCHANGED <<table, pos, owner, docs, alias, late, left>>

\* It opens one table after the other.
OpenAnother(r) ==
    /\ run[r].at = "opened" /\ run[r].view # TableNow
    /\ \E t \in Nested : run' = [run EXCEPT ![r].view.known[t] = Len(snaps[t]), ![r].view.head[t] = head[t]]
    /\ UNCHANGED <<table, pos, owner, docs, alias, late, left>>

\* After this run wrote the position, the lock is lost for those that read it before.
Stale(runs, r) ==
    [s \in Runs |-> IF s = r \/ runs[s].at # "opened" THEN runs[s]
                    ELSE IF Reduced THEN Idle ELSE [runs[s] EXCEPT !.fresh = FALSE]]

\* After this run acquired the lock, the next write of the position by another run ends that run and changes nothing.
\* What it sent is in `late`. So a run whose next step is such a write may just as well end now. Its other steps remain.
OtherSteps == {"idle", "opened", "compared", "drop", "publish", "undo"}
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
                                        ELSE IF Mutated("a nested table is opened before the position is read")
                                        THEN [@ EXCEPT !.fresh = TRUE, !.view.known[Root] = Len(snaps[Root]),
                                                       !.view.head[Root] = head[Root]]
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
Readable(p) == ~Expired(p.snap) /\ (p.batch.kind = "sync" => \A v \in Named(p) : ~Expired(v))

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
\* repeated; its vector is a cut of the new batch, which so writes again whatever the earlier one wrote.
NewBatch(p, view) ==
    LET begun == p.batch.kind = "sync" /\ ~Mutated("no cut")
        cut == IF begun THEN p.batch.cut \cup {p.batch.to} ELSE {}
        kept(v) == IF Mutated("a cut is the snapshot of the root alone") THEN [view.head EXCEPT ![Root] = v[Root]]
                   ELSE v
    IN Batch("sync", NextEpoch(p), view.head, {kept(v) : v \in cut}, p.idx)
Recorded(batch) == IF Mutated("a batch forgets its cuts") THEN [batch EXCEPT !.cut = {}] ELSE batch
CanBegin(p, view) ==
    /\ p.idx # 0 /\ p.batch.kind \in {"none", "sync", "repair"} /\ Readable(p) /\ MoreBatches(p)
    /\ ~Expired(view.head)
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

\* commit_batch: an export may keep the index before it, as it was when the export began. A sync keeps what is kept.
Keeps(batch) == left.undos > 0
KeptAfter(batch) ==
    LET over == IF Mutated("a kept index forgets its begun batch") THEN NoBatch ELSE batch.over IN
    IF batch.kind # "export" THEN pos.kept
    ELSE IF pos.idx # 0 /\ Keeps(batch) THEN [snap |-> pos.snap, idx |-> pos.idx, batch |-> over] ELSE None

\* IndexLock.commit: the position moves after every operation has an outcome. The run goes on with what is new.
Commit(r) ==
    LET batch == run[r].batch
        reached == IF Mutated("the position moves for the root alone") THEN [pos.snap EXCEPT ![Root] = batch.to[Root]]
                   ELSE batch.to
        \* An undo may have brought back a begun batch whose epoch is not the last one.
        epoch == IF pos.epoch > batch.epoch THEN pos.epoch ELSE batch.epoch
        kept == KeptAfter(batch)
        after == [snap |-> reached, idx |-> batch.idx, epoch |-> epoch, batch |-> NoBatch, kept |-> kept]
        keep == IF kept = None THEN 0 ELSE kept.idx
        exported == batch.kind = "export"
        written == run[r].todo = {} \/ Mutated("position before write")
        done == run[r].at = "commit" \/ (run[r].at = "write" /\ ~exported /\ written)
        leftovers == \E i \in DOMAIN docs \ {keep} : i < batch.idx
        \* A repair opened the table before it had the lock; whatever its run does next, it looks again.
        view == IF batch.kind = "repair" THEN TableNow ELSE run[r].view
        next == IF exported \/ (batch.kind = "sync" /\ leftovers)
                THEN [at |-> "drop", batch |-> batch, keep |-> keep, view |-> view]
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
(* A run: exports (jobs/export.py). *)

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
    /\ MoreBatches(p) /\ left.exports > 0 /\ MayExport(p) /\ ~Expired(run[r].view.head)
    /\ p.batch.kind # "rollback"
    /\ IF owner = r
       THEN \E order \in Orders :
            LET over == IF left.undos = 0 THEN NoBatch ELSE IF p.batch.kind = "export" THEN p.batch.over ELSE p.batch
                batch == [Batch("export", epoch, run[r].view.head, {}, idx) EXCEPT !.order = order, !.over = over]
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
        to == IF Mutated("resume with the current snapshot") THEN head
              ELSE IF Mutated("resume with current snapshots of nested tables") THEN [head EXCEPT ![Root] = begun.to[Root]]
              ELSE begun.to
        deleted == begun.idx \notin DOMAIN docs
        created == IF deleted THEN (begun.idx :> Empty(to)) @@ docs ELSE docs
    IN
    /\ run[r].at = "locked" /\ owner = r
    /\ begun.kind = "export" /\ begun.made /\ ~Expired(begun.to)
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
    LET own == run[r].batch.idx
        others == IF Mutated("a run without the lock deletes a newer index") THEN DOMAIN docs \ {own}
                  ELSE {i \in DOMAIN docs : i < own /\ i \notin alias} \ {run[r].keep}
    IN
    /\ run[r].at = "drop"
    /\ docs' = Without(others)
    /\ alias' = alias \ others
    /\ late' = Pending(late, docs')
    /\ run' = [run EXCEPT ![r] = [at |-> "locked", memory |-> None, view |-> run[r].view]]
    /\ UNCHANGED <<table, pos, owner, left>>

-----------------------------------------------------------------------------
(* A run: the rollback of the index to the one that the last export kept (jobs/rollback.py, Run.finish_rollback). *)

BeginUndo(r) ==
    LET batch == [Batch("rollback", pos.epoch + 1, pos.kept.snap, {}, pos.kept.idx) EXCEPT !.over = pos.batch] IN
    /\ run[r].at = "locked" /\ owner = r
    /\ left.undos > 0 /\ MoreBatches(pos) /\ pos.kept # None /\ pos.kept.idx \in DOMAIN docs
    /\ pos.batch.kind # "rollback" /\ (pos.batch.kind = "export" => pos.batch.idx \notin alias)
    /\ pos' = [pos EXCEPT !.batch = batch, !.epoch = batch.epoch]
    /\ left' = [left EXCEPT !.undos = @ - 1] /\ run' = Stale(run, r)
    /\ UNCHANGED <<table, owner, docs, alias, late>>

\* Run.lock: whoever has the lock finishes a begun rollback, or forgets it if its index is gone.
ResumeUndo(r) ==
    LET batch == pos.batch IN
    /\ run[r].at = "locked" /\ owner = r /\ batch.kind = "rollback"
    /\ IF batch.idx \in DOMAIN docs
       THEN run' = [run EXCEPT ![r] = [at |-> "undo", batch |-> batch, seen |-> alias, view |-> run[r].view]]
            /\ UNCHANGED pos
       ELSE pos' = [pos EXCEPT !.batch = batch.over] /\ run' = Stale(run, r)
    /\ UNCHANGED <<table, owner, docs, alias, late, left>>

\* publish_index: others lose their write aliases in the same step. Nobody can publish them again, so they are as deleted.
MoveBack(r) ==
    LET idx == run[r].batch.idx IN
    /\ run[r].at = "undo"
    /\ IF alias = {idx} \/ (idx \in DOMAIN docs /\ (alias = run[r].seen \/ Mutated("a stalled rollback moves the alias")))
       THEN /\ alias' = {idx}
            /\ docs' = IF alias = {idx} \/ Mutated("a rollback leaves other indexes writable") THEN docs
                       ELSE Without(DOMAIN docs \ {idx})
            /\ late' = Pending(late, docs') /\ run' = [run EXCEPT ![r] = [@ EXCEPT !.at = "undone"]]
            /\ UNCHANGED <<pos, owner, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

CommitUndo(r) ==
    /\ run[r].at = "undone"
    /\ IF owner = r
       THEN /\ pos' = pos.kept @@ [epoch |-> pos.epoch, kept |-> None]
            /\ run' = Stale([run EXCEPT ![r] = [at |-> "locked", memory |-> None, view |-> TableNow]], r)
            /\ UNCHANGED <<owner, docs, alias, late, left>>
       ELSE Fenced(r)
    /\ UNCHANGED table

-----------------------------------------------------------------------------
(* A run: validation with repair (jobs/validate.py, jobs/repair.py). It compares, then acquires the lock. *)

Differences(vector, idx) == {key \in Keys : docs[idx].doc[key].val # Wanted(vector, key)}

Compare(r) ==
    /\ left.repairs > 0
    /\ run[r].at = "idle" /\ pos.idx \in DOMAIN docs /\ ~Expired(pos.snap)
    /\ Differences(pos.snap, pos.idx) # {}
    /\ left' = [left EXCEPT !.repairs = @ - 1]
    /\ LET differences == Differences(pos.snap, pos.idx) IN
        run' = [run EXCEPT ![r] = [at |-> "compared", differences |-> differences, snap |-> pos.snap, view |-> TableNow,
                                   extra |-> {key \in differences : Wanted(pos.snap, key) = None}]]
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
        missing == (run[r].differences \ run[r].extra) \cap KeysOf(pos.snap)
        items == {Delete(batch, key) : key \in run[r].extra} \cup {Upsert(batch, key[1]) : key \in missing}
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
    \/ Open(r) \/ OpenAnother(r) \/ Lock(r) \/ Crash(r)
    \/ Replay(r) \/ ForgetRepair(r) \/ BeginSync(r) \/ WriteBeforeBegin(r) \/ Commit(r)
    \/ ForgetBatch(r) \/ BeginExport(r) \/ Create(r) \/ Resume(r) \/ Progress(r) \/ Publish(r) \/ Drop(r)
    \/ BeginUndo(r) \/ ResumeUndo(r) \/ MoveBack(r) \/ CommitUndo(r)
    \/ Compare(r) \/ LockForRepair(r) \/ BeginRepair(r)

Next ==
    \/ CommitTable \/ RollBack \/ Expire
    \/ Execute \/ LoseIndex \/ ForgetTombstone
    \/ \E r \in Runs : RunStep(r)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

\* Committed and no batch begun: the index has the documents of the position's vector, each in its place.
Committed == pos.idx # 0 /\ pos.batch.kind = "none"
RowsAreIndexed ==
    Committed => /\ pos.idx \in DOMAIN docs
                 /\ \A key \in KeysOf(pos.snap) : docs[pos.idx].doc[key].val = Wanted(pos.snap, key)
NoExtraDocuments ==
    Committed => /\ pos.idx \in DOMAIN docs
                 /\ \A key \in Keys \ KeysOf(pos.snap) : docs[pos.idx].doc[key].val = None
IndexIsSnapshot == RowsAreIndexed /\ NoExtraDocuments

\* Every index that readers see has all documents of its export, each as exported or newer.
ReadersSeeWholeExports ==
    \A idx \in alias :
        /\ idx \in DOMAIN docs
        /\ \A key \in docs[idx].rows : docs[idx].doc[key].ver > 2 * idx

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
    \A r \in Runs : run[r].at = "locked" /\ owner = r => \A v \in Named(pos) : \A t \in Tables : v[t] <= run[r].view.known[t]

\* A new batch has an epoch above all before, and the recorded epoch never falls.
Begins ==
    /\ pos'.batch.kind # "none" /\ pos.batch.kind # "rollback" \* the end of a rollback may bring back a begun batch
    /\ (pos.batch.kind = "none" \/ Identity(pos'.batch) # Identity(pos.batch))
EpochGrows == pos'.epoch >= pos.epoch /\ (Begins => pos'.epoch > pos.epoch /\ pos'.batch.epoch = pos'.epoch)
EpochsGrow == [][EpochGrows]_vars

\* The version of a document never falls, that of a deleted one included.
NoVersionFalls ==
    \A idx \in DOMAIN docs \cap DOMAIN docs' : \A key \in Keys : docs'[idx].doc[key].ver >= docs[idx].doc[key].ver
VersionsNeverFall == [][NoVersionFalls]_vars
=============================================================================

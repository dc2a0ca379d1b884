/* full.pml - a log that is full: does everybody get on?
 *
 * A log of SEGS segments of SEG records. Clients put, the expirer deletes, and
 * now and then the clock's bound must be raised, by a fact. Each passes the gate,
 * is ordered under the shard's lock (queued), is written by the log's goroutine,
 * and is published by it under the same lock; then whoever waits for it goes on.
 * A put or a delete may find at its order that the clock's bound is too low:
 * it lets the lock go and waits until one goroutine, which holds "raising", has
 * had the fact published. A checkpoint takes the oldest segment when it is full
 * and published, and frees it. What passes the gate has its room in the log
 * reserved until its segment is free.
 *
 * The last segment is for deletes and facts, and its last record for facts alone.
 *
 * Correct: there is no state in which all wait (end); and something gets done
 * again and again if every process runs that can (np). DELETES: deletes do,
 * however many puts there are; NO_CLOCK: the bound is never too low. Locks and
 * gates are in the order of arrival. That puts get done beside deletes without
 * end, or deletes beside facts, is not wanted: the later go first.
 *
 * Rules that can be taken out:
 *   ROOM_LOCKED   a put waits for room under the shard's lock, not in the gate
 *   CLOCK_LOCKED  it waits for the clock's bound under the shard's lock
 *   ASK_FIRST     the log asks for the next segment before it publishes
 *   CHECK_GATE    the checkpointer passes the gate, for a record of its own
 *   CHECK_LOCKED  it waits for its segment to be published under the shard's lock
 *   NO_KEPT       no segment is kept for deletes and facts
 *   NO_LAST       deletes may take the record that is for facts alone
 *   LOOSE         the gate looks for room and reserves none: harmless alone, but
 *                 then the queue may hold more than the log has room for, and
 *                 only so does ASK_FIRST stop all
 */
#ifndef SEGS
#define SEGS 3
#endif
#ifndef SEG
#define SEG 2
#endif
#define ALL (SEGS*SEG)
#ifndef DELETERS
#define DELETERS 1              /* the expirer, and others that delete */
#endif
#define CLIENTS 2
#define FACT 5                  /* who: clients from 0, those that delete from 2, or a fact */
#define WRITER 6
#define CHECK 7

chan queue = [4] of { byte };   /* ordered, in this order */
chan group = [4] of { byte };   /* written, not published */
chan shard = [6] of { byte };   /* the shard's lock: who waits for it; the first has it */
chan gate[2] = [4] of { byte }; /* who waits in the gate, to put or to delete */
bit  raising, low;              /* low: the clock's bound must be raised */
byte waiting;                   /* how many wait for that */
bit  done[6];
byte used;                      /* records reserved, or in segments that are not free */
byte records;                   /* in segments that are not free */
byte left, free = SEGS;         /* room in the segment that is written; free segments */

#ifdef NO_KEPT
#define KEPT 0
#else
#define KEPT SEG
#endif
#ifdef NO_LAST
#define LAST 0
#else
#define LAST (KEPT!=0)
#endif
#define LIMIT(who) (who==FACT -> ALL : (who<CLIENTS -> ALL-KEPT : ALL-LAST))
#ifdef LOOSE
#define ROOM(who) (records+len(queue)<LIMIT(who))
#define reserve() skip
#define release() skip
#else
#define ROOM(who) (used<LIMIT(who))
#define reserve() used++
#define release() used=used-SEG
#endif

inline lock(me) { shard!me; shard?[eval(me)] }
inline unlock() { shard?_ }
inline pass(me) {
  gate[me>=CLIENTS]!me;
  atomic { gate[me>=CLIENTS]?[eval(me)] && ROOM(me) -> gate[me>=CLIENTS]?_; reserve() }
}

/* Raises the bound, or waits until somebody has. A bound lasts for seconds: it
 * is not too low again before all who waited for it are ordered (asked). */
inline needClock() {
  waiting++;
  do
  :: atomic { low && !raising -> raising=1 };
     atomic { ROOM(FACT) -> reserve() };
     queue!FACT;
     atomic { done[FACT] -> done[FACT]=0; low=0; raising=0 }
  :: atomic { !low -> waiting--; break }
  od
}

/* A write passes the gate, is ordered, and waits until it is published. */
inline write(me) {
#ifndef ROOM_LOCKED
  pass(me);
#endif
  lock(me);
#ifdef ROOM_LOCKED
  pass(me);
#endif
  do
  :: low && !asked -> asked=1;
#ifdef CLOCK_LOCKED
     needClock()
#else
     unlock(); needClock(); lock(me)
#endif
  :: atomic { (!low || asked) -> asked=0; queue!me; 
#ifndef NO_CLOCK
       if :: waiting==0 -> low=1 :: skip fi; /* time goes on */
#endif
       unlock() }; break
  od;
  atomic { done[me] -> done[me]=0 }
}

active [CLIENTS] proctype client() {
  bit asked;
  do
  :: write(_pid);
#ifndef DELETES
progress: skip
#endif
  od
}

active [DELETERS] proctype expirer() {
  bit asked;
  do
  :: write(_pid);
progress: skip
  od
}

/* The log's goroutine: writes, takes segments, publishes. */
active proctype writer() {
  byte id;
  do
  :: atomic { nempty(queue) && left>0 -> queue?id; group!id; left--; records++; id=0 }
  :: atomic { nempty(queue) && left==0 && free>0 -> free--; left=SEG }
  :: nempty(group) &&
#ifdef ASK_FIRST
     (len(queue)==0 || left>0) &&
#endif
     true -> lock(WRITER);
     atomic { group?id; done[id]=1; id=0; unlock() }
  od
}

active proctype checkpointer() {
  do
#ifdef CHECK_LOCKED
  :: records>=SEG -> lock(CHECK); records-len(group)>=SEG; unlock();
#else
  :: records-len(group)>=SEG;
#endif
#ifdef CHECK_GATE
     atomic { ROOM(0) -> reserve() };
#endif
     skip;                      /* the ingest */
     lock(CHECK);               /* the clean mark rises */
     atomic { unlock(); records=records-SEG; free++; release()
#ifdef CHECK_GATE
       ; used--
#endif
     }
  od
}

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
 * Correct: there is no state in which all wait (end), and puts, deletes and facts
 * each get done again and again if every process runs that can (np; WATCH says
 * whose progress counts: PUTS, DELETES, or all).
 *
 * Rules that can be taken out:
 *   ROOM_LOCKED   a put waits for room under the shard's lock, not in the gate
 *   CLOCK_LOCKED  it waits for the clock's bound under the shard's lock
 *   ASK_FIRST     the log asks for the next segment before it publishes
 *   CHECK_GATE    the checkpointer passes the gate, for a record of its own
 *   CHECK_LOCKED  it waits for its segment to be published under the shard's lock
 *   NO_KEPT       no segment is kept for deletes and facts
 *   NO_LAST       deletes may take the record that is for facts alone
 * LOOSE: the gate looks for room and reserves none. It holds alone; only without
 * it is there room for all that was ordered, and then ASK_FIRST does no harm.
 */
#ifndef SEGS
#define SEGS 3
#endif
#ifndef SEG
#define SEG 2
#endif
#define ALL (SEGS*SEG)
#define EXPIRER 2               /* clients are 0 and 1 */
#define FACT 3

chan queue = [4] of { byte };   /* ordered, in this order */
chan group = [4] of { byte };   /* written, not published */
bit  lock, raising, low;        /* low: the clock's bound must be raised */
bit  done[4];
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
#define LIMIT(who) (who==FACT -> ALL : (who==EXPIRER -> ALL-LAST : ALL-KEPT))
#ifdef LOOSE
#define ROOM(who) (records+len(queue)<LIMIT(who))
#define reserve() skip
#define release() skip
#else
#define ROOM(who) (used<LIMIT(who))
#define reserve() used++
#define release() used=used-SEG
#endif

/* Raises the bound, or waits until somebody has. */
inline needClock() {
  do
  :: atomic { low && !raising -> raising=1 };
     atomic { ROOM(FACT) -> reserve() };
     queue!FACT;
     atomic { done[FACT] -> done[FACT]=0; low=0; raising=0 }
  :: !low -> break
  od
}

/* A write passes the gate, is ordered, and waits until it is published. */
inline write(me) {
#ifdef ROOM_LOCKED
  atomic { !lock -> lock=1 };
  atomic { ROOM(me) -> reserve() };
#else
  atomic { ROOM(me) -> reserve() };
#endif
  do
  :: true ->
#ifndef ROOM_LOCKED
     atomic { !lock -> lock=1 };
#endif
     if
     :: !low -> break
     :: low ->
#ifdef CLOCK_LOCKED
        needClock()
#else
        lock=0; needClock();
#ifdef ROOM_LOCKED
        atomic { !lock -> lock=1 }
#endif
#endif
     fi;
#if defined(CLOCK_LOCKED) && !defined(ROOM_LOCKED)
     lock=0
#endif
  od;
  atomic { queue!me; lock=0; if :: low=1 :: skip fi }; /* time goes on */
  atomic { done[me] -> done[me]=0 }
}

active [2] proctype client() {
  do
  :: write(_pid);
#ifndef DELETES
progress:
#endif
     skip
  od
}

active proctype expirer() {
  do
  :: write(EXPIRER);
#ifndef PUTS
progress:
#endif
     skip
  od
}

/* The log's goroutine: writes, takes segments, publishes. */
active proctype writer() {
  byte id;
  do
  :: atomic { nempty(queue) && left>0 -> queue?id; group!id; left--; records++; id=0 }
  :: atomic { nempty(queue) && left==0 && free>0 -> free--; left=SEG }
  :: atomic { nempty(group) && !lock
#ifdef ASK_FIRST
       && !(nempty(queue) && left==0)
#endif
       -> lock=1 };
     atomic { group?id; done[id]=1; id=0; lock=0 }
  od
}

active proctype checkpointer() {
  do
#ifdef CHECK_LOCKED
  :: atomic { records>=SEG && !lock -> lock=1 };
     atomic { records-len(group)>=SEG -> lock=0 };
#else
  :: records-len(group)>=SEG;
#endif
#ifdef CHECK_GATE
     atomic { ROOM(0) -> reserve() };
#endif
     skip;                      /* the ingest */
     atomic { !lock -> lock=1 }; /* the clean mark rises */
     atomic { lock=0; records=records-SEG; free++; release()
#ifdef CHECK_GATE
       ; used--
#endif
     }
  od
}

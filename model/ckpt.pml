/* ckpt.pml - the log, the base that checkpoints make of it, what is dirty, and
 * crashes.
 *
 * Two keys. Record i of the log is 1 put of key 0, 2 put of key 1, 3 delete of
 * key 0 or 4 a batch of both; the value that it writes is i. With PIECES it is
 * 1, 2, 5 a piece of a value, or 6 a put of key 0 whose value stands in the piece
 * directly before it; a crash may leave a piece whose put never comes. A record
 * is written, made durable and published, in this order; a write is in flight
 * from its place in the log on until it is published. SEG records fill a segment.
 *
 *   a checkpoint:  the base (Pebble) takes a range of published records, in one
 *                  step; the keys leave, each under a hold of its shard's lock;
 *                  the place from which the log is needed is raised; the log is
 *                  told. Segments before that are free if nobody holds them.
 *
 * A key is dirty if its newest published record is above its clean mark. Then
 * it has an entry, which says where in the log it stands, whether it has an item
 * or not. So any item may be evicted. The two keys stand for two shards, or for
 * two holds of the lock of one.
 *
 * A crash of the machine keeps a prefix of the log that has all that is
 * durable; a crash of the process keeps all that is written. ALWAYS: a record
 * is published after it is durable (sync always; without it: sync off).
 *
 * Correct: after each crash the base and what the log has behind the base's
 * position are the state after some prefix of the records, with batches whole,
 * which under ALWAYS has all that was told.
 * EXACT: the base is also after every step the state at its position, so that a
 * snapshot or backup of it needs no log.
 *
 * Who reads is chosen by macros; they change nothing but items:
 *   GET    of key 0 without an item: the entry, then the base. It shows nothing
 *          older than what was published when it began.
 *   FILL   what the log and then the base had is linked a while later. When it is
 *          over, memory knows whether there is key 0.
 *   PROBE  a promotion, a repair or a condition: the read is told of each write
 *          that is ordered, and of nothing that becomes clean. What it goes by
 *          at its end is the newest, and nothing is in flight.
 *   SCAN   a page of both keys is the state after some record, no older than
 *          what was published when it began.
 * Each of them finds in the log what its entry names (freed segments assert).
 *
 * Rules that can be taken out. Of the base:
 *   FROM_MEMORY   a checkpoint takes a key's newest value, of whatever position
 *   SKIP_LATER    a key that was published again behind the range is left out
 *   TWO_STEPS     the base takes key after key
 *   FREE_EARLY    the segment is free before the base is durable
 *   POSITION_FIRST the base's position is durable before its data
 *   CUT           a range ends between a piece and its record. CUT_KEPT: and the
 *                 checkpointer keeps the piece for the next range
 * Of the entries:
 *   NO_TOMBSTONE  a delete leaves no entry
 *   NO_SLOTLESS   nor does a put for which there was no memory
 *   NO_RESIDENT   nor does a put that has an item, which may be evicted later
 *   BASE_FIRST    a get asks the base, then looks whether the key is dirty
 *   CLEAN_FIRST   keys become clean before the base shows them
 * Of the log:
 *   NO_HOLD       who reads an entry's record does not hold the log
 *   HOLD_LATE     a get holds it behind the hold of the lock in which it looked
 *   PLACE_APART   a get looks at the place, then holds the log there: two steps
 *   PLACE_FIRST   the place is raised before the keys have left
 *   RELEASE_FIRST the log is told before the last key has left
 * Of the fill:
 *   NO_VOID       its chunk stays good when a key leaves
 *   VOID_LATE     the chunk becomes void in a hold of the lock behind that
 *   READ_FIRST    it has read the base before its chunk begins
 *   NO_SET        it does not ask the entries when it links
 *   LEFT_TOO      it links what it read in the log and has left meanwhile
 *   FILL_BASE_FIRST it goes through the base before it looks at the entries
 * Of probes:
 *   NOT_TOLD      they are not told of writes
 *   PROBE_FLYING  one begins while a write of its key is in flight
 *   PROBE_LATE    one begins behind the look at the entries
 * Of scans:
 *   NO_LEAVING    keys leave between the snapshot of the base and the views
 *   NO_PUBLISHING records are published between the views
 *   BASE_WINS     of a key that both have, the base's value counts
 *   SNAPSHOT_LATE the views are taken before the snapshot (with VIEWS_FIRST), and
 *                 records are published between them and it
 * Choices, which hold, too:
 *   SYNC_NOT      a checkpoint does not wait until what it looked at is
 *                 durable. It tells FROM_MEMORY and SKIP_LATER apart.
 *   VIEWS_FIRST   the views are taken before the snapshot, under both locks
 *   SNAPSHOT_FREE records are published between the snapshot and the views
 */
#ifndef MAXW
#define MAXW 4                  /* records */
#endif
#ifndef SEG
#define SEG 2                   /* records of a segment */
#endif
#ifndef RANGE
#define RANGE SEG               /* records that a checkpoint takes at most */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define NONE 255

byte kind[MAXW+1];              /* the log: record i, counted from 1 */
byte written, durable, published;
bit  half;                      /* the last record is a piece whose put comes next */
byte base[2], position;         /* base[k]: record that the base's state of k comes from */
byte clean[2];                  /* key k: what is up to here is asked of the base */
byte place, released, freed;    /* records up to here: all keys have left; the log was told; gone */
byte newest[2];                 /* published record that k's state comes from */
bit  item, entry = 1;           /* key 0 has an item; has its entry, if it is dirty */
byte life;

/* The steps of those who end with a crash; each begins with 0. */
byte check, to, seen, take[2];  /* the checkpointer */
byte getting, g, lo, gheld = NONE;
bit  glock;                     /* a get has the lock of key 0's shard */
byte filling, f, fheld = NONE;
bit  stale, fromlog;            /* its chunk is void; is one of the log */
bit  known = 1;                 /* key 0 is absent, or memory knows that it is there */
byte probing, p, pheld = NONE;
bit  told;
byte scanning, s[2], e[2], since, sheld = NONE;
bit  nopublish, noleave;        /* the two locks of scans */

#define HAS(i, k) (kind[i]==4 || (k==0 && (kind[i]==1 || kind[i]==3 || kind[i]==6)) || (k==1 && kind[i]==2))
#define DELETES(i) (kind[i]==3)
#define DIRTY0 (newest[0]>clean[0] && entry)
#define DIRTY1 (newest[1]>clean[1])
/* Record i and its piece are in the log. */
#define STANDS(i) (freed<i-(kind[i]==6))
#ifdef ALWAYS
#define READY durable
#else
#define READY written
#endif

/* out: the record that k's state comes from after record n; j is used. */
inline at(n, k, out) {
  out=0; j=1;
  do :: j<=n -> if :: HAS(j, k) -> out=j :: else fi; j++ :: else -> break od;
  j=0
}
/* n0, n1: the newest record of each key up to n, from position on. */
inline range(n, n0, n1) {
  n0=base[0]; n1=base[1]; j=position+1;
  do
  :: j<=n ->
#ifndef CUT_KEPT
     assert(kind[j]!=6 || j-1>position); /* its piece is behind the position */
#endif
     if :: HAS(j, 0) -> n0=j :: else fi; if :: HAS(j, 1) -> n1=j :: else fi; j++
  :: else -> break
  od;
  j=0
}
/* Whole segments go before what was released and what is held. */
inline free() {
  j=released;
  if :: gheld<j -> j=gheld :: else fi; if :: fheld<j -> j=fheld :: else fi;
  if :: pheld<j -> j=pheld :: else fi; if :: sheld<j -> j=sheld :: else fi;
  if :: (j/SEG)*SEG>freed -> freed=(j/SEG)*SEG :: else fi;
  j=0
}
/* The log holds everything behind the place, as one step with the look at it. */
inline hold(held) {
#ifndef NO_HOLD
  assert(freed<=place); held=place /* the log does not refuse it */
#else
  skip
#endif
}
inline unhold(held) { held=NONE; free() }
inline exact() {
#ifdef EXACT
  at(position, 0, x); assert(base[0]==x); at(position, 1, x); assert(base[1]==x); x=0
#else
  skip
#endif
}

active proctype server() {
end: do
  :: atomic { written<MAXW -> written++;
       if
#ifdef PIECES
       :: half -> kind[written]=6; half=0
       :: !half -> kind[written]=5; half=1
       :: !half -> kind[written]=1
       :: !half -> kind[written]=2
#else
       :: kind[written]=1 :: kind[written]=2 :: kind[written]=3 :: kind[written]=4
#endif
       fi;
#if defined(PROBE) && !defined(NOT_TOLD)
       if :: probing!=0 && HAS(written, 0) -> told=1 :: else fi
#endif
     }
  :: atomic { durable<written -> durable=written }
  :: atomic { published<READY && !nopublish && !glock -> published++;
       if :: HAS(published, 1) -> newest[1]=published :: else fi;
       if
       :: HAS(published, 0) -> newest[0]=published; entry=1; known=1;
          if
          :: DELETES(published) -> item=0;
#ifdef NO_TOMBSTONE
             entry=0
#endif
          :: else -> if
             :: item=1;
#ifdef NO_RESIDENT
                entry=0
#endif
             :: item=0;           /* there is no memory for an item */
#ifdef NO_SLOTLESS
                entry=0
#endif
             fi
          fi
       :: else
       fi }
  :: atomic { item -> item=0 }    /* eviction */
  od
}

#ifdef SYNC_NOT
#define SYNCED true
#else
#define SYNCED (durable>=seen)
#endif
#if defined(CLEAN_FIRST) || defined(POSITION_FIRST) || defined(TWO_STEPS)
#define INGEST 2
#else
#define INGEST 1
#endif
active proctype checkpointer() {
  byte j, x;
end: do
  :: atomic { check==0 && position<published -> to=position+1;
       do :: to<published && to<position+RANGE -> to++ :: break od;
       if
#ifdef PIECES
#if !defined(CUT) && !defined(CUT_KEPT)
       /* its record has not passed; or it never comes, and what passed shows that */
       :: kind[to]==5 && (to==published || kind[to+1]==6) -> to=0
#endif
#endif
       :: else -> range(to, take[0], take[1]);
#ifdef FROM_MEMORY
          if :: take[0]!=base[0] -> take[0]=newest[0] :: else fi;
          if :: take[1]!=base[1] -> take[1]=newest[1] :: else fi;
#endif
#ifdef SKIP_LATER
          if :: newest[0]>to -> take[0]=base[0] :: else fi;
          if :: newest[1]>to -> take[1]=base[1] :: else fi;
#endif
#ifdef FREE_EARLY
          freed=(to/SEG)*SEG;
#endif
          seen=published; check=1
       fi }
#if defined(CLEAN_FIRST)
  :: atomic { check==1 && SYNCED -> clean[0]=to; clean[1]=to; check=2 }
#elif defined(POSITION_FIRST)
  :: atomic { check==1 && SYNCED -> position=to; exact(); check=2 }
#elif defined(TWO_STEPS)
  :: atomic { check==1 && SYNCED -> base[0]=take[0]; exact(); check=2 }
#endif
     /* the tables are synced, the ingest returns */
  :: atomic { check==INGEST && SYNCED -> seen=0; base[0]=take[0]; base[1]=take[1]; position=to; exact();
       take[0]=0; take[1]=0;
#ifdef PLACE_FIRST
       place=to;
#endif
       check=3 }
     /* each of these under a hold of the shard's lock */
  :: atomic { check==3 && !noleave -> clean[1]=to;
#ifdef RELEASE_FIRST
       place=to; released=to; free();
#endif
       check=4 }
  :: atomic { check==4 && !noleave && !glock -> clean[0]=to;
#if !defined(NO_VOID) && !defined(VOID_LATE)
       if :: filling!=0 -> stale=1 :: else fi;
#endif
#ifdef VOID_LATE
       check=5 }
  :: atomic { check==5 -> stale=1;
#endif
       check=6 }
  :: atomic { check==6 -> place=to; check=7 }
  :: atomic { check==7 -> released=to; free(); to=0; check=0 }
  od
}

active proctype crash() {
  byte n, j, x;
  do
  :: life<CRASHES -> atomic { life++;
       n=durable; do :: n<written -> n++ :: break od;
       assert(freed<=position); /* the log reaches back to the base */
       if :: n<position -> n=position :: else fi;
       range(n, newest[0], newest[1]);
       at(n, 0, x); assert(newest[0]==x); at(n, 1, x); assert(newest[1]==x); x=0;
#ifdef ALWAYS
       assert(published<=n);
#endif
       do :: written>n -> kind[written]=0; written-- :: else -> break od;
       durable=n; published=n; n=0; half=0;
       clean[0]=position; clean[1]=position; item=0; entry=1;
       check=0; to=0; seen=0; take[0]=0; take[1]=0;
       getting=0; g=0; lo=0; gheld=NONE; glock=0;
       filling=0; f=0; fheld=NONE; stale=0; fromlog=0; known=0;
       probing=0; p=0; pheld=NONE; told=0;
       scanning=0; s[0]=0; s[1]=0; e[0]=0; e[1]=0; since=0; sheld=NONE;
       nopublish=0; noleave=0;
       place=position; released=position; free() }
  :: break
  od
}

#ifdef GET
active proctype get() {
  byte j;
end: do
#ifdef BASE_FIRST
  :: atomic { getting==0 && !item -> g=base[0]; lo=newest[0]; getting=3 }
  :: atomic { getting==3 -> if :: DIRTY0 -> g=newest[0] :: else fi;
       assert(g>=lo); g=0; lo=0; getting=0 }
#else
  :: atomic { getting==0 && !item -> if
       :: DIRTY0 -> g=newest[0];
#ifdef HOLD_LATE
          getting=4
#elif defined(PLACE_APART)
          lo=place; glock=1; getting=4
#else
          hold(gheld); getting=1
#endif
       :: else -> g=newest[0]; getting=2
       fi }
  :: atomic { getting==1 -> assert(STANDS(g)); unhold(gheld); g=0; getting=0 }
  :: atomic { getting==2 -> assert(base[0]>=g); g=0; getting=0 }
#ifdef HOLD_LATE
  :: atomic { getting==4 -> gheld=place; getting=1 }
#endif
#ifdef PLACE_APART
  :: atomic { getting==4 -> assert(freed<=lo); gheld=lo; lo=0; glock=0; getting=1 }
#endif
#endif
  od
}
#endif

#ifdef FILL
/* What the log was read for is linked if it is the entry's still. What the base
 * was read for is linked if there is no entry, and the chunk is not void. */
#ifdef NO_SET
#define GOOD(i) (!stale)
#elif defined(LEFT_TOO)
#define GOOD(i) ((DIRTY0 && newest[0]==i) || (!DIRTY0 && (!stale || fromlog)))
#else
#define GOOD(i) ((DIRTY0 && newest[0]==i) || (!DIRTY0 && !stale && !fromlog))
#endif
#ifdef FILL_BASE_FIRST
#define BEGIN 3
#define BEHIND_LOG 5
#define BEHIND_BASE 1
#else
#define BEGIN 1
#define BEHIND_LOG 3
#define BEHIND_BASE 5
#endif
active proctype fill() {
  byte j;
end: do
  :: atomic { filling==0 -> filling=BEGIN }
     /* the log */
  :: atomic { filling==1 -> stale=0; if
       :: DIRTY0 && !DELETES(newest[0]) -> f=newest[0]; fromlog=1; hold(fheld); filling=2
       :: else -> filling=BEHIND_LOG
       fi }
  :: atomic { filling==2 -> assert(STANDS(f)); unhold(fheld); filling=4 }
     /* the base */
#ifdef READ_FIRST
  :: atomic { filling==3 -> f=base[0]; filling=6 }
  :: atomic { filling==6 -> stale=0; filling=4 }
#else
  :: atomic { filling==3 -> stale=0; f=base[0]; filling=4 }
#endif
  :: atomic { filling==4 -> if
       :: f==0 || DELETES(f) || item -> filling=BEHIND_BASE
       :: else -> if
          :: GOOD(f) -> assert(f==newest[0]); item=1; known=1; filling=BEHIND_BASE
          :: !GOOD(f) && stale && !fromlog && !DIRTY0 -> filling=3 /* again */
          :: else -> filling=BEHIND_BASE
          fi
       fi;
       if :: fromlog -> filling=BEHIND_LOG :: else fi; f=0; stale=0; fromlog=0 }
  :: atomic { filling==5 -> assert(known || newest[0]==0 || DELETES(newest[0])); filling=0 }
  od
}
#endif

#ifdef PROBE
/* It looks behind the hold of the lock in which it began, or within it. */
active proctype probe() {
  byte j;
end: do
#ifdef PROBE_LATE
  :: atomic { probing==0 -> if :: DIRTY0 -> p=newest[0]; hold(pheld) :: else fi; probing=4 }
  :: atomic { probing==4 -> j=published+1;
       do :: j<=written && !HAS(j, 0) -> j++ :: else -> break od;
       if
       :: j<=written -> pheld=NONE; p=0; probing=0
       :: else -> told=0; if :: p!=0 -> probing=3 :: else -> probing=2 fi
       fi; j=0; free() }
#else
  :: atomic { probing==0 -> j=published+1;
#ifndef PROBE_FLYING
       do :: j<=written && !HAS(j, 0) -> j++ :: else -> break od;
       if :: j<=written :: else -> probing=1 fi;
#else
       probing=1;
#endif
       j=0; told=0 }
#endif
  :: atomic { probing==1 -> if
       :: DIRTY0 -> p=newest[0]; hold(pheld); probing=3
       :: else -> probing=2
       fi }
  :: atomic { probing==2 -> p=base[0]; probing=5 }
  :: atomic { probing==3 -> assert(STANDS(p)); unhold(pheld); probing=5 }
  :: atomic { probing==5 -> if
       :: !told -> assert(p==newest[0]); j=published+1;
          do :: j<=written -> assert(!HAS(j, 0)); j++ :: else -> break od; j=0;
          if :: !item && p>0 && !DELETES(p) -> item=1; known=1 :: else fi
       :: else
       fi; p=0; told=0; probing=0 }
  od
}
#endif

#ifdef SCAN
inline view(k, dirty) { if :: dirty -> e[k]=newest[k] :: else fi }
inline merge(k) {
  if
#ifdef BASE_WINS
  :: s[k]==0 -> s[k]=e[k]
#else
  :: e[k]!=0 -> s[k]=e[k]
#endif
  :: else
  fi
}
/* The base's snapshot, the views of both sets, then the merge. */
active proctype scan() {
  byte j, n, x;
end: do
  :: atomic { scanning==0 -> since=published;
#if !defined(SNAPSHOT_FREE) && !defined(NO_PUBLISHING)
       nopublish=1;
#endif
#ifdef NO_LEAVING
       hold(sheld);
#else
       noleave=1;
#endif
#ifdef VIEWS_FIRST
       scanning=2
#else
       scanning=1
#endif
     }
#ifdef VIEWS_FIRST
  :: atomic { scanning==2 -> view(1, DIRTY1); scanning=3 }
  :: atomic { scanning==3 -> view(0, DIRTY0); hold(sheld);
#ifdef SNAPSHOT_LATE
       nopublish=0;
#endif
       scanning=1 }
  :: atomic { scanning==1 -> s[0]=base[0]; s[1]=base[1]; nopublish=0; noleave=0; scanning=4 }
#else
  :: atomic { scanning==1 -> s[0]=base[0]; s[1]=base[1]; scanning=2 }
  :: atomic { scanning==2 ->
#ifndef NO_PUBLISHING
       nopublish=1;
#endif
       view(1, DIRTY1); scanning=3 }
  :: atomic { scanning==3 -> view(0, DIRTY0);
#ifndef NO_LEAVING
       hold(sheld);
#endif
       nopublish=0; noleave=0; scanning=4 }
#endif
  :: atomic { scanning==4 ->
       assert(e[0]==0 || STANDS(e[0])); assert(e[1]==0 || STANDS(e[1]));
       merge(0); merge(1); n=since;
       do                       /* the first moment at which it was the state */
       :: n<=published -> at(n, 0, x); if :: x!=s[0] -> n++; goto next :: else fi;
          at(n, 1, x); if :: x==s[1] -> break :: else -> n++ fi;
next:     skip
       :: else -> assert(false)
       od;
       n=0; x=0; s[0]=0; s[1]=0; e[0]=0; e[1]=0; since=0; unhold(sheld); scanning=0 }
  od
}
#endif

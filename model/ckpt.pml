/* ckpt.pml - the log, the base that checkpoints make of it, what is dirty, and
 * crashes.
 *
 * Two keys. Record i of the log is 1 put of key 0, 2 put of key 1, 3 delete of
 * key 0 or 4 a batch of both; the value that it writes is i. A record is
 * written, made durable and published, in this order. SEG records fill a
 * segment. A checkpoint takes a range of published records into the base
 * (Pebble), in one step; it may end within a segment, and the segments before
 * its end are free afterwards. The keys whose newest published record is above
 * the clean mark are dirty. Each of them has an entry, which says where in the
 * log it stands, whether it has an item or not. So any item may be evicted.
 *
 * A crash of the machine keeps a prefix of the log that has all that is
 * durable; a crash of the process keeps all that is written. ALWAYS: a record
 * is published after it is durable (sync always; without it: sync off).
 *
 * Correct: after each crash the base and what the log has behind the base's
 * position are the state after some prefix of the records, with batches whole,
 * which under ALWAYS has all that was told. A get of a key without item, and
 * the fill, which reads the base and the log, never show less than what was
 * published when they began.
 * EXACT: the base is also at every moment the state at its position, so that a
 * snapshot or backup of it needs no log.
 *
 * Rules that can be taken out:
 *   FROM_MEMORY   a checkpoint takes a key's newest value, of whatever position
 *   SKIP_LATER    a key that was published again behind the range is left out
 *   TWO_STEPS     the base takes key after key
 *   FREE_EARLY    the segment is free before the base is durable
 *   POSITION_FIRST the base's position is durable before its data
 *   NO_TOMBSTONE  a delete leaves no entry
 *   NO_SLOTLESS   nor does a put for which there was no memory
 *   NO_RESIDENT   nor does a put that has an item, which may be evicted later
 *   BASE_FIRST    a get asks the base, then looks whether the key is dirty
 *   NO_TOUCH      the fill does not hear of the keys that become clean
 *   TOUCH_LATE    it hears of them after they have become clean
 *   CLEAN_FIRST   keys become clean before the base shows them
 * SYNC_NOT is no rule but a choice: a checkpoint does not wait until what it
 * looked at is durable. It holds alone, and tells the first two apart.
 */
#ifndef MAXW
#define MAXW 4                  /* records */
#endif
#ifndef SEG
#define SEG 2                   /* records of a segment */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

byte kind[MAXW+1];              /* the log: record i, counted from 1 */
byte written, durable, published;
byte told;                      /* newest record that anybody was told of */
byte base[2], position;         /* base[k]: record that the base's state of k comes from */
byte freed;                     /* segments up to here are free */
byte clean;                     /* the clean mark: what is up to here is asked of the base */
byte newest[2];                 /* published record that k's state comes from */
bit  item[2], entry[2];         /* k has an item; an entry */
bit  touched[2];                /* the fill was told that its read of k is out of date */
byte life;

#define HAS(i, k) (kind[i]==4 || (k==0 && (kind[i]==1 || kind[i]==3)) || (k==1 && kind[i]==2))
#define DELETES(i) (kind[i]==3)
#define DIRTY(k) (newest[k]>clean && entry[k])
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
  :: j<=n -> if :: HAS(j, 0) -> n0=j :: else fi; if :: HAS(j, 1) -> n1=j :: else fi; j++
  :: else -> break
  od;
  j=0
}
inline touch() { touched[0]=1; touched[1]=1 }

active proctype server() {
  byte k;
end: do
  :: atomic { written<MAXW -> written++;
       if :: kind[written]=1 :: kind[written]=2 :: kind[written]=3 :: kind[written]=4 fi }
  :: atomic { durable<written -> durable=written }
  :: atomic { published<READY -> published++; told=published; k=0;
       do
       :: k<2 -> if
          :: HAS(published, k) -> newest[k]=published; touched[k]=1;
             if
             :: DELETES(published) -> item[k]=0; entry[k]=1;
#ifdef NO_TOMBSTONE
                entry[k]=0
#endif
             :: else -> if
                :: item[k]=1; entry[k]=1;
#ifdef NO_RESIDENT
                   entry[k]=0
#endif
                :: item[k]=0; entry[k]=1; /* there is no memory for an item */
#ifdef NO_SLOTLESS
                   entry[k]=0
#endif
                fi
             fi
          :: else fi; k++
       :: else -> break
       od; k=0 }
  :: atomic { item[0] -> item[0]=0; touched[0]=1 } /* eviction */
  od
}

/* What the checkpointer does after a crash of its process has no effect. */
active proctype checkpointer() {
  byte to, j, me, seen, n0, n1;
end: do
  :: atomic { position<published -> me=life; to=position+1;
       do :: to<published && to<position+SEG -> to++ :: break od;
       range(to, n0, n1);
#ifdef FROM_MEMORY
       if :: n0!=base[0] -> n0=newest[0] :: else fi; if :: n1!=base[1] -> n1=newest[1] :: else fi;
#endif
#ifdef SKIP_LATER
       if :: newest[0]>to -> n0=base[0] :: else fi; if :: newest[1]>to -> n1=base[1] :: else fi;
#endif
#ifdef FREE_EARLY
       freed=(to/SEG)*SEG;
#endif
       seen=published };
#ifndef SYNC_NOT
     atomic { durable>=seen || me!=life };
#endif
#ifdef CLEAN_FIRST
     atomic { if :: me==life -> clean=to; touch() :: else fi };
#endif
#ifdef POSITION_FIRST
     atomic { if :: me==life -> position=to :: else fi };
#endif
#ifdef TWO_STEPS
     atomic { if :: me==life -> base[0]=n0 :: else fi };
     atomic { if :: me==life -> base[1]=n1; position=to :: else fi };
#else
     /* the tables are synced, the ingest returns */
     atomic { if :: me==life -> base[0]=n0; base[1]=n1; position=to :: else fi };
#endif
     /* under one hold of the shard's lock */
     atomic { if
       :: me==life -> freed=(to/SEG)*SEG; clean=to;
#if !defined(NO_TOUCH) && !defined(TOUCH_LATE)
          touch();
#endif
          if :: newest[0]<=clean -> entry[0]=0 :: else fi;
          if :: newest[1]<=clean -> entry[1]=0 :: else fi
       :: else fi };
#ifdef TOUCH_LATE
     atomic { if :: me==life -> touch() :: else fi };
#endif
     atomic { to=0; me=0; seen=0; n0=0; n1=0 }
  od
}

active proctype crash() {
  byte p, j, x;
  do
  :: life<CRASHES -> atomic { life++;
       p=durable; do :: p<written -> p++ :: break od;
       if :: p=written :: skip fi;
       assert(freed<=position); /* the log reaches back to the base */
       if :: p<position -> p=position :: else fi;
       range(p, newest[0], newest[1]);
       at(p, 0, x); assert(newest[0]==x); at(p, 1, x); assert(newest[1]==x); x=0;
#ifdef ALWAYS
       assert(told<=p);
#endif
       do :: written>p -> kind[written]=0; written-- :: else -> break od;
       durable=p; published=p; told=p; clean=position;
       item[0]=0; item[1]=0; touch();
       entry[0]=(newest[0]>position); entry[1]=(newest[1]>position); p=0 }
  :: break
  od
}

/* A get of key 0 when it has no item: entries, then the base. */
active proctype reader() {
  byte lo, v, me;
  do
  :: atomic { !item[0] -> me=life; lo=newest[0];
#ifdef BASE_FIRST
       v=base[0] };
     atomic { if
       :: me==life -> if :: DIRTY(0) -> v=newest[0] :: else fi; assert(v>=lo)
       :: else fi };
#else
       if :: DIRTY(0) -> assert(newest[0]>=lo); goto done :: else fi };
     atomic { if :: me==life -> v=base[0]; assert(v>=lo) :: else fi };
#endif
done: atomic { lo=0; v=0; me=0 }
  od
}

/* The fill, a promotion, a repair: links what it read earlier, in the base or,
 * by the entry, in the log. The base is read for many keys at once, so whether a
 * key is dirty is looked at when it is linked. */
active proctype fill() {
  byte v, me;
  bit log;
  do
  :: atomic { me=life; touched[0]=0;
       if
       :: v=base[0]
       :: DIRTY(0) -> v=newest[0]; log=1
       fi };
     atomic { if
       :: me==life && !item[0] && (log || !DIRTY(0)) && !touched[0] && v>0 && !DELETES(v) ->
          assert(v==newest[0]); item[0]=1
       :: else fi; v=0; me=0; log=0 }
  od
}

#ifdef EXACT
active proctype snapshot() {
  byte j, x;
  atomic { at(position, 0, x); assert(base[0]==x); at(position, 1, x); assert(base[1]==x) }
}
#endif

/* batch.pml - a batch of two keys, and readers of both, one after the other.
 *
 * Two keys live in cells that they share. A write has a number; a batch writes
 * both keys under one. One transition is one store of the server, or one READ
 * of a reader; here an item is READ whole (how it can tear is in cells.pml).
 * A reader comes to an item through the key's slot or through a remembered
 * place, which may be any cell.
 *
 * Correct: the two keys together are one register of pairs. Write n takes
 * effect at one instant, so a value of write v, read by a get that began after
 * write lo was acknowledged or seen, says that the register stood at v or
 * later, before the key's next write. One reader that asks for either key, in
 * turn and for ever, is enough: a wrong answer is a chain of gets that do not
 * overlap, and readers never influence the server.
 *
 * Rules that can be taken out:
 *   EACH       one key after the other, each as if written alone
 *   KILL_LATE  the second key's old item dies after the first new one is live
 *   LIVE_FIRST all new items are live before the old ones are dead
 *   COMMITS    each key is committed alone: a crash may come between
 */
#ifndef MAXW
#define MAXW 3                  /* writes: single puts and batches */
#endif
#define NC 4
#define NONE 15

byte ver[NC], own[NC];          /* cell: the item's version (0: never any), key 1 or 2 */
bit  live[NC], used[NC];
byte slot[2] = NONE;            /* slot of key k: its cell */
byte wrote[8];                  /* keys that write n wrote: bit set, 1 and 2 */
byte ordered, acked, seen;      /* seen: the newest write that a get has shown */
byte durable[2];                /* Pebble: newest write of key k */
byte crashes;
bit  crash;                     /* readers of the dead server are told so */

inline take(k, c) { atomic {
  if :: !used[0] -> c=0 :: !used[1] -> c=1 :: !used[2] -> c=2 :: !used[3] -> c=3 fi;
  used[c]=1; own[c]=k+1; ver[c]=ordered; live[c]=0 } }
inline kill(k) { d_step { if :: slot[k]!=NONE -> live[slot[k]]=0 :: else fi } }
/* swing frees the former cell too: it may be used again at once, as it is dead. */
inline swing(k, c) { d_step { if :: slot[k]!=NONE -> used[slot[k]]=0 :: else fi; slot[k]=c } }

inline put(k) {
  take(k, a);
#ifdef LIVE_FIRST
  live[a]=1;
#endif
  kill(k);
  swing(k, a);
  live[a]=1;
}

proctype writer() {
  byte a, b, k;
end: do
  :: atomic { ordered<MAXW -> ordered++; if :: k=0 :: k=1 fi; wrote[ordered]=1<<k };
     durable[k]=ordered;
     put(k);
     d_step { acked=ordered; a=0; k=0 }
  :: d_step { ordered<MAXW -> ordered++; wrote[ordered]=3 };
#ifdef COMMITS
     durable[0]=ordered;
     if
     :: skip
     :: atomic { crashes==0 -> crashes=1; crash=1; goto recover }
     fi;
     durable[1]=ordered;
#else
     d_step { durable[0]=ordered; durable[1]=ordered };
#endif
#ifdef EACH
     put(0);
     put(1);
#else
     take(0, a);
     take(1, b);
#ifdef LIVE_FIRST
     live[a]=1;
     live[b]=1;
#endif
     kill(0);
#ifndef KILL_LATE
     kill(1);
#endif
     swing(0, a);
#ifdef KILL_LATE
     live[a]=1;
     kill(1);
#endif
     swing(1, b);
     live[a]=1;
     live[b]=1;
#endif
     d_step { acked=ordered; a=0; b=0 }
  :: atomic { crashes==0 && acked==ordered && ordered>0 -> crashes=1; crash=1; goto recover }
  od;
recover: /* the memory is new, what Pebble has is in it, the readers' leases are over */
  atomic {
    live[0]=0; live[1]=0; live[2]=0; live[3]=0; used[0]=0; used[1]=0; used[2]=0; used[3]=0;
    slot[0]=NONE; slot[1]=NONE; a=0; b=0; k=0;
    if :: durable[0]>0 -> used[0]=1; own[0]=1; ver[0]=durable[0]; live[0]=1; slot[0]=0 :: else fi;
    if :: durable[1]>0 -> used[1]=1; own[1]=2; ver[1]=durable[1]; live[1]=1; slot[1]=1 :: else fi;
    crash=0 };
  goto end;
}

/* The register of pairs stood, at some instant from write lo to write ordered,
 * where key k had version v (0: none). p is the first such instant. */
inline judge(k, v) {
  p=lo;
  do
  :: p<=ordered ->
     n=p; do :: n>0 && !(wrote[n]&(1<<k)) -> n-- :: else -> break od; /* the key's version at p */
     if :: n==v -> break :: else -> p++ fi
  :: else -> break
  od;
  assert(p<=ordered);           /* else no instant fits: new, then old */
  if :: p>seen -> seen=p :: else fi
}

proctype reader() {
  byte lo, c, p, n, k;
get:
  atomic { if :: k=0 :: k=1 fi; if :: acked>seen -> lo=acked :: else -> lo=seen fi };
again:
  atomic { if
  :: c=0 :: c=1 :: c=2 :: c=3   /* a remembered place */
  :: slot[k]!=NONE -> c=slot[k]
  fi };
  /* the item's READ: word by word it is in cells.pml */
  atomic { if
  :: live[c] && own[c]==k+1 && !crash -> judge(k, ver[c])
  :: else -> c=0; goto again
  fi; lo=0; c=0; p=0; n=0; k=0 };
  goto get
}

init { atomic { run writer(); run reader() } }

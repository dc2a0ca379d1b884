/* absent.pml - when a key is absent: counts of keys without slot, Pebble-only
 * slots, eviction, promotion, fill after a start, growth, and the proof that a
 * slot with the fingerprint is another key's.
 *
 * One bucket of two slots in a segment, which may be copied once; two cells of
 * one size class; key K, which readers ask for, and K2, which has the same
 * fingerprint and the same further hash bits. One transition is one store of
 * the server or one word that a reader samples; an item is READ whole (how it
 * can tear is in cells.pml) and the header, being one word, with its count.
 *
 * Correct: K is a register with one writer (see cells.pml); "absent" needs an
 * instant, since the newest write that was acknowledged or seen when the get
 * began, at which K was absent.
 *
 * -DFILL: the server has just started. Pebble has both keys, memory is empty.
 *
 * Without an operation, to search deeper in the rest: NOSLOTLESS, NODEL,
 * NODEL2 (deletes of K2), NOPROMK, NOPROM2, NODROP,
 * NOREPAIR, NOEVICT.
 *
 * Rules that can be taken out, of the server:
 *   NO_COUNT       a key without slot is not counted
 *   ACK_FIRST      it is counted after its put is acknowledged
 *   DROP_FIRST     a slot is dropped before its key is counted
 *   DROP_NOW       it is dropped at once after that, not a lease later
 *   TAKE_PEB       a put takes a Pebble-only slot that fits for its own key's
 *   KEEP_SLOT_OFF  eviction clears the slot and leaves no Pebble-only one
 *   STALE_PROMOTE  a promotion brings in what it read, whatever came since
 *   PAIR_TWICE     a promotion or repair writes a version where it has stood
 *   NO_MARK        growth does not mark the old segment
 *   STALE_FILL     a fill brings in what its snapshot says, whatever came since
 *   SHOW_NOW       counts are shown at once after the fill, not a lease later
 *   FILL_ZERO      counts are zero while a shard is being filled
 * of the reader:
 *   IGNORE_COUNT   a miss proves absence whatever the count is
 *   PEB_ABSENT     a Pebble-only slot proves absence
 *   MIS_ABSENT     an item with another key proves absence by itself
 *   NO_ITEM_AGAIN  the proof does without the second look at the item
 *   NO_SLOT_AGAIN  the proof does without the second look at the slot
 *   NO_HDR_AGAIN   the second look at the slot does without the header
 */
#ifndef MAXK
#define MAXK 3                  /* writes of K */
#endif
#ifndef MAX2
#define MAX2 1                  /* writes of K2 */
#endif
#ifndef MAXE
#define MAXE 2                  /* evictions, promotions, drops */
#endif
#ifndef MAXS
#define MAXS 1                  /* copies of the segment: 0 or 1 */
#endif
#ifndef NC
#define NC 2                    /* cells: 2 or 3 */
#endif
#define NONE 15
#define PEB 14
#define FULL 9                  /* the count that is stuck */
#define OK 1
#define MARKED 2
#define K 1
#define K2 2

/* cells */
bit  live[3], used[3];
byte own[3], ver[3], wasK[3], wasK2[3]; /* versions that stood there: bit set */
/* segments */
typedef Seg { byte slot[2]; byte hdr; byte cnt };
Seg  S[2];
bit  cur, pub;                  /* the segment in force; what the directory names */
/* the server's own knowledge */
byte kop, k2ver, acked, seen, absbits = 1; /* absbits: K was absent after write n */
bit  has2;                      /* K2 exists */
byte ks = 2, k2s = 2;           /* slot with the key's item; 2: none */
byte ne, n2, ns, truecnt;
bit  busy;
byte dropping = 2; bit dropPre; /* slot that goes a lease after its count */
bit  filling, unshown, shownPre, fkdone;
byte fsnap;
/* leases: the one reader is in a get; what it has is worth nothing any more */
bit inop, expired;

#define EXISTS !(absbits & (1<<kop))
#define FREECELL (!used[0] || !used[1] || !used[2])
/* A version goes where it never stood: not even within a lease, in the code. */
#ifdef PAIR_TWICE
#define TAKES(i, was, v) (!used[i])
#else
#define TAKES(i, was, v) (!used[i] && !(was[i]&(1<<(v))))
#endif
#define FRESH(was, v) (TAKES(0, was, v) || TAKES(1, was, v) || TAKES(2, was, v))
#define FREESLOT (S[cur].slot[0]==NONE || S[cur].slot[1]==NONE)
#define HASPEB (S[cur].slot[0]==PEB || S[cur].slot[1]==PEB)
inline takecell(k, v) {
  if
  :: k==K && TAKES(0, wasK, v) -> c=0 :: k==K && TAKES(1, wasK, v) -> c=1 :: k==K && TAKES(2, wasK, v) -> c=2
  :: k==K2 && TAKES(0, wasK2, v) -> c=0 :: k==K2 && TAKES(1, wasK2, v) -> c=1 :: k==K2 && TAKES(2, wasK2, v) -> c=2
  fi;
  used[c]=1; own[c]=k; ver[c]=v;
  if :: k==K -> wasK[c]=wasK[c]|(1<<v) :: else -> wasK2[c]=wasK2[c]|(1<<v) fi }
inline takeslot() { if :: S[cur].slot[0]==NONE -> s=0 :: S[cur].slot[1]==NONE -> s=1 fi }
inline count() { d_step { truecnt++; if :: S[cur].cnt!=FULL -> S[cur].cnt++ :: else fi } }

/* Where an item of key k with slot sl goes next: into a cell and a slot. */
inline place(k, v, sl) {
  atomic { takecell(k, v); if
  :: sl<2 -> s=sl; o=S[cur].slot[sl]
#ifdef TAKE_PEB
  :: sl==2 && HASPEB -> o=NONE; if :: S[cur].slot[0]==PEB -> s=0 :: S[cur].slot[1]==PEB -> s=1 fi
#endif
  :: sl==2 && FREESLOT -> o=NONE; takeslot()
  fi };
  d_step { if :: o<NC -> live[o]=0 :: else fi };
  S[cur].slot[s]=c;
  live[c]=1;
  d_step { if :: o<NC -> used[o]=0 :: else fi; sl=s; c=0; o=0; s=0 }
}
inline putK() {
  atomic { kop<MAXK && FREECELL && (ks<2 || FREESLOT
#ifdef TAKE_PEB
    || HASPEB
#endif
    ) && dropping==2 -> busy=1; kop++ };
  place(K, kop, ks);
  d_step { acked=kop; busy=0 }
}
/* No memory for the item: a resident key's slot becomes a Pebble-only one. */
inline putSlotless() {
  d_step { kop<MAXK && dropping==2 -> busy=1; kop++ };
#ifdef ACK_FIRST
  acked=kop;
#endif
  if
  :: atomic { ks<2 -> o=S[cur].slot[ks] };
     live[o]=0;
     d_step { S[cur].slot[ks]=PEB; used[o]=0; ks=2 }
#ifndef NO_COUNT
  :: atomic { ks==2 }; count()
#else
  :: atomic { ks==2 }
#endif
  :: atomic { ks==2 && FREESLOT -> takeslot() }; S[cur].slot[s]=PEB
  fi;
  d_step { acked=kop; busy=0; o=0; s=0 }
}
inline delK() {
  d_step { kop<MAXK && EXISTS && dropping==2 -> busy=1; kop++; absbits=absbits|(1<<kop) };
  if
  :: atomic { ks<2 -> o=S[cur].slot[ks] };
     live[o]=0;
     d_step { S[cur].slot[ks]=NONE; used[o]=0; ks=2; o=0 }
  :: atomic { ks==2 }           /* counts and Pebble-only slots stay */
  fi;
  d_step { acked=kop; busy=0 }
}
inline evict(sl) {
  atomic { ne<MAXE && sl<2 && dropping==2 -> ne++; o=S[cur].slot[sl] };
  live[o]=0;
#ifdef KEEP_SLOT_OFF
  d_step { S[cur].slot[sl]=NONE; used[o]=0; sl=2; o=0 }
#else
  d_step { S[cur].slot[sl]=PEB; used[o]=0; sl=2; o=0 }
#endif
}
/* A promotion is two steps: the value is read, and brought in later. */
inline promote(k, v, sl) { place(k, v, sl); }

proctype server() {
  byte c, o, s, pv;
end: do
  :: putK()
#ifndef NOSLOTLESS
  :: putSlotless()
#endif
#ifndef NODEL
  :: delK()
#endif
#ifndef NOEVICT
  :: evict(ks)
  :: evict(k2s)
#endif
  :: atomic { n2<MAX2 && FREECELL && (k2s<2 || FREESLOT
#ifdef TAKE_PEB
       || HASPEB
#endif
       ) && dropping==2 -> n2++; k2ver++; has2=1 }; place(K2, k2ver, k2s)
#ifndef NODEL2
  :: d_step { k2s<2 && dropping==2 -> has2=0; o=S[cur].slot[k2s]; live[o]=0; S[cur].slot[k2s]=NONE; used[o]=0; o=0; k2s=2 }
#endif
#ifndef NOPROMK
  :: atomic { ne<MAXE && ks==2 && EXISTS && pv==0 && kop>0 -> ne++; pv=kop }    /* read for a promotion */
  :: atomic { pv>0 && ks==2 && FREECELL && FREESLOT && dropping==2 && !filling &&
#ifndef STALE_PROMOTE
       pv==kop && EXISTS &&
#endif
       FRESH(wasK, pv) -> busy=1 }; place(K, pv, ks); d_step { pv=0; busy=0 }
  :: d_step { pv>0 && (pv!=kop || ks<2) -> pv=0 } /* dropped */
#endif
#ifndef NOPROM2
  :: atomic { ne<MAXE && has2 && k2s==2 && k2ver>0 && FREECELL && FREESLOT && dropping==2 && !filling && FRESH(wasK2, k2ver) -> ne++ };
     place(K2, k2ver, k2s)
#endif
#ifndef NOREPAIR
  /* A damaged item is written anew, at another place and at its version. */
  :: atomic { ne<MAXE && k2s<2 && dropping==2 && FRESH(wasK2, k2ver) -> ne++ }; place(K2, k2ver, k2s)
#endif
#ifndef NODROP
  /* A slot is dropped: of K, whose item or Pebble-only slot it is. */
  :: atomic { ne<MAXE && dropping==2 && EXISTS && (ks<2 || HASPEB) -> ne++;
       if :: ks<2 -> s=ks :: ks==2 && S[cur].slot[0]==PEB -> s=0 :: ks==2 && S[cur].slot[1]==PEB -> s=1 fi;
       if :: ks<2 -> o=S[cur].slot[s]; live[o]=0; used[o]=0; ks=2; o=0 :: else fi };
#ifdef DROP_FIRST
     S[cur].slot[s]=NONE;
     count();
     s=0
#else
     count();
     d_step { dropping=s; dropPre=inop; s=0 }
#endif
  :: d_step { dropping<2 ->
#ifndef DROP_NOW
       if :: dropPre -> expired=1 :: else fi;
#endif
       S[cur].slot[dropping]=NONE; dropping=2; dropPre=0 }
#endif
  /* Growth: the old slots stay as they are. */
  :: d_step { ns<MAXS && dropping==2 && !filling && !unshown -> ns++;
#ifndef NO_MARK
       S[0].hdr=MARKED
#endif
     };
     d_step { S[1].slot[0]=S[0].slot[0]; S[1].slot[1]=S[0].slot[1]; S[1].cnt=S[0].cnt; S[1].hdr=OK };
     pub=1;
     cur=1
#ifdef FILL
  :: d_step { filling && fsnap==0 && !fkdone -> fsnap=1 } /* the snapshot was taken at version 1 */
  :: atomic { filling && fsnap==1 && FREECELL && FREESLOT &&
#ifndef STALE_FILL
       kop==1 && ks==2 &&
#endif
       true -> busy=1 }; place(K, 1, ks); d_step { busy=0; fsnap=0; fkdone=1 }
  :: d_step { filling && fsnap==1 && kop>1 -> fsnap=0; fkdone=1 } /* dropped: written since */
  :: d_step { filling && fkdone && !busy -> filling=0; unshown=1; shownPre=inop }
  :: d_step { unshown && !busy ->
#ifndef SHOW_NOW
       if :: shownPre -> expired=1 :: else fi;
#endif
       unshown=0; S[cur].cnt=truecnt }
#endif
  od
}

inline answer(d) {
  assert(d>=lo && d<=kop);      /* not older than what was told, nor from nowhere */
  if :: d>seen -> seen=d :: else fi
}

#define ITEM(w) ((w)<NC)
#define GOOD(w) (!ITEM(w) || live[w])

proctype reader() {
  byte lo, w0, w1, h, n, x0, x1, m, d;
  bit p;
get:
  atomic { if :: acked>seen -> lo=acked :: else -> lo=seen fi };
attempt:
  atomic { inop=1; expired=0; dropPre=0; shownPre=0; /* the lease in force now */
    w0=0; w1=0; h=0; n=0; x0=0; x1=0; m=0; d=0;
    if :: p=0 :: pub==1 -> p=1 fi };
  do                            /* header and slots in any order */
  :: d_step { !(m&1) -> m=m|1; h=S[p].hdr; n=S[p].cnt }
  :: d_step { !(m&2) -> m=m|2; w0=S[p].slot[0] }
  :: d_step { !(m&4) -> m=m|4; w1=S[p].slot[1] }
  :: m==7 -> break
  od;
  /* The items, in any order: K's is the answer, another's version is kept. */
  do
  :: atomic { (m&8)==0 -> m=m|8;
       if
       :: ITEM(w0) && live[w0] && own[w0]==K -> d=ver[w0]; goto value
       :: ITEM(w0) && !live[w0] -> goto again
       :: ITEM(w0) && live[w0] && own[w0]==K2 -> x0=ver[w0]
       :: else
       fi }
  :: atomic { (m&16)==0 -> m=m|16;
       if
       :: ITEM(w1) && live[w1] && own[w1]==K -> d=ver[w1]; goto value
       :: ITEM(w1) && !live[w1] -> goto again
       :: ITEM(w1) && live[w1] && own[w1]==K2 -> x1=ver[w1]
       :: else
       fi }
  :: m==31 -> break
  od;
  atomic { m=0;
#ifndef IGNORE_COUNT
    if :: n>0 -> goto send :: else fi;
#endif
#ifndef PEB_ABSENT
    if :: w0==PEB || w1==PEB -> goto send :: else fi;
#endif
    if :: h!=OK -> goto again :: else fi };
#ifndef MIS_ABSENT
  atomic { if :: x0==0 && x1==0 -> goto absent :: else fi };
#ifndef NO_SLOT_AGAIN
  do                            /* the same word under headers without mark */
  :: atomic { !(m&1) -> m=m|1; if :: S[p].slot[0]!=w0 && x0>0 -> goto again :: else fi }
  :: atomic { !(m&2) -> m=m|2; if :: S[p].slot[1]!=w1 && x1>0 -> goto again :: else fi }
  :: atomic { !(m&4) -> m=m|4;
#ifndef NO_HDR_AGAIN
       if :: S[p].hdr!=OK -> goto again :: else fi
#endif
     }
  :: m==7 -> break
  od;
#endif
#ifndef NO_ITEM_AGAIN
  atomic { if :: x0>0 && !(live[w0] && own[w0]==K2 && ver[w0]==x0) -> goto again :: else fi };
  atomic { if :: x1>0 && !(live[w1] && own[w1]==K2 && ver[w1]==x1) -> goto again :: else fi };
#endif
#endif
absent:
  atomic { if :: expired -> goto again :: else fi;
    d=lo; do :: d<=kop && !(absbits&(1<<d)) -> d++ :: else -> break od;
    answer(d); goto over };
value:
  atomic { if :: expired -> goto again :: else fi; answer(d); goto over };
send:
  atomic { !busy -> d=kop; answer(d) };
over:
  atomic { inop=0; expired=0; lo=0; w0=0; w1=0; h=0; n=0; x0=0; x1=0; m=0; d=0; p=0 };
  goto get;
again:
  atomic { inop=0; expired=0; w0=0; w1=0; h=0; n=0; x0=0; x1=0; m=0; d=0; p=0 };
  goto attempt
}

init { atomic {
  S[0].slot[0]=NONE; S[0].slot[1]=NONE; S[1].slot[0]=NONE; S[1].slot[1]=NONE;
  S[0].hdr=OK;
#ifdef FILL
  kop=1; acked=1; has2=1; k2ver=1; n2=MAX2; filling=1; ne=MAXE; ns=MAXS;
#ifndef FILL_ZERO
  S[0].cnt=FULL;
#endif
#endif
#if NC<3
  used[2]=1;
#endif
  run server(); run reader() } }

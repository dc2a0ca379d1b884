/* cells.pml - an item, its slot and its segment: put, delete, eviction,
 * promotion, growth, reuse of index memory; on demand a page that changes class
 * (RECUT) or a kill and restart (RESTART).
 *
 * One transition = one access to one shared 8-byte word. Memory is sequentially consistent: the
 * server's stores are seen by a remote reader in program order (the code needs release order for
 * each arrow of the put path). A reader takes its words in ANY order and pauses anywhere.
 *
 * Shared words
 *   st[c]       item word 0: 0 not live (pending, dead), else live with that version
 *   b1[c],b2[c] the rest of the item as two words, each BODY(version,place); checksum holds iff equal
 *   slot[p][b]  index segment in memory place p, the candidate slot for K in bucket b
 *   hdr[p][b]   that bucket's header: segment id, or id|MARK
 * Keys: K has versions 1..MAXK (its writes in order, deletes too); K2 only competes for cells.
 *
 * Correctness (K is a register with one sequential writer). lo = newest write that was acked, or
 * that a finished get returned, when this get started. A value n needs lo <= n <= committed;
 * "absent" needs some absent index d with lo <= d <= committed (smallest d is taken: it constrains
 * later gets least). Both non-monotonic reads and undurable reads violate this.
 * One looping reader is complete: a violation is a chain of NON-overlapping gets, and readers do
 * not influence the server (leases expire them, never wait for them). -DREADERS=2 cross-checks.
 * What a lease is, is in lease.pml; here each reader that was in a get when memory was retired is
 * expired when it is used again. When a slot proves absence is in absent.pml; here a slot with an
 * item of another key proves nothing.
 *
 * Rules that can be taken out, of the put:
 *   LIVE_FIRST     the new item is live before the old one is dead
 *   LIVE_MID       it is live after that, but before the slot leads to it
 *   KILL_LAST      the old item dies after all else
 *   EARLY_PUBLISH  it is published before it is durable
 *   ACK_EARLY      it is acknowledged before it is published
 *   MOVE           an update moves the item to the other slot
 *   NO_VERSION     the state word and the checksum do not hold the version
 *   NOSTAMP        the checksum does not hold the place
 * of other operations:
 *   DEL_SLOT_FIRST a delete clears the slot before the item is dead
 *   EVICT_NOKILL   an eviction leaves the item alive
 *   SEND_PEBBLE    SEND answers from the database at any time
 *   SPLIT_NOMARK   growth marks the old segment after the first change of the new
 *   SPLIT_NOWAIT   writers of the segment do not wait for the copy
 *   CLEAR_OLD      growth clears the old slots
 *   REUSE_NOW      retired index memory is used at once
 *   RECUT_NOW      a retired page of items is used at once
 *   NO_DESTROY     the checksums of its places are not destroyed
 *   RESTART_NOWAIT a new incarnation does not wait for the predecessor's leases, whose memory
 *                  can still be read (with MEM_DIES it cannot: then this is right)
 * of the reader:
 *   MIS_ABSENT     an item with another key proves absence
 *   NO_HEADERS     headers are not compared with the key's hash
 *   NO_MARKS       a marked header is taken for one in force
 *   NOLEASE        the lease is not looked at
 */
#ifndef NC
#define NC 3                    /* item cells (at most 4) */
#endif
#ifndef MAXK
#define MAXK 3                  /* writes of K */
#endif
#ifndef MAXE
#define MAXE 2                  /* evictions + promotions */
#endif
#ifndef MAX2
#define MAX2 2                  /* puts of K2 */
#endif
#ifndef MAXS
#define MAXS 2                  /* splits */
#endif
#ifndef READERS
#define READERS 1
#endif
#define EMPTY 14
#define PEB   15                /* "in Pebble only" */
#define K2V   15
#define MARK  8
#define OTHER 7                 /* id of a segment for other keys */
#define BODY(n,p) (((n)*4)+(p))
#ifndef NO_VERSION
#define LIVEW(n) (n)
#define ISLIVE(s,b) ((s) == ((b)>>2))
#else
#define LIVEW(n) 1
#define ISLIVE(s,b) ((s) != 0)
#endif
#define DEAD 0

/* cell / segment life */
#define FREE 0
#define USED 1
#define RETIRED 2               /* waiting for its lease */
#define GONE 3

byte st[4], b1[4], b2[4], cf[4];
bit  known[4];                  /* K has been there */
typedef Seg { byte slot[2]; byte hdr[2] };
Seg  S[2];
byte sf[2];
byte cur, curid, pubid;         /* current place, its id, newest id a reader may know */
byte bkt = 2;                   /* bucket that holds K; 2 = none */
byte kop, committed, acked, hi, absbits = 1;
bit  busy;
byte n2 , ne, ns, nrc;
bit  markdue;
/* leases: bit r = reader r */
byte inop, expired, preC[4], preS[2];
/* restart */
byte inc, leaseInc; bit crash, down;
#ifdef RESTART
#define FIRSTC (inc*2)
#define LASTC  (inc*2+1)
#else
#define FIRSTC 0
#define LASTC  (NC-1)
#endif
#define HAVEFREE ((FIRSTC<=0 && cf[0]==FREE) || (FIRSTC<=1 && 1<=LASTC && cf[1]==FREE) || \
                  (FIRSTC<=2 && 2<=LASTC && cf[2]==FREE) || (3<=LASTC && cf[3]==FREE))

inline pick(c) {
  if
  :: FIRSTC==0 && cf[0]==FREE -> c=0
  :: FIRSTC==0 && cf[1]==FREE -> c=1
  :: 2>=FIRSTC && 2<=LASTC && cf[2]==FREE -> c=2
  :: 3<=LASTC && cf[3]==FREE -> c=3
  fi; cf[c]=USED
}
inline retireC(o) {             /* in d_step: cell o leaves use */
  if
  :: o<4 -> cf[o]=FREE
  :: else
  fi
}
inline kill(o) { d_step { if :: o<4 -> st[o]=DEAD :: else fi } }

inline do_put() {
  atomic { kop<MAXK && HAVEFREE ->
    busy=1; kop++; pick(c);
    if :: bkt<2 -> nb=bkt; o=S[cur].slot[bkt] :: else -> o=EMPTY; if :: nb=0 :: nb=1 fi fi;
#ifdef MOVE
    if :: bkt<2 -> nb=1-bkt :: true fi
#endif
  }
#ifndef EARLY_PUBLISH
  committed=kop;
#endif
#ifdef ACK_EARLY
  acked=kop;
#endif
  b1[c]=BODY(kop,c);
  b2[c]=BODY(kop,c);
#ifdef LIVE_FIRST
  st[c]=LIVEW(kop);
#endif
#ifdef KILL_LAST
  d_step { S[cur].slot[nb]=c; known[c]=1; };
  st[c]=LIVEW(kop);
  kill(o);
#else
  kill(o);
#ifdef LIVE_MID
  st[c]=LIVEW(kop);
#endif
  d_step { S[cur].slot[nb]=c; known[c]=1; };
#if !defined(LIVE_FIRST) && !defined(LIVE_MID)
  st[c]=LIVEW(kop);             /* the instant at which the put takes effect */
#endif
#endif
#ifdef MOVE
  d_step { if :: bkt<2 && nb!=bkt -> S[cur].slot[bkt]=EMPTY :: else fi };
#endif
#ifdef EARLY_PUBLISH
  committed=kop;
#endif
  d_step { acked=kop; bkt=nb; busy=0; retireC(o); c=0; o=0; nb=0 }
}

inline do_delete() {
  d_step { kop<MAXK && bkt<2 -> busy=1; kop++; absbits=absbits|(1<<kop); o=S[cur].slot[bkt] };
#ifndef EARLY_PUBLISH
  committed=kop;
#endif
#ifdef DEL_SLOT_FIRST
  S[cur].slot[bkt]=EMPTY;
  kill(o);
#else
  kill(o);
  S[cur].slot[bkt]=EMPTY;
#endif
#ifdef EARLY_PUBLISH
  committed=kop;
#endif
  d_step { acked=kop; bkt=2; busy=0; retireC(o); o=0 }
}

inline do_evict() {
  d_step { ne<MAXE && bkt<2 && S[cur].slot[bkt]<4 -> ne++; busy=1; o=S[cur].slot[bkt] };
#ifndef EVICT_NOKILL
  st[o]=DEAD;
#endif
  S[cur].slot[bkt]=PEB;
  d_step { busy=0; retireC(o); o=0 }
}
inline do_promote() {
  atomic { ne<MAXE && bkt<2 && S[cur].slot[bkt]==PEB && HAVEFREE -> ne++; busy=1; pick(c) };
  b1[c]=BODY(kop,c);
  b2[c]=BODY(kop,c);
  d_step { S[cur].slot[bkt]=c; known[c]=1 };
  st[c]=LIVEW(kop);
  d_step { busy=0; c=0 }
}
inline do_k2put() {
  atomic { n2<MAX2 && HAVEFREE -> n2++; pick(c) };
  b1[c]=BODY(K2V,c);
  b2[c]=BODY(K2V,c);
  st[c]=LIVEW(K2V);
  c=0
}
#define ISK2(x) (cf[x]==USED && (b1[x]>>2)==K2V)
inline do_k2del() {
  atomic { ISK2(0)||ISK2(1)||ISK2(2)||ISK2(3) ->
    if :: ISK2(0)->o=0 :: ISK2(1)->o=1 :: ISK2(2)->o=2 :: ISK2(3)->o=3 fi };
  st[o]=DEAD;
  d_step { retireC(o); o=0 }
}
inline do_split() {
  d_step { ns<MAXS && sf[1-cur]==FREE && !markdue -> ns++; sf[1-cur]=USED };
#ifndef SPLIT_NOMARK
  S[cur].hdr[0]=curid|MARK;
  S[cur].hdr[1]=curid|MARK;
#endif
  S[1-cur].slot[0]=S[cur].slot[0];
#ifdef SPLIT_NOWAIT
  if :: skip :: do_put() :: do_delete() fi;
#endif
  S[1-cur].slot[1]=S[cur].slot[1];
  S[1-cur].hdr[0]=curid+1;
  S[1-cur].hdr[1]=curid+1;
  pubid=curid+1;
#ifdef CLEAR_OLD
  S[cur].slot[0]=EMPTY;
  S[cur].slot[1]=EMPTY;
#endif
#ifndef SPLIT_NOMARK
  d_step { sf[cur]=RETIRED; preS[cur]=inop; cur=1-cur; curid++ }
#else
  d_step { markdue=1; cur=1-cur; curid++ }
#endif
}
inline do_latemark() {          /* SPLIT_NOMARK: the mark comes later */
  markdue;
  S[1-cur].hdr[0]=(curid-1)|MARK;
  S[1-cur].hdr[1]=(curid-1)|MARK;
  d_step { sf[1-cur]=RETIRED; preS[1-cur]=inop; markdue=0 }
}
inline do_graceS() {            /* a lease has passed since place p was retired */
  d_step { sf[1-cur]==RETIRED -> sf[1-cur]=FREE;
#ifndef REUSE_NOW
    expired=expired|preS[1-cur];
#endif
    preS[1-cur]=0 }
}
inline do_other() {             /* retired index memory becomes a segment of other keys */
  d_step { sf[1-cur]==FREE && curid>0 -> sf[1-cur]=GONE };
  S[1-cur].slot[0]=EMPTY;
  S[1-cur].slot[1]=EMPTY;
  S[1-cur].hdr[0]=OTHER;
  S[1-cur].hdr[1]=OTHER;
}
/* RECUT: the page of a dead cell goes to another size class; K2's larger value then happens to show,
 * at that very place, the image of an item K had at ANOTHER place (FORGE: at this place). */
#define RECUTTABLE(x) (x<NC && cf[x]==FREE && known[x])
inline do_recut() {
  atomic { nrc==0 && (RECUTTABLE(0)||RECUTTABLE(1)||RECUTTABLE(2)) -> nrc=1;
    if :: RECUTTABLE(0)->c=0 :: RECUTTABLE(1)->c=1 :: RECUTTABLE(2)->c=2 fi;
    cf[c]=GONE; };
#ifndef NO_DESTROY
  b2[c]=0;
#endif
  preC[c]=inop;                 /* retired now ... */
#ifndef RECUT_NOW
  expired=expired|preC[c];      /* ... and a lease later */
#endif
  preC[c]=0;
  atomic { if :: o=1 :: kop>=2 -> o=2 :: kop>=3 -> o=3 fi };
#ifdef FORGE
  b1[c]=BODY(o,c);
  b2[c]=BODY(o,c);
#else
  b1[c]=BODY(o,(c+1)%NC);
  b2[c]=BODY(o,(c+1)%NC);
#endif
  st[c]=LIVEW(o);
  d_step { c=0; o=0; nrc=2 }
}

#ifdef RESTART
#define ALIVE !crash
#else
#define ALIVE true
#endif

proctype writer() {
  byte c, o, nb;
again:
  {
end: do
  :: do_put()
  :: do_delete()
#ifndef NOEVICT
  :: do_evict()
  :: do_promote()
#endif
#ifndef NOK2
  :: do_k2put()
  :: do_k2del()
#endif
#if !defined(RESTART) && !defined(RECUT)
  :: do_split()
  :: do_graceS()
  :: do_other()
#ifdef SPLIT_NOMARK
  :: do_latemark()
#endif
#endif
#ifdef RECUT
  :: do_recut()
#endif
  od
  } unless { crash && !down };
#ifdef RESTART
  /* dead: memory frozen as it is (shm: still mapped by clients). Recover from Pebble into new memory. */
  d_step { down=1; busy=1; c=0; o=0; nb=0; kop=committed;
    absbits = absbits & ((1<<(committed+1))-1) };
#ifndef RESTART_NOWAIT
  d_step { expired=expired|inop; leaseInc=1 };    /* wait until every lease of the old incarnation ran out */
#endif
  /* the recovered index is whole before any lease or address of the new incarnation is handed out */
  atomic { cur=1; curid=1; pubid=1; S[1].hdr[0]=1; S[1].hdr[1]=1; sf[1]=USED;
    S[1].slot[0]=EMPTY; S[1].slot[1]=EMPTY; bkt=2;
    if
    :: absbits & (1<<kop)
    :: else -> if :: bkt=0 :: bkt=1 fi; S[1].slot[bkt]=PEB
    fi; inc=1; busy=0 };
  goto again
#endif
}

#ifdef RESTART
proctype chaos() {
  d_step { crash=1 };
#ifdef RESTART_NOWAIT
  inc==1;
  d_step { expired=expired|inop; leaseInc=1 }     /* leases of the old incarnation run out some time later */
#endif
}
#endif

#define ME (1<<me)
#define OK 1
#define BAD 2
#define MIS 3
#ifdef MEM_DIES
#define READABLE(isold) (!(isold) || !crash)
#else
#define READABLE(isold) true
#endif

inline verify() {
  if
  :: x!=y || x==0 -> r=BAD                              /* torn */
#ifndef NOSTAMP
  :: x==y && x!=0 && (x&3)!=c -> r=BAD
#define STAMPOK ((x&3)==c)
#else
#define STAMPOK true
#endif
  :: x==y && x!=0 && STAMPOK && !ISLIVE(z,x) -> r=BAD
  :: x==y && x!=0 && STAMPOK && ISLIVE(z,x) && (x>>2)==K2V -> r=MIS
  :: x==y && x!=0 && STAMPOK && ISLIVE(z,x) && (x>>2)!=K2V -> r=OK
  fi
}

#ifdef CACHE_REAL               /* only places K had within this very trace */
#define CACHED(k) known[k]
#else                           /* any place: K may have had it before the trace begins */
#define CACHED(k) true
#endif
#ifdef RESTART
#define MAYUSE(i) ((i)>=leaseInc && (i)<=inc)
#else
#define MAYUSE(i) true
#endif

#ifdef NO_HEADERS
#define WRONG(h) false
#elif defined(NO_MARKS)
#define WRONG(h) (((h)&7)!=dir)
#else
#define WRONG(h) ((h)!=dir)
#endif

proctype reader(byte me) {
  byte lo, dir, p, m, c, s0, s1, x, y, z, r, d;
  bit hok, bad, viac;
get:
  atomic { if :: acked>hi -> lo=acked :: else -> lo=hi fi };
attempt:
  atomic {                      /* the lease in force NOW bounds this attempt */
    inop=inop|ME; expired=expired&(255-ME);
    preC[0]=preC[0]&(255-ME); preC[1]=preC[1]&(255-ME); preC[2]=preC[2]&(255-ME); preC[3]=preC[3]&(255-ME);
    preS[0]=preS[0]&(255-ME); preS[1]=preS[1]&(255-ME);
    dir=0; p=0; m=0; c=0; s0=0; s1=0; x=0; y=0; z=0; r=0; d=0; hok=0; bad=0; viac=0 };
  atomic { if
  :: CACHED(0) && MAYUSE(0) -> c=0; viac=1; goto item
  :: CACHED(1) && MAYUSE(0) -> c=1; viac=1; goto item
#if NC>2
  :: CACHED(2) && MAYUSE(1) -> c=2; viac=1; goto item
#endif
#if NC>3
  :: CACHED(3) && MAYUSE(1) -> c=3; viac=1; goto item
#endif
  :: MAYUSE(0) -> dir=0; p=0
  :: pubid>=1 && MAYUSE(1) -> dir=1; p=1
  :: pubid>=2 -> dir=2; p=0
  :: true -> goto send
  fi };
  hok=1;
  do                            /* headers and slots, any order */
  :: d_step { READABLE(p==0) && !(m&1) -> m=m|1; if :: WRONG(S[p].hdr[0]) -> hok=0 :: else fi }
  :: d_step { READABLE(p==0) && !(m&2) -> m=m|2; if :: WRONG(S[p].hdr[1]) -> hok=0 :: else fi }
  :: d_step { READABLE(p==0) && !(m&4) -> m=m|4; s0=S[p].slot[0] }
  :: d_step { READABLE(p==0) && !(m&8) -> m=m|8; s1=S[p].slot[1] }
  :: !READABLE(p==0) -> goto send
  :: m==15 -> break
  od;
  m=0;
cand:
  atomic { if
  :: s0<4 -> c=s0; s0=EMPTY; goto item
  :: s1<4 -> c=s1; s1=EMPTY; goto item
  :: s0>=4 && s1>=4 && (s0==PEB || s1==PEB) -> goto send
  :: s0==EMPTY && s1==EMPTY -> if :: bad || !hok -> goto attempt :: else -> goto absent fi
  fi };
item:
  m=0;
  do                            /* the item, word by word, any order */
  :: d_step { READABLE(c<2) && !(m&1) -> m=m|1; z=st[c] }
  :: d_step { READABLE(c<2) && !(m&2) -> m=m|2; x=b1[c] }
  :: d_step { READABLE(c<2) && !(m&4) -> m=m|4; y=b2[c] }
  :: !READABLE(c<2) -> goto send
  :: m==7 -> break
  od;
  atomic { verify(); m=0 };
  atomic { if
  :: r==OK -> goto value
  :: r!=OK && viac -> goto attempt
  :: r==BAD && !viac -> bad=1
  :: r==MIS && !viac ->
#ifndef MIS_ABSENT
     bad=1
#else
     skip
#endif
  fi; x=0; y=0; z=0; r=0; goto cand };
value:
  atomic { if
#ifndef NOLEASE
  :: expired&ME -> goto attempt
  :: else ->
#else
  :: true ->
#endif
     d_step { d=x>>2;
       assert(d>=lo);            /* not stale, not backwards */
       assert(d<=committed);     /* durable before visible */
       if :: d>hi -> hi=d :: else fi };
     goto done2
  fi };
absent:
  atomic { if
#ifndef NOLEASE
  :: expired&ME -> goto attempt
  :: else ->
#else
  :: true ->
#endif
     d_step { d=lo;
       do :: d<=committed && !(absbits&(1<<d)) -> d++ :: else -> break od;
       assert(d<=committed);     /* K was absent at some instant of this get */
       if :: d>hi -> hi=d :: else fi };
     goto done2
  fi };
send:                            /* SEND: answered in shard order, never in the middle of a write */
#ifdef SEND_PEBBLE
  atomic { d=committed; assert(d>=lo); if :: d>hi -> hi=d :: else fi };
#else
  atomic { !busy -> d=kop; assert(d>=lo); if :: d>hi -> hi=d :: else fi };
#endif
done2:
  atomic { inop=inop&(255-ME); expired=expired&(255-ME);
    dir=0; p=0; m=0; c=0; s0=0; s1=0; x=0; y=0; z=0; r=0; d=0; hok=0; bad=0; viac=0; lo=0;
    preC[0]=preC[0]&(255-ME); preC[1]=preC[1]&(255-ME); preC[2]=preC[2]&(255-ME); preC[3]=preC[3]&(255-ME);
    preS[0]=preS[0]&(255-ME); preS[1]=preS[1]&(255-ME) };
  goto get
}

init {
  atomic {
    S[0].slot[0]=EMPTY; S[0].slot[1]=EMPTY; S[1].slot[0]=EMPTY; S[1].slot[1]=EMPTY;
    sf[0]=USED;
    run writer();
    run reader(0);
#if READERS>1
    run reader(1);
#endif
#ifdef RESTART
    run chaos();
#endif
  }
}

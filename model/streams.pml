/* streams.pml - two groups in one log: facts that must outlive their segment,
 * votes, commit indexes, crashes.
 *
 * Records of both groups stand in one log, SEG of them fill a segment. A record
 * has an entry of its group, or the group's facts (term, vote, commit index),
 * or both as one; entries come with the leader's commit index, and facts are
 * written when they have changed. Each group is a stream with a base of its own:
 * a checkpoint takes entries up to an index. The oldest segment is free when no
 * stream needs it; the facts that stand in it, and in none behind it, are
 * appended again first. A vote leaves when its facts are durable. A crash keeps
 * a prefix of the log that has all that is durable; a start reads the segments
 * that are not free, and a group's newest facts count.
 *
 * Correct: a group never gives two votes in a term. After a start it has all its
 * entries behind its base, a commit index that is not below what its base has
 * applied, nor below the one that came with an entry that it remembers.
 *
 * Rules that can be taken out:
 *   NO_CARRY     facts are not appended again before their segment is free
 *   CARRY_EARLY  they are, and the segment is free before the copy is durable
 *   NEWER_UNSYNCED facts that have newer ones behind their segment are dropped
 *                before the newer ones are durable
 *   CARRY_STALE  the copy is taken first and appended later, behind newer facts
 *   ONE_STREAM   a segment is free when the group that frees it needs it no more
 *   VOTE_EARLY   a vote leaves before its facts are durable
 *   COMMIT_APART the commit index is appended after the entry that it came with
 *   CHECK_EARLY  a checkpoint ends before the commit of its entries is durable
 *   NO_MAX       a start takes the commit index of the facts, whatever the base has
 * The last two back each other up: either may be missing, not both.
 */
#ifndef N
#define N 7                     /* records, counted from 1 */
#endif
#ifndef SEG
#define SEG 2
#endif
#ifndef MAXI
#define MAXI 2                  /* entries of a group */
#endif
#ifndef MAXT
#define MAXT 2                  /* terms */
#endif
#ifndef VOTERS
#define VOTERS 1                /* groups that vote */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

byte group[N+1], entry[N+1];    /* a record: its group, its entry (0: none) */
bit  facts[N+1];                /* and whether it has facts: */
byte term[N+1], vote[N+1], commit[N+1];
byte written, durable, freed;   /* segments up to freed are free */
byte mterm[2], mvote[2], mcommit[2], mlast[2]; /* in memory: what is ordered */
byte came[2*(MAXI+1)];          /* commit index that came with an entry, of a group */
byte base[2];                   /* entries that the group's base has */
byte sent[2*(MAXT+1)];          /* vote that left, of a group in a term */
byte owed[2];                   /* position of the facts of a vote that did not leave yet */
byte acked[2];                  /* entries that were durable */
byte life;

#define ROOM(n) (written+n<=N)
inline appendFacts(g) {
  written++; group[written]=g; facts[written]=1;
  term[written]=mterm[g]; vote[written]=mvote[g]; commit[written]=mcommit[g]
}
inline appendEntry(g) {
  written++; group[written]=g; mlast[g]++; entry[written]=mlast[g]
}
inline sync() { durable=written; acked[0]=mlast[0]; acked[1]=mlast[1] }
/* found: a record of group g behind position low, up to high, has facts. */
inline find(g, low, high, found) {
  found=0; i=low+1;
  do :: i<=high -> if :: facts[i] && group[i]==g -> found=1 :: else fi; i++ :: else -> break od;
  i=0
}
/* c: the commit index of group g in what is durable. */
inline durableCommit(g, c) {
  c=0; i=freed+1;
  do :: i<=durable -> if :: facts[i] && group[i]==g -> c=commit[i] :: else fi; i++ :: else -> break od;
  i=0
}

proctype replica(byte g) {
  byte i, c;
end: do
  :: atomic { g<VOTERS && ROOM(1) && mterm[g]<MAXT -> /* asked in a new term */
       mterm[g]++; if :: mvote[g]=1 :: mvote[g]=2 fi;
       appendFacts(g); owed[g]=written }
  :: atomic { owed[g]!=0 &&
#ifndef VOTE_EARLY
       durable>=owed[g] &&
#endif
       true -> i=g*(MAXT+1)+mterm[g];
       assert(sent[i]==0 || sent[i]==mvote[g]);
       sent[i]=mvote[g]; owed[g]=0; i=0 }
  /* an entry, with the commit index that the group has, or a higher one */
  :: atomic { ROOM(1) && mlast[g]<MAXI -> appendEntry(g); came[g*(MAXI+1)+mlast[g]]=mcommit[g] }
#ifdef COMMIT_APART
  :: atomic { ROOM(2) && mlast[g]<MAXI && mlast[g]>mcommit[g] -> c=mlast[g]; i=life;
       appendEntry(g); came[g*(MAXI+1)+mlast[g]]=c };
     atomic { if :: i==life && ROOM(1) -> mcommit[g]=c; appendFacts(g) :: else fi; c=0; i=0 }
#else
  :: atomic { ROOM(1) && mlast[g]<MAXI && mlast[g]>mcommit[g] ->
       mcommit[g]=mlast[g]; appendFacts(g);
       mlast[g]++; entry[written]=mlast[g]; came[g*(MAXI+1)+mlast[g]]=mcommit[g] }
#endif
  /* the commit index alone rises, and nothing waits for its record */
  :: atomic { ROOM(1) && mcommit[g]<mlast[g] -> mcommit[g]=mlast[g]; appendFacts(g) }
  /* a checkpoint */
  :: atomic { base[g]<mcommit[g] -> c=base[g];
#ifndef CHECK_EARLY
       durableCommit(g, c);
#else
       c=mcommit[g];
#endif
       if :: c>base[g] -> base[g]=c :: else fi; c=0 }
  od
}

/* Appends what it must of segment freed+1.. again, and frees it. */
proctype log() {
  byte i, me, to, at, v;
  bit has, need;
#ifdef CARRY_STALE
  byte t, c, k;
  bit copied;
#endif
end: do
  :: atomic { durable<written -> sync() }
  :: atomic { freed+SEG<=written ->
       me=life; to=freed+SEG; need=0; i=freed+1;
       do
       :: i<=to -> if
#ifdef ONE_STREAM
          :: entry[i]>base[group[i]] && group[i]==0 -> need=1
#else
          :: entry[i]>base[group[i]] -> need=1
#endif
          :: else fi; i++
       :: else -> break
       od; i=0;
       if :: need -> goto rest :: else fi };
#ifndef NO_CARRY
     v=0;                       /* for both groups, the one after the other */
     do
     :: v<2 -> atomic { if
          :: me==life ->
             find(v, freed, to, has);
             if :: has -> find(v, to, written, has); has=1-has :: else fi;
             if
#ifndef NEWER_UNSYNCED
             :: !has -> at=written /* what stands behind may not be durable yet */
#endif
             :: has && !ROOM(1) -> need=1
             :: has && ROOM(1) && !need ->
#ifdef CARRY_STALE
                t=mterm[v]; c=mvote[v]; k=mcommit[v]; copied=1
#else
                appendFacts(v); at=written
#endif
#ifdef NEWER_UNSYNCED
             :: else
#else
             :: has && need
#endif
             fi
          :: else
          fi };
#ifdef CARRY_STALE
          atomic { if
          :: me==life && copied && ROOM(1) -> written++; group[written]=v; facts[written]=1;
             term[written]=t; vote[written]=c; commit[written]=k; at=written
          :: me==life && copied && !ROOM(1) -> need=1
          :: else
          fi; t=0; c=0; k=0; copied=0 };
#endif
          v++; has=0
     :: else -> break
     od;
#ifndef CARRY_EARLY
     atomic { if :: me==life && at!=0 -> sync() :: else fi };
#endif
#endif
     atomic { if
       :: me==life && !need -> i=freed+1;
          do
          :: i<=to -> group[i]=0; entry[i]=0; facts[i]=0; term[i]=0; vote[i]=0; commit[i]=0; i++
          :: else -> break
          od;
          freed=to
       :: else fi; goto rest };
rest: atomic { i=0; me=0; to=0; need=0; at=0; v=0; has=0 }
  od
}

proctype crash() {
  byte p, i, g;
  do
  :: life<CRASHES -> atomic { life++;
       p=durable; do :: p<written -> p++ :: break od;
       do
       :: written>p -> group[written]=0; entry[written]=0; facts[written]=0;
          term[written]=0; vote[written]=0; commit[written]=0; written--
       :: else -> break
       od;
       durable=p; g=0;
       do
       :: g<2 -> mterm[g]=0; mvote[g]=0; mcommit[g]=0; mlast[g]=base[g]; owed[g]=0; i=freed+1;
          do
          :: i<=p -> if
             :: group[i]==g && facts[i] -> mterm[g]=term[i]; mvote[g]=vote[i]; mcommit[g]=commit[i]
             :: else fi;
             if
             :: group[i]==g && entry[i]>mlast[g] -> assert(entry[i]==mlast[g]+1); mlast[g]=entry[i]
             :: else fi; i++
          :: else -> break
          od;
#ifndef NO_MAX
          if :: mcommit[g]<base[g] -> mcommit[g]=base[g] :: else fi;
#endif
          assert(mcommit[g]>=base[g]); assert(mlast[g]>=acked[g]); acked[g]=mlast[g];
          i=base[g]+1;
          do :: i<=mlast[g] -> assert(mcommit[g]>=came[g*(MAXI+1)+i]); i++ :: else -> break od;
          i=1;                  /* entries that are gone will come again, with another index */
          do :: i<=MAXI -> if :: i>mlast[g] -> came[g*(MAXI+1)+i]=0 :: else fi; i++ :: else -> break od;
          g++
       :: else -> break
       od; g=0; i=0; p=0 }
  :: break
  od
}

init { atomic { run replica(0); run replica(1); run log(); run crash() } }

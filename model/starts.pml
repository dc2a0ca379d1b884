/* starts.pml - lives in a row: does a start find the segment that it needs?
 *
 * A disk has room for SEGS segments. A life begins a segment: it takes a free
 * one, names it, and its first group has all facts (epoch, clock bound, terms,
 * votes) as one. From then on it serves: it fills segments, takes another one
 * while more than KEPT are free, makes checkpoints and frees segments that are in
 * the base. A crash may come at any step, as often as it likes. No life goes on
 * in a segment that it found.
 *
 * A start looks at what it finds. The newest segment has begun if its first group
 * is whole. If it has not, nothing stands in it that was told, and the start
 * takes its place: a free one is not needed. If no segment is free, all that
 * is older than the newest that has begun goes into the base first, which
 * needs no log, and is free: the facts stand in the newest one.
 *
 * Correct: no start is stuck (end), facts are never lost, and what was told is
 * in the base or in a segment.
 *
 * Rules that can be taken out:
 *   NO_PLACE    a start does not take the place of a segment that has not begun
 *   NO_CHECK    it does not make a checkpoint before it has a segment
 *   FACTS_APART a segment does not begin with the facts: who frees the segment
 *               in which they stand appends them to the newest one, and a
 *               start has none of its own yet
 *   BEGUN_ALL   the newest counts as begun as soon as it is named
 *   FREE_ALL    a start that has no segment makes a checkpoint of all, and frees all
 */
#ifndef SEGS
#define SEGS 4
#endif
#ifndef KEPT
#define KEPT 1                  /* a matter of time only: with 0 a start may have to wait */
#endif

byte n;                         /* segments in force: 1 is the oldest, n the newest */
bit  begun[SEGS+2];             /* its first group is whole */
bit  facts[SEGS+2];             /* all facts stand in it */
bit  told[SEGS+2];              /* records that were told stand in it, and the base has them not */
bit  ever;                      /* there are facts */

#if defined(NO_PLACE) || defined(BEGUN_ALL)
#define PLACE false
#else
#define PLACE (n>0 && !begun[n])
#endif
#ifdef BEGUN_ALL
#define FIRST(i) true
#else
#define FIRST(i) begun[i]
#endif

inline name() { n++; begun[n]=0; facts[n]=0; told[n]=0 }
inline head() {
  begun[n]=1; ever=1;
#ifdef FACTS_APART
  facts[n]=(n==1)
#else
  facts[n]=1
#endif
}
/* The oldest segment is free. */
inline drop() {
  assert(!told[1]); i=1;
  do :: i<n -> begun[i]=begun[i+1]; facts[i]=facts[i+1]; told[i]=told[i+1]; i++ :: else -> break od;
  begun[n]=0; facts[n]=0; told[n]=0; n--; i=0
}
/* The base has what stands in segments up to high. */
inline check(high) {
  i=1; do :: i<=high -> told[i]=0; i++ :: else -> break od; i=0
}
/* A crash comes between any two steps. */
#define MAYCRASH if :: skip :: goto start fi

active proctype life() {
  byte i, last;
start:
  atomic { i=1;                 /* the facts are there, once there were any */
    do :: i<=n && !facts[i] -> i++ :: else -> break od;
    assert(!ever || i<=n); i=0; last=0 };
  if
  :: atomic { PLACE -> begun[n]=0; facts[n]=0; told[n]=0 }; goto own
  :: atomic { !(PLACE) && n<SEGS -> name() }; goto own
  :: !(PLACE) && n==SEGS
  fi;
#ifdef NO_CHECK
  false;
#endif
  atomic { check(n) };
  MAYCRASH;
#ifdef FREE_ALL
  atomic { do :: n>0 -> drop() :: else -> break od };
#else
  atomic { last=n;              /* the newest that has begun */
    do :: last>1 && !FIRST(last) -> last-- :: else -> break od;
#ifdef FACTS_APART
    do :: last>1 && !facts[last] -> last-- :: else -> break od;
#endif
    last>1;                     /* else it is stuck: nothing may go */
    do :: last>1 -> drop(); last-- :: else -> break od; last=0 };
#endif
  goto start;
own:
  MAYCRASH;
  atomic { head() };
  do                            /* it serves */
  :: goto start
  :: told[n]=1
  :: atomic { SEGS-n>KEPT -> name() }; MAYCRASH; atomic { head() }
  :: n>1 -> atomic { check(n-1) }; MAYCRASH;
#ifdef FACTS_APART
     facts[n]=1;                /* appended again */
#endif
     atomic { drop() }
  od
}

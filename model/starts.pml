/* starts.pml - lives in a row: does a start find room for its segment?
 *
 * A disk has room for D records, which is SEGS segments of SEG. A life begins a
 * segment, a file of full size that it names; it never goes on in one that it
 * found. Then it serves: it writes records and facts, takes a segment when the
 * newest is full, makes checkpoints, and gives the oldest segment back when the
 * facts that stand in it stand in the newest too. A crash may come between any
 * two steps, as often as it likes.
 *
 * A start first gives back what the life before it left unused: it shortens the
 * newest segment to what stands in it, and one with nothing in it goes. The
 * last segment's room is kept for a start, and that of the one before it for
 * facts, without which nothing can be given back.
 *
 * Correct: no start is stuck, however early the lives before it ended (end);
 * facts are never lost.
 *
 * Rules that can be taken out:
 *   NO_SHORTEN   what a life left unused is not given back
 *   SHORTEN_LATE it is given back when the new segment has its name
 *   NO_KEPT      no room is kept
 *   FREE_FACTS   a segment is given back although facts stand in it alone
 */
#ifndef SEGS
#define SEGS 4
#endif
#define SEG 2
#define D (SEGS*SEG)
#ifdef NO_KEPT
#define KEPT 0
#else
#define KEPT SEG
#endif

byte n;                         /* segments in force: 1 is the oldest, n the newest */
byte size[D+2];                  /* records that stand in it */
bit  wide[D+2], facts[D+2];     /* the file has its full size; the newest facts are here */
byte records, room = D;         /* in all segments; what the disk has left */
bit  ever;                      /* there are facts */

/* A crash comes between any two steps. */
#define MAYCRASH if :: skip :: goto start fi

inline name() { n++; size[n]=0; wide[n]=1; facts[n]=0; room=room-SEG }
inline drop(which) {
  if :: wide[which] -> room=room+SEG :: else -> room=room+size[which] fi;
  records=records-size[which]; i=which;
  do :: i<n -> size[i]=size[i+1]; wide[i]=wide[i+1]; facts[i]=facts[i+1]; i++ :: else -> break od;
  size[n]=0; wide[n]=0; facts[n]=0; n--; i=0
}
inline shorten(which) {
  if
  :: size[which]==0 -> drop(which)
  :: size[which]!=0 && wide[which] -> wide[which]=0; room=room+SEG-size[which]
  :: else
  fi
}
inline writeFacts() {
  i=1; do :: i<=n -> facts[i]=0; i++ :: else -> break od; i=0;
  facts[n]=1; ever=1; size[n]++; records++
}

active proctype life() {
  byte i;
start:
  atomic { i=1;
    do :: i<=n && !facts[i] -> i++ :: else -> break od;
    assert(!ever || i<=n); i=0 };
#if !defined(NO_SHORTEN) && !defined(SHORTEN_LATE)
  atomic { if :: n>0 -> shorten(n) :: else fi };
  MAYCRASH;
#endif
  atomic { room>=SEG -> name() }; /* else it is stuck */
  MAYCRASH;
#ifdef SHORTEN_LATE
  atomic { if :: n>1 -> i=n-1; shorten(n-1) :: else fi; i=0 };
#endif
  do                            /* it serves */
  :: goto start
  :: atomic { size[n]<SEG && records+2*KEPT<D -> size[n]++; records++ }
  :: atomic { size[n]<SEG && records+KEPT<D -> writeFacts() }
  :: atomic { size[n]==SEG && room>=SEG+KEPT -> name() }
  :: n>1 ->                     /* the base has the oldest segment */
#ifndef FREE_FACTS
     if
     :: atomic { facts[1] && size[n]<SEG && records+KEPT<D -> writeFacts() }; MAYCRASH
     :: !facts[1]
     :: facts[1] && (size[n]==SEG || records+KEPT>=D) -> goto rest
     fi;
#endif
     atomic { drop(1) };
rest: skip
  od
}

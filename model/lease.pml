/* lease.pml - the beat, leases, reuse of memory and the next incarnation.
 *
 * Time is a counter that anybody may let run, so that everybody may rest
 * anywhere for as long as the bound allows. A lease lasts L ticks; rates of
 * clocks are taken as equal (the code adds a bound for them).
 *
 * The client has two hands: one READs the beat and renews the lease, the other
 * makes gets, which a renewal may overtake. A beat READ that shows a counter
 * higher than an earlier one gives a lease from when the earlier was posted.
 *
 * Default: one piece of memory is retired and used again. A get by the index
 * samples one word before and one later; a get at a remembered place just
 * READs there. None may believe bytes of the memory's next life.
 * -DSUCCESSION: three incarnations follow each other, killed or stopped. A get
 * must not believe memory of one after a later one has acknowledged a write:
 * it would be older than what somebody was told before the get began.
 *
 * Rules that can be taken out, of the client:
 *   RENEWAL_EXTENDS  a get counts by the lease in force when it is handled
 *   NO_DEADLINE      a get counts always
 *   FROM_SECOND      a lease runs from the READ that showed the higher counter
 *   SAME_COUNTER     a READ that shows the same counter renews too
 *   NO_LIST          the list is not READ before a lease with a higher reclaim version
 * of the server:
 *   REUSE_NOW        retired memory is used at once
 *   CLOCK_FIRST      the lease to wait for is counted from before the retirement
 *   RV_LATE          the reclaim version is raised at the next beat
 *   RV_FIRST         the reclaim version is raised before the list has the page
 * of its successors:
 *   NO_WAIT          writes are acknowledged at once after a kill
 *   KEEP_MARK        the mark of a clean stop is not taken away at the start
 *   MARK_FIRST       it is written while the memory can still be read
 *   MARK_WAITING     it is written by one that still waits for its predecessor
 *   BEATS_ON         a fenced server goes on beating
 */
#ifndef L
#define L 2
#endif
#ifndef MAXT
#define MAXT 6
#endif
#ifndef MAXN
#define MAXN 3
#endif
#define INUSE 0
#define RETIRED 1
#define REUSED 2
#define MAXI 3

byte now;
/* the server's memory, by incarnation */
byte n;                         /* beat counter of the client's incarnation */
bit  serving[MAXI], readable[MAXI], stale[MAXI];
byte rv, page, rvdue;           /* reclaim version; state of the page; RV_LATE */
bit  listed, mark;
byte inc, retired;              /* newest incarnation */
bit  over;                      /* the tale is told */
/* the client's */
bit  have, cached;              /* a session, a remembered place in the page */
byte ci, deadline, lastn, lastp, myrv;

proctype clock() { do :: atomic { now<MAXT -> now++ } :: over -> break od }

#ifdef BEATS_ON
#define MAYBEAT(i) readable[i]
#else
#define MAYBEAT(i) serving[i]
#endif
proctype beat() {
  do
  :: d_step { MAYBEAT(ci) && n<MAXN -> n++; if :: rvdue -> rv=1; rvdue=0 :: else fi }
  :: over -> break
  od
}

#ifndef SUCCESSION
proctype memory() {
  byte since;
#ifdef CLOCK_FIRST
  since=now;
#endif
  page=RETIRED;                 /* nothing new leads there; the words stay */
#ifdef RV_FIRST
  rv=1;
#endif
  listed=1;
#ifdef RV_LATE
  rvdue=1;
#else
  rv=1;
#endif
#ifndef CLOCK_FIRST
  since=now;
#endif
#ifndef REUSE_NOW
  now>=since+L;
#endif
  page=REUSED;
  now==MAXT; over=1
}
#else
proctype life() {
  byte start, i;
  bit marked, waits;
  do
  :: inc+1<MAXI ->
     i=inc;
     if
     :: serving[i]=0            /* killed; memory stays readable */
     :: atomic {                /* a clean stop */
#ifndef MARK_WAITING
          !waits ->
#else
          true ->
#endif
          serving[i]=0 };
#ifdef MARK_FIRST
        mark=1;
        if :: readable[i]=0 :: skip fi
#else
        readable[i]=0;
        mark=1
#endif
     fi;
     start=now;                 /* after the predecessor's end */
     marked=mark;
#ifndef KEEP_MARK
     mark=0;                    /* durably, before the first beat */
#endif
     atomic { i=inc+1; readable[i]=1; serving[i]=1; inc=i; waits=!marked };
#ifdef NO_WAIT
     waits=0;
#endif
     if
     :: atomic { !waits || now>=start+L -> waits=0;
          /* acknowledges a write: what came before is out of date */
          stale[0]=1; if :: i>1 -> stale[1]=1 :: else fi }
     :: skip                    /* ends before it ever did */
     fi
  :: else -> break
  od;
  now==MAXT; over=1
}
#endif

/* The hand that keeps the lease. */
proctype renew() {
  byte p, cn, crv;
  do
  :: atomic { !have && serving[inc] -> ci=inc; p=now }; /* the first request */
     if
     :: atomic { serving[ci] -> have=1; deadline=p+L; n=0; lastn=0; lastp=p; myrv=rv; p=0 }
     :: atomic { !serving[ci] -> p=0 }
     fi
  :: atomic { have && now<MAXT -> p=now };
     if
     /* words come in any order: this one cannot see less than the other */
     :: atomic { readable[ci] -> crv=rv };
        atomic { if :: readable[ci] -> cn=n :: else -> goto done fi };
        /* handled, some time later */
        if
        :: atomic {
#ifdef SAME_COUNTER
             cn>=lastn
#else
             cn>lastn
#endif
             -> if
#ifndef NO_LIST
             :: crv>myrv -> goto list
#endif
             :: else -> skip
             fi }
        :: else -> goto done
        fi;
        goto grant;
list:   atomic { if :: listed -> cached=0 :: else fi; myrv=crv };
grant:  atomic {
#ifdef FROM_SECOND
          deadline=(p+L>deadline -> p+L : deadline);
#else
          deadline=(lastp+L>deadline -> lastp+L : deadline);
#endif
          lastn=cn; lastp=p }
     :: atomic { !readable[ci] -> have=0 } /* connection lost: another session */
     fi;
done: atomic { p=0; cn=0; crv=0 }
#ifdef SUCCESSION
  :: atomic { have && inc>ci -> have=0 }
#endif
  :: over -> break
  od
}

#ifdef NO_DEADLINE
#define INTIME true
#elif defined(RENEWAL_EXTENDS)
#define INTIME (now<deadline)
#else
#define INTIME (now<dl)
#endif

/* The hand that gets. */
proctype get() {
  byte dl, i;
  bit old, bad;
  do
  :: atomic { have && now<deadline -> dl=deadline; i=ci; old=stale[i] }; /* posted */
#ifdef SUCCESSION
     atomic { if :: readable[i] -> skip :: else -> goto done fi };
     atomic { if :: INTIME -> assert(!old) :: else fi };
#else
     if
     :: atomic { cached -> bad=(page==REUSED) }
     :: atomic { page==INUSE -> skip }; /* one word of the index */
        atomic { bad=(page==REUSED); if :: page==INUSE -> cached=1 :: else fi }
     :: goto done
     fi;
     atomic { if :: INTIME -> assert(!bad) :: else fi };
#endif
done: atomic { dl=0; i=0; old=0; bad=0 }
  :: over -> break
  od
}

init { atomic {
  readable[0]=1; serving[0]=1;
  run clock(); run beat();
#ifdef SUCCESSION
  run life();
#else
  run memory();
#endif
  run renew(); run get() } }

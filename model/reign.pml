/* reign.pml - writes that a leader judges and that are replicated as effects.
 *
 * One counter, which clients increment under names, each of which must take
 * effect once. A leader judges an increment on its ordered state (what is
 * published and what is in flight) and proposes the effect: reign, number, name,
 * value. The engine keeps one committed log; a proposal may be late, lost,
 * doubled, or be appended when another replica leads. A reign begins with a
 * marker in the log, whose index names it; only the replica that proposed the
 * marker orders under it, once it has published it.
 *
 * Two replicas publish the same log; each leads at times, and the other one
 * follows at any distance. A third would do what one of the two does. A leader
 * does not know that it fell before it publishes the next marker. -DCRASHES=n: a
 * replica starts again n times, from a checkpoint that may be as old as the base.
 * -DINSTALLS=n: a replica takes over n times what the other one has published.
 *
 * Correct: each name is applied once at most; a reply says the value that its
 * increment made; the value is the number of names that were applied; two
 * replicas that have published as much have the same state.
 *
 * Rules that can be taken out, with their numbers in docs/replication.md:
 *   NO_REIGN      R3 entries of an earlier reign apply
 *   NO_NUMBER     R3 gaps and doubles within a reign apply
 *   JUDGE_EARLY   R2 a leader orders before it has published its marker
 *   KEEP_OVERLAY  R2 a leader that loses a reign and wins another goes on with
 *                    its old ordered state
 *   NO_RECORD     R4 results are not in the entries: a new leader does not know them
 *   NO_FLIGHT     R4 a retry that meets its first copy in flight is judged anew
 *   RECORDS_LATE  R4 a marker is proposed before the records of a checkpoint are read (with CRASHES)
 *   BARE_INSTALL  R8 a snapshot has no records (with INSTALLS)
 *   NO_PLACE      R8 a snapshot has neither reign nor number (with INSTALLS)
 *   ACK_ORDERED   R5 answered when ordered
 */
#ifndef NAMES
#define NAMES 3
#endif
#ifndef LOG
#define LOG 7
#endif
#ifndef REIGNS
#define REIGNS 3
#endif
#ifndef FLY
#define FLY 3
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef INSTALLS
#define INSTALLS 0
#endif
#define BIT(x) (1<<(x))
#define MARKER 0
#define EFFECT 1
#define NOTHING 255

/* the committed log */
typedef Entry { byte kind, reign, number, name, value };
Entry log[LOG+1];
byte top, reigns, crashes, installs;
/* proposals under way */
Entry fly[FLY];
bit used[FLY], doubled;

typedef Replica {
  /* published */
  byte at, reign, number, value, result[NAMES+1];
#if CRASHES>0
  /* the checkpoint: the same, at an earlier place of the log */
  byte cat, creign, cnumber, cvalue, cresult[NAMES+1];
#ifdef RECORDS_LATE
  bit unread;			/* the records of the checkpoint are not read yet */
#endif
#endif
  /* leading */
  byte mine;			/* my marker, 0: none */
  byte onumber, ovalue, oname;	/* ordered: last number, value, names in flight */
};
Replica R[2];
byte told[NAMES+1], applied[NAMES+1], counted, names;

/* a client is told the result of its name */
#define TELL(n,v) if :: told[n]!=0 -> assert(told[n]==(v)) :: else -> told[n]=(v) fi

inline pick() {
  if :: n=1 :: n=2
#if NAMES>2
     :: n=3
#endif
  fi
}
inline which() {
  if :: i=0 :: i=1
#if FLY>2
     :: i=2
#endif
  fi
}
#define CLEAR(i) used[i]=0; fly[i].kind=0; fly[i].reign=0; fly[i].number=0; fly[i].name=0; fly[i].value=0

#if NAMES>2
#define DROP3(r) ; R[r].cresult[3]=0
#else
#define DROP3(r)
#endif
#define DROP(r) R[r].cat=0; R[r].creign=0; R[r].cnumber=0; R[r].cvalue=0; R[r].cresult[1]=0; R[r].cresult[2]=0 DROP3(r)

proctype replica(byte me) {
  byte i, n;
end: do
  /* the engine makes me leader, and my marker is committed; the other one does not know yet and goes on ordering */
  :: atomic { reigns<REIGNS && top<LOG -> reigns++; top++; log[top].kind=MARKER; log[top].reign=top;
       R[me].mine=top; R[me].onumber=0;
#ifndef KEEP_OVERLAY
       R[me].ovalue=NOTHING; R[me].oname=0;
#endif
     }
  /* publish the next entry */
  :: atomic { R[me].at<top -> R[me].at++; i=R[me].at;
       if
       :: log[i].kind==MARKER -> R[me].reign=log[i].reign; R[me].number=0;
            if
            :: R[me].mine==i ->
#ifdef KEEP_OVERLAY
                 if :: R[me].ovalue==NOTHING -> R[me].ovalue=R[me].value :: else fi; R[me].onumber=0
#elif !defined(JUDGE_EARLY)	/* R2: the ordered state is what is published, and nothing is in flight */
                 R[me].ovalue=R[me].value; R[me].onumber=0; R[me].oname=0
#else
                 skip
#endif
            :: R[me].mine!=0 && R[me].mine<i -> R[me].mine=0	/* another one's reign */
            :: else
            fi
       :: else ->
            n=1;
#ifndef NO_REIGN	/* R3: it counts only in its own reign */
            if :: log[i].reign!=R[me].reign -> n=0 :: else fi;
#endif
#ifndef NO_NUMBER	/* R3: and only behind the one before it */
            if :: log[i].reign==R[me].reign && log[i].number!=R[me].number+1 -> n=0 :: else fi;
#endif
            if
            :: n -> R[me].number=log[i].number; R[me].value=log[i].value;
#ifndef NO_RECORD	/* R4: every replica notes the result, not only who proposed it */
                 R[me].result[log[i].name]=log[i].value;
#else
                 if :: R[me].mine!=0 && R[me].mine==log[i].reign -> R[me].result[log[i].name]=log[i].value :: else fi;
#endif
                 /* who publishes an entry first counts it */
                 if :: i>counted -> counted=i; applied[log[i].name]++; names++; assert(applied[log[i].name]<=1); assert(R[me].value==names) :: else fi;
                 R[me].oname=R[me].oname & (255-BIT(log[i].name));
                 /* R5: its leader answers, now that it is published */
                 if :: R[me].mine!=0 && R[me].mine==log[i].reign -> TELL(log[i].name,log[i].value) :: else fi
            :: else	/* void, at every replica */
            fi; n=0
       fi; i=0 }
  /* a request, new or made again, reaches me while I believe to lead */
  :: atomic { R[me].mine!=0 &&
#ifndef JUDGE_EARLY	/* R2: my marker is published */
       R[me].reign==R[me].mine &&
#endif
       true -> pick();
#ifdef JUDGE_EARLY
       if :: R[me].ovalue==NOTHING -> R[me].ovalue=R[me].value :: else fi;
#endif
       if
#if CRASHES>0 && defined(RECORDS_LATE)
       :: R[me].result[n]!=0 && !R[me].unread -> TELL(n,R[me].result[n])
       :: (R[me].result[n]==0 || R[me].unread) && (R[me].oname & BIT(n)) -> skip
#else
       :: R[me].result[n]!=0 -> TELL(n,R[me].result[n])
#ifndef NO_FLIGHT	/* R4 */
       :: R[me].result[n]==0 && (R[me].oname & BIT(n)) -> skip	/* travels behind the first */
#endif
#endif
       :: else ->
            i=0; do :: i<FLY && used[i] -> i++ :: else -> break od;
            if
            :: i<FLY -> used[i]=1; R[me].onumber++; R[me].ovalue++; R[me].oname=R[me].oname|BIT(n);
                 fly[i].kind=EFFECT; fly[i].reign=R[me].mine; fly[i].number=R[me].onumber; fly[i].name=n; fly[i].value=R[me].ovalue;
#ifdef ACK_ORDERED	/* R5 */
                 TELL(n,R[me].ovalue)
#endif
            :: else
            fi
       fi; n=0; i=0 }
#if CRASHES>0
  /* a checkpoint brings in all that is published, and where that is, in one step */
  :: atomic { crashes<CRASHES && R[me].cat!=R[me].at ->
       R[me].cat=R[me].at; R[me].creign=R[me].reign; R[me].cnumber=R[me].number; R[me].cvalue=R[me].value;
       i=1; do :: i<=NAMES -> R[me].cresult[i]=R[me].result[i]; i++ :: else -> break od; i=0 }
  :: atomic { crashes<CRASHES -> crashes++;
       R[me].mine=0; R[me].onumber=0; R[me].ovalue=NOTHING; R[me].oname=0;
       R[me].at=R[me].cat; R[me].reign=R[me].creign; R[me].number=R[me].cnumber; R[me].value=R[me].cvalue;
#ifdef RECORDS_LATE	/* R4: a marker may come before they are read */
       R[me].unread=1;
#endif
       i=1; do :: i<=NAMES -> R[me].result[i]=R[me].cresult[i]; i++ :: else -> break od; i=0;
       if :: crashes==CRASHES -> DROP(0); DROP(1) :: else fi }	/* nobody needs a checkpoint any more */
#ifdef RECORDS_LATE
  :: atomic { R[me].unread -> R[me].unread=0 }
#endif
#endif
#if INSTALLS>0
  /* a snapshot of the other one, taken between two entries */
  :: atomic { installs<INSTALLS && R[me].at<R[1-me].at -> installs++;
       R[me].mine=0; R[me].onumber=0; R[me].ovalue=NOTHING; R[me].oname=0;
       R[me].at=R[1-me].at; R[me].value=R[1-me].value;
#ifndef NO_PLACE	/* R8 */
       R[me].reign=R[1-me].reign; R[me].number=R[1-me].number;
#endif
#ifndef BARE_INSTALL	/* R8 */
       i=1; do :: i<=NAMES -> R[me].result[i]=R[1-me].result[i]; i++ :: else -> break od; i=0
#endif
     }
#endif
  od
}

/* the engine appends what is under way in any order, loses it, or appends one a second time */
proctype engine() {
  byte i;
end: do
  :: atomic { top<LOG -> which();
       if
       :: used[i] -> top++; log[top].kind=fly[i].kind; log[top].reign=fly[i].reign; log[top].number=fly[i].number; log[top].name=fly[i].name; log[top].value=fly[i].value;
            if :: CLEAR(i) :: !doubled -> doubled=1 fi
       :: else
       fi; i=0 }
  :: atomic { which(); if :: used[i] -> CLEAR(i) :: else fi; i=0 }
  od
}

#define SAME (R[0].at!=R[1].at || (R[0].value==R[1].value && R[0].reign==R[1].reign && R[0].number==R[1].number))

init {
  atomic { R[0].ovalue=NOTHING; R[1].ovalue=NOTHING; run replica(0); run replica(1); run engine() };
  do :: atomic { !SAME -> assert(SAME) } od
}

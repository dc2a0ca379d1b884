/* words.pml - one-sided gets of a replicated group.
 *
 * One group, one key, and one client that gets it for ever. The consensus
 * engine (Raft) is here with real logs, durable terms and votes, the comparison
 * of logs at an election, and configurations that take effect when they are
 * applied, one change at a time. A replica does not stand while it knows a
 * change that is committed and that it has not applied; other entries it may
 * have still to publish. Ours are the word before the vote, the marker and
 * ready, publish before acknowledge, commit indexes that are held back until a
 * leader has published (the clamp), snapshots, and restarts.
 *
 * Every action may happen at any later time, or never: delays, losses, pauses
 * and partitions need nothing else. A message is a copy of a whole log; that
 * prefixes arrive follows from the order of actions.
 *
 * A group starts from a snapshot of index 1 and term 1 (the base): it has the
 * first configuration and a value of the key, and the first members have it. By
 * default replica 0 leads in term 1 and is ready. -DCOLD: nobody leads. A
 * replica that is added has the base too; -DEMPTY: it has nothing, and gets
 * the base with a snapshot of its leader.
 *
 * A replica's registered memory has its cell (word: the term, config: how many
 * changes of configuration are applied, ready: the term in which it leads and
 * has published its marker) and the key's item (value: the log index of the
 * newest put that is published). What goes on inside an item is in cells.pml.
 *
 * The client may know a header (ready, config, incarnation of a leader) from
 * long ago, and also from a replica that has fallen since it was ready. A get
 * READs item, the leader's cell and the words of others in any order, and
 * believes the item if all fit the header. It is correct if it shows no less
 * than any put that was acknowledged, and any value that was shown, before it
 * began. Who publishes an entry acknowledges it at once, also a former leader
 * with a parked request: a later acknowledgement promises less.
 *
 * Rules that can be taken out, with their numbers in docs/replication.md:
 *   VOTE_FIRST    R10 the vote leaves before the word is written (with ACK_ABOVE)
 *   SELF_FIRST    R10 the candidate's own vote counts before its word is written
 *   OLD_WORD      R10 a restart registers an older word than its durable term
 *   ACK_ABOVE     R1  entries are acknowledged to a leader whose term is above the word
 *   NO_PERSIST    R1  a restart forgets the vote
 *   READY_EARLY   R11 a replica is ready when elected, not when its marker is published
 *   REPLAYED      R11 any marker of the word's term makes ready, whoever publishes it
 *   KEEP_READY    R11 a restart keeps ready
 *   ACK_EARLY     R5  a write is acknowledged when it is committed
 *   PARKED_EARLY  R5  a leader that falls answers what is committed and not published
 *   NO_CLAMP      R7  commit indexes leave as the engine knows them
 *   CLAMP_USER    R7  they are held back to the last published put, and the
 *                     changes of configuration behind it with them
 *   SNAP_AHEAD    R8  a snapshot may hold what is committed and not published
 *   SNAP_CUTS         a snapshot cuts off entries behind it that the log has
 *   NO_CONFIG     R12 the configuration is not compared
 *   NUMBER_LATE   R12 a change takes effect before its number is in the cell
 *   KEEP_WORDS    R13 words that were READ for the get before count again
 *   IN_FLIGHT     R13 a READ that was under way when the get began counts (with SHARED)
 *   LATE_HEADER   R14 the header is learned among the READs of the get
 *   NO_OWN        R15 the leader's cell is not READ
 *   NO_OTHER      R16 no other word is READ
 *   ONE_LESS      R16 one word less than a majority of the configuration is READ
 *   OUTSIDER      R16 the leader's word counts though it is no voter of the configuration
 *   LEARNER       R16 words of replicas count that are no voters
 *   TWO_LIVES     R17 one get READs memory of two incarnations
 *   STAYS_UP      R18 the dead incarnation's memory stays readable, and the next
 *                     one takes part at once
 *   NO_BASE       R19 a replica without the base is sent entries (with EMPTY)
 *   FORGET_COMMIT R22 the commit index is not durable with its entries
 *   STAND_BEHIND  R22 a replica stands with a committed change unapplied
 * With BOUNDED the client makes gets with a bound instead (client/internal/read/bounded.go). The cell has another word then (published: the newest
 * entry that the memory shows), a looker learns how new a replica is, and a getter READs its item. A get is correct if it shows no less than
 * any put that was acknowledged when the last look began, and than what the gets before it have shown. The cell's word rises in one step with the item
 * and the acknowledgement: who finds the item newer than the word believes less than he may.
 *   ACK_UNSHOWN   R25 a put is acknowledged before the word of its leader has risen
 *   SHOWN_EARLY   R25 the word rises when an entry is committed
 *   NO_OTHER, NO_OWN  R26 the leader's number counts without words
 *   UNSEEN        R27 the replica's own word is not waited for
 *   LOOK_FIRST    R28 another replica is looked at while the one before is READ
 *   LATE_ANSWER   R28 a get that was under way at the one before is shown
 * Not rules but other ways: SHARED, others' words are READ by anybody, and a get takes
 * what such a READ brought, sooner or later, if it was posted after the get began (of
 * those under way at a replica one is followed, any of them); WORDS_LAST, words are READ after the item (two rounds;
 * holds without the clamp if leaders alone acknowledge: LEADER_ACKS); TOLD_LEADING,
 * a header is told only by a replica that still leads in the term in which it is
 * ready (holds with ACK_ABOVE).
 * For smaller searches: STANDS, READS, PUTS (the only replica that may stand, is
 * read, takes puts), SMALL (no term is adopted by hearsay).
 */
#ifndef N
#define N 3
#endif
#ifndef MAXT
#define MAXT 2		/* terms */
#endif
#ifndef MAXL
#define MAXL 4		/* entries */
#endif
#ifndef MAXP
#define MAXP 2		/* puts */
#endif
#ifndef MAXR
#define MAXR 0		/* restarts */
#endif
#ifndef MAXS
#define MAXS 0		/* snapshots */
#endif
#ifndef MAXC
#define MAXC 0		/* changes of configuration */
#endif
/* the configurations in their order, as sets of replicas */
#ifndef C0
#define C0 7
#endif
#ifndef C1
#define C1 15
#endif
#ifndef C2
#define C2 13
#endif

/* an entry is its term * 4 + its kind */
#define BASE 0
#define MARKER 1
#define PUT 2
#define CHANGE 3
#define KIND(r,i) (R[r].log[i]&3)
#define TERM(r,i) (R[r].log[i]>>2)

#define FOLLOWER 0
#define CANDIDATE 1
#define LEADER 2

/* what a replica is in the middle of */
#define NOTHING 0
#define VOTED 1		/* its vote has left, its word is not written yet */
#define INSTALLING 2
#define NUMBERING 3	/* a change is in effect, and its number is not in the cell */
#define SHOWING 4	/* an entry is acknowledged, and its index is not in the cell */

#define WITHHELD 255	/* the item says "ask by SEND" */

#ifdef BOUNDED
#define SHOW(r,i) if :: WRITES(r) -> R[r].published=(i) :: else fi
#else
#define SHOW(r,i) skip
#endif

#define BIT(x) (1<<(x))
#define SET(c) ((c)==0 -> C0 : ((c)==1 -> C1 : C2))
#define COUNT(s) ((((s)>>0)&1)+(((s)>>1)&1)+(((s)>>2)&1)+(((s)>>3)&1))
#define MAJORITY(c) (COUNT(SET(c))/2+1)

typedef Replica {
  /* durable: the log's stream of the group */
  byte term, voted;		/* voted: who has the vote of the term, + 1 */
  byte last, log[MAXL+1];
#if MAXR>0
  byte dcommit;			/* the commit index that a restart finds */
#endif
  /* the engine's memory */
  byte role, votes, commit, applied, changes;
  byte match[N], marker;
  byte doing;
  /* registered memory */
  byte word, config, ready, value, inc;
#ifdef BOUNDED
  byte published;
#endif
#ifdef STAYS_UP
  bit dead;			/* nobody writes it any more, and it can be READ */
#endif
};
Replica R[N];
byte acked, shown, puts, restarts, snaps;

#ifdef STAYS_UP
#define WRITES(r) (!R[r].dead)
#else
#define WRITES(r) true
#endif
#if MAXR>0
#ifdef FORGET_COMMIT
#define KEEP(r) skip
#else
#define KEEP(r) R[r].dcommit=R[r].commit
#endif
#else
#define KEEP(r) skip
#endif

#define NEWEST(r) (R[r].last==0 -> 0 : TERM(r,R[r].last))
#define UPTODATE(c,v) (NEWEST(c)>NEWEST(v) || (NEWEST(c)==NEWEST(v) && R[c].last>=R[v].last))
#define WON(r) (COUNT(R[r].votes & SET(R[r].changes))>=MAJORITY(R[r].changes))
#define HAS(l,r,i) (R[l].match[r]>=(i) && ((SET(R[l].changes)>>(r))&1))
#if N==3
#define HAVE(l,i) (HAS(l,0,i)+HAS(l,1,i)+HAS(l,2,i))
#else
#define HAVE(l,i) (HAS(l,0,i)+HAS(l,1,i)+HAS(l,2,i)+HAS(l,3,i))
#endif
#define MEMBER(r) ((SET(R[r].changes)>>(r))&1)

#define RAISE(r,t) if :: WRITES(r) && (t)>R[r].word -> R[r].word=(t) :: else fi
#ifdef SMALL
#define MAYRAISE(r,t) RAISE(r,t)
#else
#define MAYRAISE(r,t) if :: RAISE(r,t) :: skip fi	/* without a vote the word may stay behind */
#endif

inline follow(r) {
#ifdef PARKED_EARLY
  if :: R[r].role==LEADER ->
        may=R[r].commit; do :: may>acked && KIND(r,may)!=PUT -> may-- :: else -> break od;
        if :: may>acked -> acked=may :: else fi; may=0
     :: else fi;
#endif
  R[r].role=FOLLOWER; R[r].votes=0; R[r].marker=0; R[r].match[0]=0; R[r].match[1]=0; R[r].match[2]=0;
#if N>3
  R[r].match[3]=0;
#endif
}
/* r hears from the leader l */
inline adopt(r,l) {
  if :: R[r].term<R[l].term -> R[r].term=R[l].term; R[r].voted=0 :: else fi;
  MAYRAISE(r,R[r].term);
  follow(r)
}
/* R1: nothing of a term that is above the word leaves f, no acknowledgement either */
#ifdef ACK_ABOVE
#define ACKNOWLEDGE(l,f,i) R[l].match[f]=i
#else
#define ACKNOWLEDGE(l,f,i) if :: R[f].word>=R[f].term || !WRITES(f) -> R[l].match[f]=i :: else fi
#endif
inline append(r,kind) {
  R[r].last++; R[r].log[R[r].last]=R[r].term*4+kind; R[r].match[r]=R[r].last; KEEP(r)
}
inline grant(v,c) { if :: R[c].role==CANDIDATE && R[c].term==R[v].term -> R[c].votes=R[c].votes|BIT(v) :: else fi }

/* R7: may is the highest commit index that may leave leader l: it is below the
 * first put that l has not published, and changes do not hold it back */
#if defined(NO_CLAMP)
#define CLAMP(l) may=R[l].commit
#elif defined(CLAMP_USER)
#define CLAMP(l) may=R[l].applied; do :: may>1 && KIND(l,may)!=PUT -> may-- :: else -> break od
#else
#define CLAMP(l) may=R[l].applied; do :: may<R[l].commit && KIND(l,may+1)!=PUT -> may++ :: else -> break od
#endif
/* R19: only a replica that has the base is sent entries */
#if defined(EMPTY) && !defined(NO_BASE)
#define ISBASED(r) (R[r].last>0)
#else
#define ISBASED(r) true
#endif

inline vote(v,c) {
  atomic { c!=v && R[c].role==CANDIDATE && R[v].doing==NOTHING &&
    (R[c].term>R[v].term || (R[c].term==R[v].term && R[v].voted==0)) && UPTODATE(c,v) ->
    R[v].term=R[c].term; R[v].voted=c+1; follow(v);
#ifdef VOTE_FIRST	/* R10 */
    grant(v,c); R[v].doing=VOTED
#else
    RAISE(v,R[v].term); grant(v,c)
#endif
  }
}
/* a term is adopted, and the candidate refused */
inline refuse(v,c) {
  atomic { c!=v && R[c].role==CANDIDATE && R[c].term>R[v].term && !UPTODATE(c,v) && R[v].doing==NOTHING ->
    R[v].term=R[c].term; R[v].voted=0; follow(v); MAYRAISE(v,R[v].term) }
}
/* entries and a commit index arrive at f */
inline replicate(l,f) {
  atomic { f!=l && R[l].role==LEADER && R[f].term<=R[l].term && R[f].doing==NOTHING && ISBASED(f) ->
    CLAMP(l);
    if
    :: R[l].match[f]<R[l].last || R[f].commit<may ->
       adopt(f,l);
#ifdef PARKED_EARLY
       CLAMP(l);
#endif
       if :: may>R[f].commit -> R[f].commit=may :: else fi;
#ifdef NO_BASE
       if :: R[f].last==0 -> R[f].applied=1 :: else fi;	/* as if it had it: its value is none */
#endif
       if :: R[l].match[f]<R[l].last ->
             k=1; do :: k<=MAXL -> R[f].log[k]=R[l].log[k]; k++ :: else -> break od;
             R[f].last=R[l].last; ACKNOWLEDGE(l,f,R[l].last); KEEP(f)	/* one record: entries and commit index */
       :: else	/* a commit index alone becomes durable with the next record */
       fi
    :: else
    fi; k=0; may=0 }
}
#if MAXS>0
#ifdef SNAP_AHEAD
#define SNAPAT(l) R[l].commit
#else
#define SNAPAT(l) R[l].applied	/* R8 */
#endif
/* whose log agrees with the snapshot takes none: the entries behind it would be cut off */
#ifdef SNAP_CUTS
#define NEWS(l,f) true
#else
#define NEWS(l,f) (R[f].last<SNAPAT(l) || TERM(f,SNAPAT(l))!=TERM(l,SNAPAT(l)))
#endif
/* f gets l's state instead of entries: its item is withheld while it is put in */
inline snapshot(l,f) {
  atomic { f!=l && snaps<MAXS && R[l].role==LEADER && R[f].term<=R[l].term && R[f].doing==NOTHING && R[f].applied<R[l].applied && R[f].value!=WITHHELD && NEWS(l,f) ->
    snaps++;
    adopt(f,l);
    may=SNAPAT(l);
    k=1; do :: k<=may -> R[f].log[k]=R[l].log[k]; k++ :: else -> break od;
    do :: k<=MAXL -> R[f].log[k]=0; k++ :: else -> break od;
    R[f].last=may; R[f].commit=may; KEEP(f); ACKNOWLEDGE(l,f,may); R[f].doing=INSTALLING; k=0; may=0;
    if :: WRITES(f) -> R[f].value=WITHHELD :: else fi }
}
#endif

/* R22: nobody stands who has a committed change to apply */
#define UNAPPLIED(i) ((i)>R[me].applied && (i)<=R[me].commit && KIND(me,i)==CHANGE)
#ifdef STAND_BEHIND
#define MAYSTAND true
#elif MAXC==0
#define MAYSTAND true
#elif MAXL==3
#define MAYSTAND (!(UNAPPLIED(2) || UNAPPLIED(3)))
#elif MAXL==4
#define MAYSTAND (!(UNAPPLIED(2) || UNAPPLIED(3) || UNAPPLIED(4)))
#elif MAXL==5
#define MAYSTAND (!(UNAPPLIED(2) || UNAPPLIED(3) || UNAPPLIED(4) || UNAPPLIED(5)))
#else
#define MAYSTAND (!(UNAPPLIED(2) || UNAPPLIED(3) || UNAPPLIED(4) || UNAPPLIED(5) || UNAPPLIED(6)))
#endif
#if MAXL>6 && MAXC>0
#error "MAYSTAND looks at no more than 6 entries"
#endif

proctype replica(byte me) {
  byte k, may;
end: do
  /* stand for the next term */
  :: atomic { R[me].role!=LEADER && R[me].term<MAXT && R[me].doing==NOTHING && MAYSTAND &&
#ifdef STANDS
       me==STANDS &&
#endif
       MEMBER(me) -> R[me].term++; R[me].voted=me+1; follow(me); R[me].role=CANDIDATE;
#ifdef SELF_FIRST	/* R10 */
       R[me].votes=BIT(me); R[me].doing=VOTED
#else
       RAISE(me,R[me].term); R[me].votes=BIT(me)
#endif
     }
#if defined(VOTE_FIRST) || defined(SELF_FIRST)
  :: atomic { R[me].doing==VOTED -> RAISE(me,R[me].term); R[me].doing=NOTHING }
#endif
  :: vote(me,0)
  :: vote(me,1)
  :: vote(me,2)
  :: replicate(me,0)
  :: replicate(me,1)
  :: replicate(me,2)
#ifndef SMALL
  :: refuse(me,0)
  :: refuse(me,1)
  :: refuse(me,2)
#endif
#if N>3
  :: vote(me,3)
  :: replicate(me,3)
#ifndef SMALL
  :: refuse(me,3)
#endif
#endif
#if MAXS>0
  :: snapshot(me,0)
  :: snapshot(me,1)
  :: snapshot(me,2)
#if N>3
  :: snapshot(me,3)
#endif
  /* the state is in: one value, the newest put of it */
  :: atomic { R[me].doing==INSTALLING ->
       may=R[me].commit; R[me].applied=may;
       do :: may>1 && KIND(me,may)!=PUT -> may-- :: else -> break od;
       if :: WRITES(me) -> R[me].value=may :: else fi;
       R[me].changes=0; k=1; do :: k<=R[me].applied -> if :: KIND(me,k)==CHANGE -> R[me].changes++ :: else fi; k++ :: else -> break od;
       if :: WRITES(me) -> R[me].config=R[me].changes :: else fi;
       SHOW(me,R[me].applied);
       R[me].doing=NOTHING; k=0; may=0 }
#endif
  /* elected: the marker is proposed */
  :: atomic { R[me].role==CANDIDATE && R[me].doing!=INSTALLING && WON(me) && R[me].last<MAXL ->
       R[me].role=LEADER; R[me].votes=0; append(me,MARKER); R[me].marker=R[me].last;
#ifdef READY_EARLY
       if :: WRITES(me) -> R[me].ready=R[me].term :: else fi
#endif
     }
  :: atomic { R[me].role==LEADER && puts<MAXP && R[me].last<MAXL && R[me].applied>=R[me].marker &&
#ifdef PUTS
       me==PUTS &&
#endif
       true -> puts++; append(me,PUT) }
#if MAXC>0
  /* a change is proposed when the one before it is applied here */
  :: atomic { R[me].role==LEADER && R[me].last<MAXL && R[me].changes<MAXC && R[me].applied>=R[me].marker ->
       k=R[me].applied+1; do :: k<=R[me].last && KIND(me,k)!=CHANGE -> k++ :: else -> break od;
       if :: k>R[me].last -> append(me,CHANGE) :: else fi; k=0 }
#endif
  /* commit: the highest index of the own term that a majority has, and all below it */
  :: atomic { R[me].role==LEADER && R[me].commit<R[me].last ->
       k=R[me].last; do :: k>R[me].commit && !(HAVE(me,k)>=MAJORITY(R[me].changes) && TERM(me,k)==R[me].term) -> k-- :: else -> break od;
       if :: k>R[me].commit -> R[me].commit=k
#ifdef SHOWN_EARLY
         ; SHOW(me,k)
#endif
#ifdef ACK_EARLY
         ; do :: k>acked && KIND(me,k)!=PUT -> k-- :: else -> break od; if :: k>acked -> acked=k :: else fi
#endif
       :: else fi; k=0 }
  /* publish the next committed entry */
  :: atomic { R[me].applied<R[me].commit && R[me].doing!=INSTALLING && R[me].doing!=NUMBERING && R[me].doing!=SHOWING -> R[me].applied++;
#ifdef ACK_UNSHOWN	/* R25 */
       R[me].doing=SHOWING;
#else
       SHOW(me,R[me].applied);
#endif
       if
       :: KIND(me,R[me].applied)==PUT -> if :: WRITES(me) -> R[me].value=R[me].applied :: else fi;
#ifndef ACK_EARLY
#ifdef LEADER_ACKS
            if :: R[me].role==LEADER && R[me].applied>acked -> acked=R[me].applied :: else fi
#else
            if :: R[me].applied>acked -> acked=R[me].applied :: else fi
#endif
#endif
       :: KIND(me,R[me].applied)==CHANGE ->	/* the number in the cell, then the effect */
#ifdef NUMBER_LATE	/* R12 */
            R[me].doing=NUMBERING;
#else
            if :: WRITES(me) -> R[me].config=R[me].changes+1 :: else fi;
#endif
            R[me].changes++; if :: !MEMBER(me) -> follow(me) :: else fi
       :: else ->	/* R11: it makes ready the leader that proposed it */
#ifdef REPLAYED
            if :: TERM(me,R[me].applied)==R[me].word && WRITES(me) -> R[me].ready=R[me].word :: else fi
#else
            if :: R[me].role==LEADER && R[me].applied==R[me].marker && WRITES(me) -> R[me].ready=R[me].term :: else fi
#endif
       fi }
#ifdef ACK_UNSHOWN
  :: atomic { R[me].doing==SHOWING -> SHOW(me,R[me].applied); R[me].doing=NOTHING }
#endif
#ifdef NUMBER_LATE
  :: atomic { R[me].doing==NUMBERING -> if :: WRITES(me) -> R[me].config=R[me].changes :: else fi; R[me].doing=NOTHING }
#endif
#if MAXR>0
  /* killed and started: it applies again from the base, up to the commit index that is durable */
  :: atomic { restarts<MAXR && R[me].doing==NOTHING && R[me].last>0 -> restarts++; follow(me); R[me].applied=1; R[me].changes=0; R[me].commit=R[me].dcommit;
#ifdef NO_PERSIST
       R[me].voted=0;
#endif
#ifdef STAYS_UP
       R[me].dead=1
#else
       R[me].inc++; R[me].value=1; R[me].config=0; SHOW(me,1);
#ifndef KEEP_READY
       R[me].ready=0;
#endif
#ifdef OLD_WORD
       R[me].word=1
#else
       R[me].word=R[me].term
#endif
#endif
     }
#endif
  od
}

#ifdef NO_OWN
#define OWN 4
#else
#define OWN 0
#endif
#ifdef TWO_LIVES
#define SAMELIFE true
#else
#define SAMELIFE (R[L].inc==I)
#endif
#ifdef NO_CONFIG
#define SAMECONFIG true
#else
#define SAMECONFIG (R[L].config==C)
#endif
#ifdef LEARNER
#define ASKED ((1<<N)-1)
#else
#define ASKED SET(C)
#endif
#ifdef WORDS_LAST
#define NOW (have&2)
#else
#define NOW true
#endif
#if defined(NO_OTHER)
#define OTHERS 0
#elif defined(ONE_LESS)
#define OTHERS (MAJORITY(C)-2)
#else
#define OTHERS (MAJORITY(C)-1)
#endif
/* Before this no answer can be wrong: none is older than the base, and what is
 * shown was acknowledged, but where one of these breaks or ways is taken. */
#if defined(EMPTY) || defined(LEADER_ACKS) || defined(SNAP_AHEAD)
#define INTERESTING true
#else
#define INTERESTING acked>1
#endif

/* a word of replica r; a get that does not fit begins again with a new header */
#ifdef SHARED
#ifdef IN_FLIGHT	/* R13 */
#define SAMPLED(r) (came[r]!=0)
#else
#define SAMPLED(r) (came[r]!=0 && (young&BIT(r)))
#endif
#define WORD(r) (came[r]-1)
#define BEGUN young=0;
#else
#define SAMPLED(r) true
#define WORD(r) R[r].word
#define BEGUN
#endif
#define OTHER(r) atomic { need>0 && NOW && L!=r && !(seen&BIT(r)) && (ASKED&BIT(r)) && SAMPLED(r) -> \
    if :: WORD(r)==T -> seen=seen|BIT(r); need-- :: else -> goto learn fi }

/* R16: a header is of no use if its leader is no voter of its configuration */
#ifdef OUTSIDER
#define ISVOTER(r) true
#else
#define ISVOTER(r) ((SET(R[r].config)>>(r))&1)
#endif
#ifdef TOLD_LEADING
#define TELLS(r) (R[r].ready!=0 && R[r].role==LEADER && R[r].term==R[r].ready)
#else
#define TELLS(r) (R[r].ready!=0 && ISVOTER(r))
#endif

#ifdef BOUNDED
/* what the client knows: the replica whose memory is READ, + 1, and in which life; what was acknowledged when the last look began */
byte reads, life, since;

proctype looker() {
  byte T, C, I, L, need, seen, have, n, was;
learn:
  atomic { have=0; seen=0; n=0; was=0;
    if :: TELLS(0) -> L=0 :: TELLS(1) -> L=1 :: TELLS(2) -> L=2 fi;
    T=R[L].ready; C=R[L].config; I=R[L].inc; need=OTHERS; have=OWN };
  if	/* another replica, or the same one again */
#ifndef LOOK_FIRST
  :: atomic { reads=0 }
#endif
  :: skip
  fi;
  atomic { was=acked };
  do
  :: atomic { !(have&2) -> if :: SAMELIFE -> have=have|2; n=R[L].published :: else -> goto learn fi }
  :: atomic { !(have&4) -> if :: R[L].word==T && SAMECONFIG && SAMELIFE -> have=have|4 :: else -> goto learn fi }
  :: OTHER(0)
  :: OTHER(1)
  :: OTHER(2)
  :: have>=6 && need==0 -> break
  :: have<6 || need>0 -> goto learn	/* it is given up */
  od;
#ifdef UNSEEN	/* R27 */
#define SHOWS(r) true
#else
#define SHOWS(r) (R[r].published>=n)
#endif
#ifdef LOOK_FIRST	/* R28 */
#define MAYREAD(r) true
#else
#define MAYREAD(r) (reads==0 || (reads==(r)+1 && R[r].inc==life))
#endif
  if
  :: atomic { SHOWS(0) && MAYREAD(0) -> reads=1; life=R[0].inc; since=was }
  :: atomic { SHOWS(1) && MAYREAD(1) -> reads=2; life=R[1].inc; since=was }
  :: atomic { SHOWS(2) && MAYREAD(2) -> reads=3; life=R[2].inc; since=was }
  :: skip	/* it is given up */
  fi;
  goto learn
}

proctype getter() {
  byte at, in, value, least;
get:
  atomic { reads>0 -> at=reads; in=life; value=0; least=since; if :: shown>least -> least=shown :: else fi };
  if
  :: atomic { R[at-1].inc==in && R[at-1].value!=WITHHELD -> value=R[at-1].value }
  :: atomic { R[at-1].inc!=in || R[at-1].value==WITHHELD -> at=0; goto get }
  fi;
  atomic {
    if
#ifndef LATE_ANSWER	/* R28 */
    :: reads!=at || life!=in -> skip
    :: else ->
#else
    :: true ->
#endif
       assert(value>=least); if :: value>shown -> shown=value :: else fi
    fi; at=0; in=0; value=0; least=0 };
  goto get
}
#endif

#ifdef SHARED
/* READs of replica me's word: one is posted, samples the word, and is followed until
 * another one is; it may be posted for a get that this model does not follow */
byte came[N], young;	/* what was sampled, + 1; posted since the get began */
proctype reader(byte me) {
end: do
  :: atomic { came[me]!=0 || !(young&BIT(me)) -> came[me]=0; young=young|BIT(me) }
  :: atomic { came[me]==0 -> came[me]=R[me].word+1 }
  od
}
#endif

proctype client() {
  byte T, C, I, L;		/* the header: term, configuration, incarnation, leader */
  byte floor, value, need, seen, have;	/* have: bit 0 the header, 1 the item, 2 the leader's cell */
#ifdef KEEP_WORDS
  bit again;
#define AGAIN again=0;
#else
#define AGAIN
#endif
learn:
#ifdef READS
  atomic { TELLS(READS) -> AGAIN have=0; value=0; seen=0; need=0; floor=0; L=READS;
#else
  atomic { AGAIN have=0; value=0; seen=0; need=0; floor=0;
#ifdef LATE_HEADER
    if :: L=0 :: L=1 :: L=2 fi;
#else
    if :: TELLS(0) -> L=0 :: TELLS(1) -> L=1 :: TELLS(2) -> L=2
#if N>3
       :: TELLS(3) -> L=3
#endif
    fi;
#endif
#endif
#ifdef LATE_HEADER
    if :: T=1 :: T=2 fi; C=0; I=R[L].inc };
#else
    T=R[L].ready; C=R[L].config; I=R[L].inc };
#endif
get:
  atomic { INTERESTING -> BEGUN value=0; seen=0; need=OTHERS; have=OWN;
#ifdef KEEP_WORDS	/* R13 */
    if :: again -> need=0; have=4 :: else fi; again=0;
#endif
#ifndef LATE_HEADER
    have=have|1;
#endif
    if :: acked>shown -> floor=acked :: else -> floor=shown fi };
  do
#ifdef LATE_HEADER
  :: atomic { !(have&1) -> if :: R[L].ready==T && SAMELIFE -> have=have|1 :: else -> goto learn fi }
#endif
  :: atomic { !(have&2) -> if :: SAMELIFE && R[L].value!=WITHHELD -> have=have|2; value=R[L].value :: else -> goto learn fi }
  :: atomic { !(have&4) && NOW -> if :: R[L].word==T && SAMECONFIG && SAMELIFE -> have=have|4 :: else -> goto learn fi }
  :: OTHER(0)
  :: OTHER(1)
  :: OTHER(2)
#if N>3
  :: OTHER(3)
#endif
  :: have==7 && need==0 -> break
  :: have!=7 || need>0 -> goto learn	/* it is given up */
  od;
  atomic { assert(value>=floor); if :: value>shown -> shown=value :: else fi; value=0; seen=0; have=0 };
#ifdef KEEP_WORDS
  again=1;
#endif
  if :: goto get :: goto learn fi
}

init { byte i;
  atomic {
    do :: i<N ->
       R[i].term=1; R[i].word=1;
#ifdef EMPTY
       if :: (C0>>i)&1 ->
#endif
       R[i].last=1; R[i].log[1]=4*1+BASE; R[i].commit=1; R[i].applied=1; R[i].value=1;
#if MAXR>0
       R[i].dcommit=1;
#endif
#ifdef EMPTY
          :: else fi;
#endif
       i++
    :: else -> break od;
#ifndef COLD
    R[0].role=LEADER; R[0].ready=1; R[0].voted=1; R[1].voted=1; R[0].match[0]=1; R[0].marker=1;
#endif
    acked=1;
#ifdef BOUNDED
    i=0; do :: i<N -> R[i].published=R[i].value; i++ :: else -> break od;
#endif
    i=0; do :: i<N -> run replica(i); i++ :: else -> break od; i=0;
#ifdef BOUNDED
    run looker(); run getter() }
#else
#ifdef SHARED
    do :: i<N -> run reader(i); i++ :: else -> break od; i=0;
#endif
    run client() }
#endif
}

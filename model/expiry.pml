/* expiry.pml - keys that expire, and a list of them that is as old as the
 * last checkpoint.
 *
 * Two keys. A record of the log is a put (or a touch: the same here) with an
 * expiry in seconds or without, a delete, or a removal by the expirer. It says
 * what becomes of the key, and which entry of the list of expiries it takes
 * away (unlist); a key's entry is (second, key). Records are ordered and
 * published. A checkpoint takes published records into the base, and only it
 * changes the list, which stands in the base. The expirer looks at the list
 * when nextDue is over; a pass finds one entry at most (the code: a few
 * hundred), and runs a removal, which is judged in the order like any write.
 *
 * A crash keeps a prefix of the log that has what is published (ALWAYS), or at
 * least what is in the base (sync off).
 *
 * Correct: a key whose time is over is removed in the end. That is: when the
 * expirer and the checkpointer rest and nextDue says that nothing is due, no
 * key of which the base has the newest state is expired, and no entry of the
 * list is due; and a pass that finds nothing to remove has left nothing. No key
 * that lives is removed. The list is exactly that of the keys in the base.
 *
 * Rules that can be taken out:
 *   AT_PUBLISH   nextDue is lowered when the record is published, and only then
 *   LOWER_FIRST  it is lowered before the base has the entry
 *   START_NEVER  a start does not look at the list it finds
 *   FOUND_LAST   what a pass leaves is noted by overwriting nextDue
 *   USER_KEY     a checkpoint takes the newest record of each user key, not
 *                the newest of each entry
 *   UNLIST_LAST  entries that are taken away go after those that are added
 *   NO_UNLIST    a record does not take away the entry of the state before it
 *   NO_JUDGE     a removal is not judged: the entry is believed
 *   JUDGE_BASE   it is judged on what the base has
 *   COUNT_DONE   an entry whose key has another state since counts as found
 */
#ifndef MAXW
#define MAXW 3                  /* records of clients */
#endif
#ifndef MAXT
#define MAXT 2                  /* seconds */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef SEG
#define SEG 1                   /* a checkpoint waits for so many records */
#endif
#define N (2*MAXW+1)            /* records in all: a removal needs a put */
#define ABSENT 0                /* states of a key: absent, its second, or */
#define STAYS 8                 /* there without expiry */
#define NEVER 9
#define E(s, k) (2*(s)+(k))     /* entries in the order of the list */

byte key[N], state[N], unlist[N]; /* the log: record i, counted from 1 */
byte written, published, clients;
byte base[2], position;         /* the base: a key's state */
bit  list[2*MAXT+2];            /* and its list of expiries */
byte cur[2];                    /* the ordered state of a key */
byte now, nextDue = NEVER;
byte life;
bit  looking, lowering;         /* a pass is under way; the base is ahead of nextDue */

#define EXPIRES(s) (s!=ABSENT && s!=STAYS)
#define OVER(s) (EXPIRES(s) && s<=now)
inline lower(s) { if :: s<nextDue -> nextDue=s :: else fi }

/* One write: key k becomes s. */
inline append(k, s) {
  written++; key[written]=k; state[written]=s;
#ifndef NO_UNLIST
  if :: EXPIRES(cur[k]) && cur[k]!=s -> unlist[written]=cur[k] :: else fi;
#endif
  cur[k]=s
}

/* A put, a touch or a delete; what is told apart by nothing else is left out. */
active proctype server() {
  byte k, s;
end: do
  :: atomic { clients<MAXW ->
       if
       :: now<MAXT -> if :: k=0 :: k=1 fi; s=now+1; do :: s<MAXT -> s++ :: break od
       :: s=STAYS
       :: cur[0]!=ABSENT -> s=ABSENT
       fi;
       clients++; append(k, s); k=0; s=0 }
  :: atomic { published<written -> published++;
#ifdef AT_PUBLISH
       if :: EXPIRES(state[published]) -> lower(state[published]) :: else fi
#endif
     }
  :: now<MAXT -> now++
  od
}

active proctype checkpointer() {
  byte to, i, me, first;
end: do
  :: atomic { position+SEG<=published -> me=life;
       to=position+SEG; do :: to<published -> to++ :: break od;
       first=NEVER; i=position+1; /* the earliest second that it adds */
       do
       :: i<=to -> if :: EXPIRES(state[i]) && state[i]<first -> first=state[i] :: else fi; i++
       :: else -> break
       od; i=0;
#ifdef LOWER_FIRST
       lower(first)
#endif
     };
     /* the ingest: newest per entry, which is the order of the log */
     atomic { if
       :: me==life -> i=position+1;
          do
          :: i<=to -> base[key[i]]=state[i];
#ifdef USER_KEY
             if
             :: key[i]==key[to] && i<to -> goto next
             :: i+1<to && key[i]==key[i+1] -> goto next
             :: else
             fi;
#endif
             if :: EXPIRES(state[i]) -> list[E(state[i], key[i])]=1 :: else fi;
#ifndef UNLIST_LAST
             if :: unlist[i]!=0 -> list[E(unlist[i], key[i])]=0 :: else fi;
#endif
next:        i++
          :: else -> break
          od;
#ifdef UNLIST_LAST
          i=position+1;
          do
          :: i<=to -> if :: unlist[i]!=0 -> list[E(unlist[i], key[i])]=0 :: else fi; i++
          :: else -> break
          od;
#endif
          i=0; position=to; lowering=1
       :: else fi };
     atomic { if
       :: me==life -> lowering=0;
#if !defined(AT_PUBLISH) && !defined(LOWER_FIRST)
          lower(first)
#endif
       :: else fi; to=0; me=0; first=0 }
  od
}

/* A pass: takes nextDue, looks at the list, notes what it leaves, removes. */
active proctype expirer() {
  byte e, found, next, t, me;
  bit judged;
end: do
  :: atomic { nextDue<=now -> nextDue=NEVER; me=life; t=now; looking=1 };
     atomic { if
       :: me==life -> next=NEVER; found=0; e=E(1, 0);
          do
          :: e<=E(MAXT, 1) -> if
             :: list[e] && (e/2>t || found!=0) -> next=e/2; break
#ifdef COUNT_DONE
             :: list[e] && e/2<=t && found==0 -> found=e
#else
             :: list[e] && e/2<=t && found==0 -> if :: cur[e%2]==e/2 -> found=e :: else fi
#endif
             :: else fi; e++
          :: else -> break
          od; e=0;
       :: else fi };
     /* what it leaves; then the removal, which may fail or wait */
     atomic { if
       :: me==life ->
#ifdef FOUND_LAST
          nextDue=next
#else
          lower(next)
#endif
       :: else fi };
     atomic { if
       :: me==life && found!=0 ->
#ifdef NO_JUDGE
          judged=1;
#elif defined(JUDGE_BASE)
          judged=(base[found%2]==found/2);
#else
          judged=(cur[found%2]==found/2);
#endif
          if
          :: judged -> assert(OVER(cur[found%2]));
             if
             :: append(found%2, ABSENT)
#ifndef NO_FAIL
             :: lower(found/2)  /* it failed: look again */
#endif
             fi
          :: else               /* a write came between: its record unlists */
          fi
       :: else fi;
       if :: me==life -> looking=0 :: else fi;
       found=0; next=0; t=0; me=0; judged=0 }
  od
}

active proctype crash() {
  byte i;
  do
  :: life<CRASHES -> atomic { life++;
#ifdef ALWAYS
       i=published;
#else
       i=position;
#endif
       do :: i<written -> i++ :: break od;
       do
       :: written>i -> key[written]=0; state[written]=0; unlist[written]=0; written--
       :: else -> break
       od;
       published=written; looking=0; lowering=0;
       cur[0]=base[0]; cur[1]=base[1]; i=position+1;
       do :: i<=written -> cur[key[i]]=state[i]; i++ :: else -> break od; i=0;
#ifdef START_NEVER
       nextDue=NEVER
#else
       nextDue=0
#endif
     }
  :: break
  od
}

/* What must hold whenever it looks. */
active proctype auditor() {
  byte e;
  atomic { !looking && !lowering && nextDue>now ->
    assert(!OVER(base[0]) || cur[0]!=base[0]);
    assert(!OVER(base[1]) || cur[1]!=base[1]);
    e=E(1, 0);
    do
    :: e<=E(MAXT, 1) ->
       assert(!list[e] || base[e%2]==e/2);       /* the list is exact */
       assert(base[e%2]!=e/2 || list[e]); e++
    :: else -> break
    od }
}

/* parts.pml - a value in parts: uploads, heads, what is removed and when, crashes.
 *
 * One key of the user. An upload has a record and P parts, each under a key of its own, and in
 * the end its head is put under the user's key. The server judges each put when it comes (what the
 * registry knows of the upload decides whether it is let pass), and publishes it at any later
 * moment, in any order. Others put a small value or delete the key at any time. What is published
 * is told to the registry in the same step. Clients may stop anywhere, or give up. A
 * crash loses the registry, and of what was let pass it publishes some. The next life looks for
 * records and parts one after the other, and judges no upload before it is through.
 *
 * Time is left out: an upload may count as idle at any moment, a minute may be over at once.
 *
 * Correct: whenever the head of an upload is the key's value, all its parts are there; when
 * everything has come to rest, records and parts are there of that upload alone.
 *
 * Rules that can be taken out:
 *   UNCHECKED      a head is let pass though parts are missing
 *   UNREAD         a head is let pass without a look whether the store has the parts, of which
 *                  the registry knows nothing after a start
 *   NO_HEADS       an upload goes while a head of it that was let pass is on its way
 *   HEADS_STAY     a head that was let pass, and refused by what the store has, counts for ever
 *   NO_STRAYS      a part that is published when its upload is gone is not noted
 *   NO_STRAY_RECS  nor is a record
 *   NO_LOOK        a start looks for records alone, and for no parts without one
 *   SETTLE_BLIND   what the look has read of the key counts, whatever was published since
 *   NOT_REPLACED   nobody notes that a small value has replaced a head
 *   HEAD_REPLACES  nobody notes that a head has replaced another one
 */
#ifndef U
#define U 2                     /* uploads, counted from 1 */
#endif
#ifndef P
#define P 2                     /* parts of each */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef SMALL
#define SMALL 1                 /* puts of small values and deletes */
#endif
#define SIZE ((U+1)*P)
#define AT(u, p) ((u)*P+(p))    /* p counts from 0 */
#define NIL 0                   /* the registry does not know it */
#define OPEN 1
#define FOUND 2
#define LIVE 3
#define DYING 4
#define GOING 5

/* the store */
byte value;                     /* whose head the key has; 0: another value, or none */
bit rec[U+1], part[SIZE];
/* let pass, not published */
bit recOn[U+1], partOn[SIZE], headOn[U+1];
/* the registry */
byte state[U+1], heads[U+1];
bit ready[U+1], early[U+1], expected[SIZE], published[SIZE];
bit strayRec[U+1], strayPart[SIZE];
bit looked = 1;
/* what clients were told */
bit hasRec[U+1], hasPart[SIZE], hasHead[U+1], stopped[U+1];
byte lives, small;
bit rounds;                     /* the look of this life has begun */

#define WHOLE(u) (part[AT(u,0)] && part[AT(u,P-1)])     /* P is 1 or 2 */
#ifdef UNCHECKED
#define PASSES(u) true
#else
#define PASSES(u) (early[u] || published[AT(u,0)] && published[AT(u,P-1)])
#endif
#ifdef NO_HEADS
#define NO_HEAD_OF(u) true
#else
#define NO_HEAD_OF(u) (heads[u]==0)
#endif
#define SAFE assert(value==0 || WHOLE(value))
#define MAY_PUT(u, i) (!stopped[u] && hasRec[u] && state[u]==OPEN && ready[u] && !hasPart[i] && !partOn[i])

/* The key has another value: v is 0 or a head. */
inline note(v, w) {
  value=v; w=1;
  do
  :: w<=U ->
     if
     :: w==v && state[w]!=GOING && state[w]!=NIL ->
        state[w]=LIVE; if :: heads[w]>0 -> heads[w]-- :: else fi
     :: w!=v && (state[w]==LIVE || state[w]==FOUND) ->
#ifdef NOT_REPLACED
        if :: v!=0 -> state[w]=DYING :: else fi
#elif defined(HEAD_REPLACES)
        if :: v==0 -> state[w]=DYING :: else fi
#else
        state[w]=DYING
#endif
     :: else
     fi;
     w++
  :: else -> break
  od;
  w=0; SAFE
}

inline publishRec(u) {
  recOn[u]=0; rec[u]=1; hasRec[u]=1;
  if
#ifndef NO_STRAY_RECS
  :: state[u]==GOING || state[u]==NIL && looked -> strayRec[u]=1
#endif
  :: state[u]!=NIL && state[u]!=GOING -> ready[u]=1
  :: else
  fi
}
inline publishPart(u, i) {
  partOn[i]=0; part[i]=1; hasPart[i]=1;
  if
#ifndef NO_STRAYS
  :: state[u]==GOING || state[u]==NIL && looked -> strayPart[i]=1
#endif
  :: state[u]!=NIL && state[u]!=GOING && expected[i] -> published[i]=1
  :: else
  fi
}

/* A client, one for each upload. It sends again what it got no answer for. It may be hostile: it
 * asks for a head whatever it has been told. */
proctype client(byte u) {
  byte me;
end: do
  :: atomic { !stopped[u] && !hasRec[u] && !recOn[u] && looked && state[u]==NIL ->
       state[u]=OPEN; ready[u]=0; early[u]=0; recOn[u]=1 }
  :: atomic { !stopped[u] && !hasRec[u] && !recOn[u] && (state[u]==OPEN || state[u]==FOUND) -> recOn[u]=1 }
  :: atomic { MAY_PUT(u, AT(u,0)) -> expected[AT(u,0)]=1; partOn[AT(u,0)]=1 }
#if P>1
  :: atomic { MAY_PUT(u, AT(u,1)) -> expected[AT(u,1)]=1; partOn[AT(u,1)]=1 }
#endif
  :: atomic { !stopped[u] && !hasHead[u] && !headOn[u] && state[u]==OPEN && PASSES(u) -> heads[u]++; me=lives };
     atomic { if               /* does the store have the parts? */
       :: me!=lives
#if defined(UNREAD) || defined(UNCHECKED)
       :: me==lives -> headOn[u]=1
#else
       :: me==lives && WHOLE(u) -> headOn[u]=1
       :: me==lives && !WHOLE(u) ->
#ifndef HEADS_STAY
          if :: heads[u]>0 -> heads[u]-- :: else fi;
#endif
          stopped[u]=1
#endif
       fi; me=0 }
  :: atomic { !stopped[u] && state[u]==OPEN && !hasHead[u] && !headOn[u] && heads[u]==0 ->
       stopped[u]=1; state[u]=DYING }     /* it gives up */
  :: atomic { !stopped[u] -> stopped[u]=1 }
  od
}

proctype publisher(byte u) {
  byte w;
end: do
  :: atomic { recOn[u] -> publishRec(u) }
  :: atomic { partOn[AT(u,0)] -> publishPart(u, AT(u,0)) }
#if P>1
  :: atomic { partOn[AT(u,1)] -> publishPart(u, AT(u,1)) }
#endif
  :: atomic { headOn[u] -> headOn[u]=0; hasHead[u]=1; note(u, w) }
  od
}

active proctype others() {
  byte w;
  do
  :: atomic { small<SMALL -> small++; note(0, w) }
  :: break
  od
}

/* Removes what nobody needs. */
proctype collector(byte u) {
  byte me;
end: do
  :: atomic { looked && strayRec[u] -> strayRec[u]=0; rec[u]=0 }
  :: atomic { looked && strayPart[AT(u,0)] -> strayPart[AT(u,0)]=0; part[AT(u,0)]=0; SAFE }
#if P>1
  :: atomic { looked && strayPart[AT(u,1)] -> strayPart[AT(u,1)]=0; part[AT(u,1)]=0; SAFE }
#endif
  :: atomic { looked && (state[u]==DYING || state[u]==OPEN) && NO_HEAD_OF(u) -> state[u]=GOING; me=lives;
       expected[AT(u,0)]=0; expected[AT(u,P-1)]=0; published[AT(u,0)]=0; published[AT(u,P-1)]=0 };
#if P>1
     atomic { if :: me==lives -> part[AT(u,1)]=0; SAFE :: else fi };
#endif
     atomic { if :: me==lives -> part[AT(u,0)]=0; SAFE :: else fi };
     atomic { if :: me==lives -> rec[u]=0 :: else fi };
     atomic { if :: me==lives -> state[u]=NIL; ready[u]=0; early[u]=0; heads[u]=0 :: else fi; me=0 }
  od
}

/* The look of a start. */
active proctype look() {
  byte u, v, me;
end: do
  :: atomic { !looked && rounds==0 -> rounds=1; me=lives; u=1 };
     do
     :: u<=U && me==lives ->
        atomic { if :: me==lives && rec[u] && state[u]==NIL -> state[u]=FOUND; ready[u]=1; early[u]=1 :: else fi };
        atomic { if :: me==lives && state[u]==FOUND -> v=value :: else fi };
        atomic { if
#ifdef SETTLE_BLIND
          :: me==lives && state[u]!=NIL && early[u] ->
#else
          :: me==lives && state[u]==FOUND ->
#endif
             if :: v==u -> state[u]=LIVE :: else -> state[u]=OPEN fi
          :: else
          fi; v=0 };
#ifndef NO_LOOK
        atomic { if :: me==lives && part[AT(u,0)] && state[u]==NIL -> strayPart[AT(u,0)]=1 :: else fi };
#if P>1
        atomic { if :: me==lives && part[AT(u,1)] && state[u]==NIL -> strayPart[AT(u,1)]=1 :: else fi };
#endif
#endif
        u++
     :: else -> break
     od;
     atomic { if :: me==lives -> looked=1 :: else fi; u=0; me=0 }
  od
}

/* What was let pass is published, or not. */
inline fate(u, i) {
  if :: recOn[u] -> rec[u]=1; hasRec[u]=1 :: skip fi;
  i=AT(u,0);
  if :: partOn[i] -> part[i]=1 :: skip fi; partOn[i]=0; expected[i]=0; published[i]=0; strayPart[i]=0;
  i=AT(u,P-1);
  if :: partOn[i] -> part[i]=1 :: skip fi; partOn[i]=0; expected[i]=0; published[i]=0; strayPart[i]=0;
  if :: headOn[u] -> value=u; hasHead[u]=1 :: skip fi;
  recOn[u]=0; headOn[u]=0; state[u]=NIL; ready[u]=0; early[u]=0; heads[u]=0; strayRec[u]=0; i=0
}

active proctype crash() {
  byte i;
  do
  :: lives<CRASHES -> atomic { lives++; looked=0; rounds=0;
       fate(1, i);
#if U>1
       fate(2, i);
#endif
       SAFE }
  :: break
  od
}

/* Everything has come to rest. */
active proctype judge() {
  byte u;
  timeout -> atomic { u=1;
    do
    :: u<=U -> assert(looked && !headOn[u]);
       if
       :: value==u -> assert(rec[u] && state[u]==LIVE)
       :: else -> assert(!rec[u] && !part[AT(u,0)] && !part[AT(u,P-1)])
       fi;
       u++
    :: else -> break
    od }
}

init {
  atomic {
    run client(1); run publisher(1); run collector(1);
#if U>1
    run client(2); run publisher(2); run collector(2)
#endif
  }
}

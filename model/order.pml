/* order.pml - what the server says: ordered, durable, published; conditions;
 * retries; a crash at any moment.
 *
 * One key of one shard. Its value is a number; a write adds one to it, and is
 * ordered, made durable and published in three steps, several in flight. The
 * database shows a write as soon as it is ordered; a crash takes back what is
 * not durable. Clients send increments, each with an identity, puts on the
 * condition that the key is absent, and gets by SEND; and somebody reads the
 * memory, where what is published stands. Whatever anybody was told or has
 * read must stand for ever after.
 *
 * Rules that can be taken out:
 *   JUDGE_PUBLISHED  a write is judged on what is published
 *   REFUSE_NOW       a refusal does not wait for what it reflects
 *   SEND_NOW         a get by SEND answers what the database has
 *   NOTE_FIRST       it notes what is ordered before it reads the database
 *   PUBLISH_EARLY    a write is published before it is durable
 *   ACK_EARLY        it is acknowledged before it is published
 *   NO_RECORD        the identity of a write is not kept
 *   RECORD_APART     it is kept by a commit of its own, after the write's
 *   RETRY_NOW        a retry of a write in flight is answered at once
 */
#ifndef MAXW
#define MAXW 3
#endif
byte ordered, durable, published; /* numbers of writes */
byte val[MAXW+1];               /* the key's number after each write; 0: absent */
byte who[MAXW+1];               /* the client that wrote: 1, 2; 0: the other */
byte told;                      /* the newest write that anybody was told of or has read */
byte recorded;                  /* RECORD_APART: identities durable up to here */
bit  done[3];                   /* client's increment was acknowledged */
byte life;                      /* the server's incarnation */

#ifdef JUDGE_PUBLISHED
#define STATE published
#else
#define STATE ordered
#endif
inline say(n) { assert(n<=durable); if :: n>told -> told=n :: else fi }

proctype server() {
end: do
  :: durable<ordered -> durable++
  :: atomic { published<ordered &&
#ifndef PUBLISH_EARLY
       published<durable &&
#endif
       true -> published++ }
#ifdef RECORD_APART
  :: atomic { recorded<durable -> recorded++ }
#endif
  :: atomic { life<2 -> life++;         /* killed and started again */
       do :: ordered>durable -> val[ordered]=0; who[ordered]=0; ordered-- :: else -> break od;
       published=durable;
#ifdef RECORD_APART
       if :: recorded<durable -> who[durable]=0 :: else fi; recorded=durable;
#endif
       assert(told<=durable) }
  od
}

/* An increment, sent again after every lost reply until it is acknowledged. */
proctype client(byte me) {
  byte n, i, at;
send:
  atomic { at=life;
#ifndef NO_RECORD
    n=0; i=1; do :: i<=ordered -> if :: who[i]==me -> n=i :: else fi; i++ :: else -> break od; i=0;
    if
    :: n>0 ->
#ifdef RETRY_NOW
       goto answer
#else
       goto wait
#endif
    :: else
    fi;
#endif
    if :: ordered==MAXW -> goto out :: else fi;
    n=ordered+1; val[n]=val[STATE]+1; who[n]=me; ordered++ };
wait:
  atomic { if
#ifdef ACK_EARLY
  :: at==life && durable>=n
#else
  :: at==life && published>=n
#endif
  :: true -> n=0; goto send     /* the connection is lost, or the server */
  fi };
answer:
  atomic { if
  :: say(n);
     assert(published>=n || at!=life); /* else a reader still sees the older one */
     done[me]=1
  :: true -> n=0; if :: life<2 || me==1 -> goto send :: else -> goto out fi /* the reply is lost */
  fi };
out: skip
}

/* A put if absent: refused if the key is there. */
proctype other() {
  byte n, at;
  do
  :: atomic { val[STATE]>0 -> n=STATE; at=life };
     atomic { if
#ifndef REFUSE_NOW
     :: at==life && published>=n -> say(n)
#else
     :: at==life -> say(n)
#endif
     :: at!=life
     fi; n=0; at=0 }
  :: atomic { val[STATE]==0 && ordered<MAXW -> ordered++; val[ordered]=1; who[ordered]=0;
       assert(val[ordered-1]==0); break } /* it was absent before */
  od
}

/* Gets by SEND of a key that is not in memory, and readers of the memory. */
proctype reader() {
  byte lo, n, v, at;
  do
  :: atomic { lo=told; say(published); assert(published>=lo); lo=0 } /* one-sided */
  :: atomic { lo=told; at=life };
#ifdef NOTE_FIRST
     n=ordered;
     v=ordered;
#else
     v=ordered;                 /* what the database shows ... */
     n=ordered;                 /* ... was ordered when this is noted */
#endif
     atomic { if
#ifdef SEND_NOW
     :: at==life -> assert(v>=lo); say(v)
#else
     :: at==life && published>=n -> assert(v>=lo); say(v)
#endif
     :: at!=life
     fi; lo=0; n=0; v=0; at=0 }
  od
}

/* Whenever all is quiet: each increment counted once. */
proctype auditor() {
  byte i, c1, c2;
  atomic { durable==ordered && published==ordered ->
    i=1; do :: i<=ordered ->
      if :: who[i]==1 -> c1++ :: who[i]==2 -> c2++ :: else fi;
      assert(val[i]==val[i-1]+1); i++ :: else -> break od;
    assert(c1<=1 && c2<=1 && c1>=done[1] && c2>=done[2]) }
}

init { atomic { run server(); run client(1); run client(2); run other(); run reader(); run auditor() } }

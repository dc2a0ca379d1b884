/* tail.pml - the end of the log over crashes of the machine.
 *
 * B blocks of a log that were used before. A frame is one or two blocks; each
 * block says of which frame it is, its number in it, how many blocks the frame
 * has, the life that wrote it, and up to which position all was durable when
 * the frame was made. Up to WINDOW writes of frames are under way; after a crash
 * each block of a write that was under way is there or not, for itself. A frame
 * is acknowledged when it and all frames before it are done.
 *
 * A start reads frames from the first block, and cuts where one does not
 * verify. A life begins a segment, whose header says where the life before it was
 * cut; so the header of a segment says which life owns a position (owner). Here
 * the next life's segment is the blocks behind the cut, so that it meets the
 * bytes which were written there before, as in a segment that is used again.
 *
 * Correct: what a start reads are all acknowledged frames, whole, in order, and
 * no frame that an earlier start has cut. What does not verify is damage if a
 * block of this life behind it says that it was durable, and only then: a cut
 * that a crash explains is never called damage.
 * ROT: once, a durable block goes bad. That may pass for the end only in the
 * last WINDOW frames, where nothing behind can know that it was durable.
 *
 * Rules that can be taken out:
 *   NO_LIFE    blocks behind the cut that an earlier life wrote are read as new
 *   NO_FRAME   a block is good for itself, not only as part of its whole frame
 *   ACK_ANY    a frame is acknowledged when it is done, whatever is before it
 *   NO_DURABLE frames do not say what was durable: what does not verify is the end
 *   AHEAD      frames are written however far ahead of one that is not done
 *   HOLE       what verifies behind a hole proves damage
 */
#ifndef B
#define B 4
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#define M (B+1)
#define BAD 9                   /* number of a block that went bad */
#define MAXG 8                  /* frames in all */
#define LIVES 3

byte g[M], n[M], q[M], lf[M], sy[M]; /* on disk: frame, its blocks, number in it, life, durable */
byte ng[M], nn[M], nq[M], nl[M], ns[M]; /* the same of a write under way, where pend */
bit  pend[M];
byte owner[M];                  /* the life that owns a position */
byte last;                      /* last position given out */
byte durable;                   /* the durable position: all up to here is done */
bit  acked[MAXG+1], dead[MAXG+1]; /* of a frame; dead: a start has cut it */
byte top[MAXG+1], size[MAXG+1]; /* its last block, its number of blocks */
byte gid, flying;               /* newest frame; writes under way */
byte life = 1;
byte rot;                       /* the block that went bad */

#ifdef NO_LIFE
#define LIFE(i) true
#else
#define LIFE(i) (lf[i]==owner[i] && lf[i]!=0)
#endif
#ifdef NO_FRAME
#define WHOLE(i) (x!=0 && q[i]!=BAD)
#define STEP(i) 1
#else
#define WHOLE(i) (x!=0 && q[i]==1 && t+n[i]<=B && (n[i]==1 || (g[i+1]==x && q[i+1]==2)))
#define STEP(i) n[i]
#endif
#ifdef HOLE
#define PROVES(i) (q[i]==1)
#elif defined(NO_DURABLE)
#define PROVES(i) false
#else
#define PROVES(i) (sy[i]>t)
#endif
/* The oldest frame that is not done is one of the last WINDOW. */
#ifdef AHEAD
#define NEAR true
#else
#define NEAR (gid<WINDOW || dead[gid+1-WINDOW] || top[gid+1-WINDOW]<=durable)
#endif

inline land(i) { g[i]=ng[i]; n[i]=nn[i]; q[i]=nq[i]; lf[i]=nl[i]; sy[i]=ns[i] }

active proctype writer() {
  byte i, k;
end: do
  :: atomic { flying<WINDOW && last<B && gid<MAXG && NEAR ->
       gid++; if :: k=1 :: last+2<=B -> k=2 fi;
       i=1;
       do
       :: i<=k -> ng[last+i]=gid; nn[last+i]=k; nq[last+i]=i; nl[last+i]=life; ns[last+i]=durable;
          pend[last+i]=1; owner[last+i]=life; i++
       :: else -> break
       od;
       last=last+k; top[gid]=last; size[gid]=k; flying++; i=0; k=0 }
  od
}

/* One of the writes under way is done, any of them. */
active proctype disk() {
  byte i, x;
end: do
  :: atomic { flying>0 -> i=1; x=0;
       do :: i<=B -> if :: pend[i] && x==0 -> if :: x=ng[i] :: skip fi :: else fi; i++ :: else -> break od;
       if :: x==0 -> i=1; do :: i<=B && !pend[i] -> i++ :: else -> break od; x=ng[i] :: else fi;
       i=1;
       do :: i<=B -> if :: pend[i] && ng[i]==x -> land(i); pend[i]=0 :: else fi; i++ :: else -> break od;
       flying--;
       i=durable+1; do :: i<=last && !pend[i] -> i++ :: else -> break od; durable=i-1;
#ifdef ACK_ANY
       acked[x]=1;
#else
       i=1;
       do :: i<=gid -> if :: !dead[i] && top[i]<=durable -> acked[i]=1 :: else fi; i++ :: else -> break od;
#endif
       i=0; x=0 }
  od
}

/* The power goes, and comes back: t is where the start cuts. */
active proctype crash() {
  byte i, t, x, newest;
  bit damage;
  do
  :: life<LIVES -> atomic {
       i=1;
       do :: i<=B -> if :: pend[i] -> if :: land(i) :: skip fi; pend[i]=0 :: else fi; i++ :: else -> break od;
       flying=0;
#ifdef ROT
       if
       :: rot==0 && durable>0 -> i=1;
          do :: i<durable -> i++ :: break od; rot=i; lf[i]=0; q[i]=BAD
       :: skip
       fi;
#endif
       t=0;                     /* read */
       do
       :: t<B -> i=t+1; x=g[i]; if :: WHOLE(i) && LIFE(i) -> t=t+STEP(i) :: else -> break fi
       :: else -> break
       od;
       damage=0; i=t+1;         /* look at what stands behind */
       do
       :: i<=B -> if
          :: g[i]!=0 && q[i]!=BAD && lf[i]==owner[i] && lf[i]!=0 && i<=last && PROVES(i) -> damage=1
          :: else fi; i++
       :: else -> break
       od;
       if :: damage -> assert(rot!=0); break :: else fi; /* no false alarm; the start refuses */
       newest=0; i=1;
       do :: i<=gid -> if :: acked[i] && !dead[i] -> newest=i :: else fi; i++ :: else -> break od;
       i=1;
       do
       :: i<=gid -> if
          :: dead[i] -> x=1; do :: x<=t -> assert(g[x]!=i); x++ :: else -> break od
          :: else -> if
             :: top[i]<=t -> assert(g[top[i]]==i); if :: size[i]==2 -> assert(g[top[i]-1]==i) :: else fi
             :: else -> assert(!acked[i] || (rot!=0 && i+WINDOW>newest)); dead[i]=1
             fi
          fi; i++
       :: else -> break
       od;
       i=1;                     /* nothing half */
       do
       :: i<=t -> if
          :: n[i]==2 && q[i]==1 -> assert(i+1<=t && g[i+1]==g[i])
          :: n[i]==2 && q[i]==2 -> assert(g[i-1]==g[i])
          :: else fi; i++
       :: else -> break
       od;
       if :: rot!=0 -> break :: else fi;
       last=t; durable=t; life++; i=t+1; do :: i<=B -> owner[i]=life; i++ :: else -> break od;
       i=0; t=0; x=0; newest=0 }
  :: break
  od
}

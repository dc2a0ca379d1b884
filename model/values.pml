/* values.pml - large values in tables of values: bytes before the record, checkpoints
 * that take whole tables, what nothing leads to any more, files that go, crashes.
 *
 * One key of the user. A put writes its bytes to the open table of values, as value k
 * of a number that none had before; then they are synced; then a record that leads to
 * k is appended to the log, and published. A delete is a record that leads nowhere. A
 * checkpoint reads the log up to what is published, ends the tables that were begun,
 * and by one ingest the base gets the newest record of the range, all tables that are
 * whole, and the mark: the newest value to which a record of the base leads or led, and
 * the values in the base to which none leads any more (dead), which a later checkpoint
 * deletes. A table's file goes when the base has the table, every value in it has its
 * record, and nobody needs those records any more. A crash leaves all tables cut: their
 * values come into the base by copies. ALWAYS: a crash keeps what is published; else
 * (sync off) at least what a checkpoint has synced. Bytes that are not synced are gone.
 *
 * A get of what the base does not have holds the log at its record, and reads the file
 * later. A get of what it has, a scan and a backup read the base at one moment.
 *
 * Correct: the record of the base leads to its bytes at every moment; so does every
 * record of the log, as long as somebody may read it, and for a start; no value in the
 * base is lost track of: it is that of the record, or dead and listed, or behind the
 * mark. Of what is behind the mark an earlier life has left only what its records in
 * the log lead to, once the first checkpoint of the next life is over.
 *
 * ERRORS: a write to a table fails once, which cuts it in the middle of a life.
 *
 * FORGET_UNTAKEN lets a file go though the base does not have its table. Nothing goes wrong: as
 * long as the base does not have it a record behind the position leads there, or one is to come.
 *
 * Rules that can be taken out:
 *   RECORD_FIRST   the record is appended before the bytes are synced
 *   SEAL_FIRST     tables are ended before it is settled how far the checkpoint reads
 *   RECORDS_FIRST  the tables come in by an ingest of their own, behind that of the records
 *   NO_COPY        values of tables that were cut are not copied
 *   NO_SUPERSEDED  nobody notes a value whose record is superseded within the range
 *   NO_REPLACED    nobody notes the value of a record of the base that is replaced
 *   DEAD_AT_ONCE   a dead value of a table that comes in is deleted, and not listed:
 *                  the delete is of the same ingest, so it does not reach it
 *   NO_ORPHANS     a life does not delete what a crash has left behind all records
 *   ORPHANS_MARK   it deletes what is behind the mark, also if the log leads there
 *   FORGET_RECORDS a file goes though a record of the log from before on leads there
 *   FORGET_UNUSED  a file goes though a value in it has no record yet
 *   ORPHANS_BEHIND it deletes only what is behind all values to which the log leads: what a life
 *                  has left that was killed before its first checkpoint stands between them
 *   NUMBERS_AGAIN  a life begins its numbers anew when no file is left
 */
#ifndef MAXP
#define MAXP 3                  /* puts and deletes */
#endif
#ifndef MAXC
#define MAXC 3                  /* checkpoints */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define N (MAXP+1)              /* records, values and tables, counted from 1 */
#define NOBODY 15
#define NONE 0
#define BEGUN 1                 /* puts go there, or it is full; it has no end */
#define WHOLE 2
#define TAKEN 3
#define CUT 4

byte rec[N], leads[N];          /* the log: record i, of which put, to which value; 0: a delete */
byte written, published, position, synced;
byte puts, checkpoints, life;

byte tab[N];                    /* the table of a value */
byte file[N];                   /* the put whose bytes its table has there; 0: none */
bit  durable[N], unused[N];
byte state[N];                  /* of a table */
byte open, tables, values;      /* the one that puts go to; numbers that were given out */
byte held = NOBODY;             /* the record from which on somebody reads the log */

byte has[N];                    /* the base: the put whose bytes stand under a value; 0: none */
bit  dead[N];
byte mark;
byte found, older;              /* newest value that the log led to at the start; the first of this life */
bit  failed;
bit  swept;                     /* the first checkpoint of this life is over */

#ifdef ALWAYS
#define KEPT published
#else
#define KEPT synced
#endif
#define IN_BASE(i) (leads[i]==0 || has[leads[i]]==rec[i])
#define IN_FILE(i) (leads[i]==0 || file[leads[i]]==rec[i])

inline append(v, k) { written++; rec[written]=v; leads[written]=k }

/* What holds at every moment. i: a variable of the caller's. */
inline audit(i, j) {
  assert(IN_BASE(position));
  i=1;
  do
  :: i<=values ->
     assert(has[i]==0 || i==leads[position] || i>mark || dead[i]);
     if
     :: swept && i<older && i>mark && has[i]!=0 ->
        j=position+1;
        do :: j<=written && leads[j]!=i -> j++ :: else -> break od;
        assert(j<=written); j=0
     :: else
     fi;
     i++
  :: else -> break
  od;
  i=0
}

active proctype writer() {
  byte v, k, me;
end: do
  :: atomic { puts<MAXP && leads[written]!=0 -> puts++; append(puts, 0) } /* a delete */
  :: atomic { puts<MAXP -> puts++; v=puts; me=life;
       if :: open==0 -> tables++; open=tables; state[open]=BEGUN :: else fi;
       values++; k=values; tab[k]=open; file[k]=v; durable[k]=0; unused[k]=1;
       if :: open=0 :: skip fi };          /* it is full, or not */
#ifndef RECORD_FIRST
     atomic { if :: me==life -> durable[k]=1 :: else fi };
#endif
     atomic { if :: me==life -> append(v, k); unused[k]=0 :: else fi };
#ifdef RECORD_FIRST
     atomic { if :: me==life -> durable[k]=1 :: else fi };
#endif
     atomic { v=0; k=0; me=0 }
#ifdef ERRORS
  :: atomic { open!=0 && !failed -> failed=1; state[open]=CUT; v=1; /* a write fails: what was put before is there */
       do
       :: v<=values -> if :: tab[v]==open -> durable[v]=1 :: else fi; v++
       :: else -> break
       od;
       open=0; v=0 }
#endif
  od
}

active proctype publisher() {
end: do
  :: atomic { published<written -> published++ }
  od
}

inline seal(i) {
  open=0; i=1;
  do
  :: i<=tables -> if :: state[i]==BEGUN -> state[i]=WHOLE :: else fi; i++
  :: else -> break
  od;
  i=1;
  do
  :: i<=values -> if :: state[tab[i]]==WHOLE -> durable[i]=1 :: else fi; i++
  :: else -> break
  od;
  i=0
}

/* Tables come into the base: those below max that were whole when it was sealed. */
inline take(i, max) {
  i=1;
  do
  :: i<=values -> if :: state[tab[i]]==WHOLE && tab[i]<=max -> has[i]=file[i] :: else fi; i++
  :: else -> break
  od;
  i=1;
  do
  :: i<=max -> if :: state[i]==WHOLE -> state[i]=TAKEN :: else fi; i++
  :: else -> break
  od;
  i=0
}

/* Value k has no record any more. If its table comes in with this ingest it is listed. One of a
 * table that was cut behind one that comes in now was never copied. Of others it is open
 * whether they go now or wait until all of their table is dead. */
inline drop(k) {
  if
  :: state[tab[k]]==CUT && first<tab[k] -> assert(has[k]==0)
  :: state[tab[k]]==WHOLE ->
#ifndef DEAD_AT_ONCE
     dead[k]=1
#endif
  :: state[tab[k]]!=WHOLE && !(state[tab[k]]==CUT && first<tab[k]) -> dead[k]=0; has[k]=0
  :: state[tab[k]]==TAKEN || state[tab[k]]==NONE -> dead[k]=1
  fi
}

active proctype checkpoint() {
  byte i, j, to, max, first, there, me;
end: do
  :: atomic { checkpoints<MAXC && position<published ->
       checkpoints++; me=life; j=0;
#ifdef SEAL_FIRST
       seal(i); max=tables;
#else
       to=published; if :: synced<to -> synced=to :: else fi;
#endif
     };
     atomic { if
       :: me==life ->
#ifdef SEAL_FIRST
          to=published; if :: synced<to -> synced=to :: else fi
#else
          seal(i); max=tables
#endif
       :: else
       fi };
     /* the ingest */
     atomic { if
       :: me==life ->
          there=has[leads[to]];   /* before the ingest: value 0 is none */
          /* what a crash has left */
          if
          :: !swept ->
             swept=1; i=mark+1;
#ifdef ORPHANS_BEHIND
             if :: found>=i -> i=found+1 :: else fi;
#endif
#ifndef NO_ORPHANS
             do
             :: i<older -> j=position+1;
#ifndef ORPHANS_MARK
                do :: j<=written && leads[j]!=i -> j++ :: else -> break od;
                if :: j>written -> has[i]=0 :: else fi;
#else
                has[i]=0;
#endif
                i++
             :: else -> break
             od;
#endif
          :: else
          fi;
          first=1; do :: first<=tables && state[first]!=WHOLE -> first++ :: else -> break od;
          /* dead ones of before */
          i=1;
          do :: i<=values -> if :: dead[i] -> drop(i) :: else fi; i++ :: else -> break od;
          /* the range */
#ifndef NO_REPLACED
          if :: leads[position]!=0 -> drop(leads[position]) :: else fi;
#endif
          i=position+1;
          do
          :: i<to ->
#ifndef NO_SUPERSEDED
             if :: leads[i]!=0 -> drop(leads[i]) :: else fi;
#endif
             i++
          :: else -> break
          od;
          i=position+1;
          do
          :: i<=to -> if :: leads[i]>mark -> mark=leads[i] :: else fi; i++
          :: else -> break
          od;
#ifndef NO_COPY
          if
          :: leads[to]!=0 && state[tab[leads[to]]]==CUT && there==0 ->
             assert(IN_FILE(to)); has[leads[to]]=file[leads[to]]
          :: else
          fi;
#endif
#ifndef RECORDS_FIRST
          take(i, max);
#endif
          position=to; i=0; j=0;
          audit(i, j)
       :: else
       fi };
#ifdef RECORDS_FIRST
     atomic { if :: me==life -> take(i, max) :: else fi };
#endif
     atomic { i=0; j=0; to=0; max=0; first=0; there=0; me=0 }
  od
}

/* A file goes: that of table t, if its values have records, and none of them is needed. */
inline needed(t, i, r) {
  r=0; i=1;
  do
  :: i<=values ->
     if
     :: tab[i]==t && file[i]!=0 ->
#ifndef FORGET_UNUSED
        if :: unused[i] -> r=1 :: else fi;
#endif
#ifndef FORGET_RECORDS
        byte n=written;
        do
        :: n>0 -> if :: leads[n]==i && (n>position || n>=held) -> r=1 :: else fi; n--
        :: else -> break
        od
#endif
     :: else
     fi;
     i++
  :: else -> break
  od;
  i=0
}

active proctype forget() {
  byte t, i, r;
end: do
  :: atomic { t=1;
       do
       :: t<=tables ->
          if
#ifdef FORGET_UNTAKEN
          :: state[t]!=NONE && state[t]!=BEGUN ->
#else
          :: state[t]==TAKEN || state[t]==CUT ->
#endif
             needed(t, i, r);
             if :: r==0 -> goto go :: else fi
          :: else
          fi;
          t++
       :: else -> break
       od;
       t=0; r=0; goto rest };
go:  atomic { state[t]=NONE; i=1;
       do :: i<=values -> if :: tab[i]==t -> file[i]=0 :: else fi; i++ :: else -> break od;
       t=0; i=0; r=0 };
rest: skip
  od
}

active proctype crash() {
  byte p, i, j;
  do
  :: life<CRASHES -> atomic { life++;
       p=KEPT; do :: p<written -> p++ :: break od;
       do :: written>p -> rec[written]=0; leads[written]=0; written-- :: else -> break od;
       published=p; synced=p; held=NOBODY; open=0; i=1;
       do
       :: i<=values -> if :: !durable[i] -> file[i]=0 :: else fi; unused[i]=0; i++
       :: else -> break
       od;
       i=1; j=0;
       do
       :: i<=tables -> if :: state[i]!=NONE -> state[i]=CUT; j=1 :: else fi; i++
       :: else -> break
       od;
       /* the start finds the bytes of all that the base does not have */
       found=0; i=position+1;
       do
       :: i<=written ->
          assert(IN_FILE(i));
          if :: leads[i]>found -> found=leads[i] :: else fi; i++
       :: else -> break
       od;
       older=values+1; swept=0;
#ifdef NUMBERS_AGAIN
       if :: j==0 -> tables=0; values=0; older=1 :: else fi;
#endif
       p=0; i=0; j=0; audit(i, j) }
  :: break
  od
}

active proctype reader() {
  byte n, me;
  do
  :: atomic { published>position -> me=life; n=published; held=n };
     atomic { if :: me==life -> assert(IN_FILE(n)); held=NOBODY :: else fi; n=0; me=0 }
  od
}

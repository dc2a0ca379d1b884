/* values.pml - large values in files of their own: puts, compaction, snapshots
 * and backups, crashes.
 *
 * One key. The bytes of a put go to a value file of their own, are synced, and
 * then a record that says where they stand (its place) is appended to the log:
 * ordered, then published. A file here holds one value, that of put v. A
 * compaction copies bytes to a new file, appends a record "the value of put v
 * is now there", and deletes the old file in the end. A checkpoint takes
 * published records into the base. ALWAYS: a crash keeps what is published;
 * else (sync off) at least what is in the base. Bytes that are not synced are
 * gone after it.
 *
 * A get takes the place that is published, or that the base has if nothing is
 * newer, and reads there later: the file may be gone by then, so it looks again.
 * Nobody waits for gets. A snapshot (a scan, a backup) is of the base, reads the
 * bytes as late as it likes, and cannot look again.
 *
 * Correct: a get and a snapshot find the value of the put that they look for; a
 * get is not older than what was published when it began; at every moment the
 * base leads to bytes that are there, and a start finds those of the newest
 * record, which is of the newest put that it has.
 *
 * Rules that can be taken out:
 *   RECORD_FIRST   the record is appended before the bytes are synced
 *   MOVE_UNSYNCED  so is the record of a move
 *   MOVE_ALWAYS    a move is applied although the key has another value by now
 *   MOVE_PUBLISHED it is judged on what is published, not on what is ordered
 *   FREE_PUBLISHED the old file goes when the record without it is published
 *   FREE_START     a start takes the files that the newest state does not name
 *                  for free, although the base names them
 *   FREE_UNNAMED   a file that no record names is free, also before the record
 *                  of the put or move that wrote it
 *   NO_SNAPSHOTS   the old file goes although a snapshot from before is open
 *   REGISTER_LATE  a snapshot is taken, and noted as open in a later step
 *   REUSE          a file that is free is used again, not deleted; who reads it
 *                  sees by the sum that the bytes are others
 *   NO_VERIFY      with REUSE: a get does not see it
 *   NO_LOOK        a get does not look again
 * NO_BACKUP leaves out the backup, which is the one that REUSE alone deceives.
 */
#ifndef MAXP
#define MAXP 2                  /* puts and deletes */
#endif
#ifndef MAXM
#define MAXM 2                  /* moves */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define R (MAXP+MAXM+1)         /* records, counted from 1 */
#define F (MAXP+MAXM+1)         /* files, counted from 1; 0: no place, the key is deleted */
#define NOT 15

byte value[R], place[R];        /* the log: record i, the key's put, where its bytes are */
byte written, published;        /* ordered and published up to here */
byte position;                  /* the base: the state after this record */
byte bytes[F];                  /* the put whose bytes a file holds; 0: torn */
bit  there[F], synced[F];
byte due[F];                    /* free when the base is there; NOT: in use */
byte files, puts, moves;        /* how many there were; numbers are never used again */
byte pinned = NOT;              /* position of the snapshot that is noted as open */
byte life;

#define READABLE(i) (place[i]==0 || (there[place[i]] && bytes[place[i]]==value[i]))
#ifdef ALWAYS
#define KEPT published
#else
#define KEPT position
#endif
#ifdef FREE_PUBLISHED
#define BEHIND published
#else
#define BEHIND position
#endif
#ifdef NO_SNAPSHOTS
#define OPEN(f) false
#else
#define OPEN(f) (pinned<due[f]) /* NOT is above all */
#endif
#define FREE(f) (there[f] && due[f]<=BEHIND && !(pinned!=NOT && OPEN(f)))

inline append(v, f) {
  written++; value[written]=v; place[written]=f;
  if
  :: place[written-1]!=0 && place[written-1]!=f -> due[place[written-1]]=written
  :: else
  fi
}
/* f: a file with the bytes of put v, which are not synced yet. */
inline create(f, v) {
#ifdef REUSE
  f=1; do :: f<=files && !FREE(f) -> f++ :: else -> break od;
#else
  f=files+1;
#endif
  if :: f>files -> files=f :: else fi;
  there[f]=1; bytes[f]=v; synced[f]=0;
#ifdef FREE_UNNAMED
  due[f]=0
#else
  due[f]=NOT
#endif
}

active proctype server() {
  byte f, v, me;
end: do
  :: atomic { puts<MAXP && place[written]!=0 -> puts++; append(puts, 0) } /* a delete */
  :: atomic { puts<MAXP -> puts++; v=puts; me=life; create(f, v) };
#ifndef RECORD_FIRST
     atomic { if :: me==life -> synced[f]=1 :: else fi };
#endif
     atomic { if
       :: me==life -> append(v, f); due[f]=NOT
       :: else fi };
#ifdef RECORD_FIRST
     atomic { if :: me==life -> synced[f]=1 :: else fi };
#endif
     atomic { f=0; v=0; me=0 }
  od
}

active proctype publisher() {
end: do
  :: atomic { published<written -> published++ }
  :: atomic { position<published -> position++ } /* a checkpoint */
  od
}

active proctype compactor() {
  byte f, v, me;
end: do
  :: atomic { moves<MAXM && place[published]!=0 && READABLE(published) ->
       moves++; v=value[published]; me=life; create(f, v) };
#ifndef MOVE_UNSYNCED
     atomic { if :: me==life -> synced[f]=1 :: else fi };
#endif
     atomic { if
#ifdef MOVE_ALWAYS
       :: me==life -> append(v, f); due[f]=NOT
#elif defined(MOVE_PUBLISHED)
       :: me==life && value[published]==v -> append(v, f); due[f]=NOT
       :: me==life && value[published]!=v -> due[f]=0
#else
       :: me==life && value[written]==v -> append(v, f); due[f]=NOT
       :: me==life && value[written]!=v -> due[f]=0 /* dropped: nobody names the file */
#endif
       :: me!=life
       fi };
#ifdef MOVE_UNSYNCED
     atomic { if :: me==life -> synced[f]=1 :: else fi };
#endif
     atomic { f=0; v=0; me=0 }
#ifndef REUSE
  :: atomic { f=1; do :: f<=files && !FREE(f) -> f++ :: else -> break od;
       if :: f<=files -> there[f]=0 :: else -> f=0; goto rest fi; f=0 }
#endif
  od;
rest: goto end
}

active proctype crash() {
  byte p, f;
  do
  :: life<CRASHES -> atomic { life++;
       p=KEPT; do :: p<written -> p++ :: break od;
       do :: written>p -> value[written]=0; place[written]=0; written-- :: else -> break od;
       published=p; pinned=NOT; f=1;
       do
       :: f<=files -> if :: there[f] && !synced[f] -> bytes[f]=0 :: else fi;
          if
          :: f==place[p] -> due[f]=NOT
#ifdef FREE_START
          :: else -> due[f]=0
#else
          :: else -> due[f]=p   /* the base may still name it */
#endif
          fi; f++
       :: else -> break
       od;
       assert(READABLE(p)); assert(READABLE(position));
       /* the newest put that is there stands, and no older one */
       f=1; do :: f<=p -> assert(value[f]<=value[p]); f++ :: else -> break od; f=0; p=0 }
  :: break
  od
}

active proctype reader() {
  byte f, v, lo, me;
  do
  :: atomic { me=life; lo=value[published] };
look: atomic { if
       :: me==life -> v=value[published]; f=place[published]; assert(v>=lo)
       :: me==life && value[position]==value[published] -> v=value[position]; f=place[position]
       :: me!=life
       fi };
     atomic { if
       :: me!=life || f==0
       :: me==life && f!=0 -> if
#ifdef NO_VERIFY
          :: there[f] -> assert(bytes[f]==v)
#else
          :: there[f] && bytes[f]==v
#endif
#ifdef NO_LOOK
          :: else -> assert(false)
#else
          :: else -> goto look
#endif
          fi
       fi };
     atomic { f=0; v=0; lo=0; me=0 }
  od
}

active proctype snapshot() {
  byte s, me;
  do
#ifdef REGISTER_LATE
  :: atomic { me=life; s=position };
     atomic { if :: me==life -> pinned=s :: else fi };
#else
  :: atomic { me=life; s=position; pinned=s };
#endif
     atomic { if :: me==life -> assert(READABLE(s)); pinned=NOT :: else fi; s=0; me=0 }
  od
}

#ifndef NO_BACKUP
/* Links the file that the base names: a deleted file keeps its bytes for it. */
active proctype backup() {
  byte s;
  atomic { place[position]!=0 -> s=position };
  assert(bytes[place[s]]==value[s])
}
#endif

active proctype auditor() {
  atomic { assert(READABLE(position)); assert(READABLE(published)) }
}

/* rkeys that are renewed under a client's READs.
 *
 * A server registers a region anew, has its table show the new rkey, raises the
 * version of the table, and deregisters the old rkey when the session has said
 * that it is past it. An rkey that is gone may come back for other memory. The
 * client fetches the table when it likes, keeps READs under way for as long as
 * it likes, and tells the server which table is the oldest that its READs go by.
 *
 * What must not be: a READ is served under an rkey that is not the region's.
 *
 * Each step is one access to one word of either program, or a message.
 *
 * Macros take a rule out:
 *   NO_WORD       the server does not wait for the session
 *   NO_COUNT      the client says so as soon as it has the newer table
 *   CHECK_FIRST   who posts looks at the table in force, and counts itself then
 *   VERSION_FIRST the version rises before the table shows the new rkey
 *   NOTE_LATE     a session is noted after the table was looked at for it
 *   ENDED_LATE    the old rkey goes before the QP of a session that ends is closed
 */
#ifndef ROTATIONS
#define ROTATIONS 2
#endif
#define TABLES (ROTATIONS + 1)
#define REGION 1  /* else: nothing, or other memory */
#define NOTABLE 255

#ifndef POSTERS
#define POSTERS 1
#endif

/* The server. */
byte memory[TABLES];      /* what an rkey leads to */
byte rkey;                /* of the region, as the table shows it */
byte version = 1;         /* of the table */
byte word;                /* the session's: the oldest table that it uses; 0: it has none */
bool ended, closed;       /* the session ends; its QP is closed */

/* The client. A table is known by the order in which it was taken. */
byte tableversion[TABLES], tablekey[TABLES];
byte under[TABLES];       /* READs posted under it that have not completed */
byte inforce = NOTABLE;
chan ping = [1] of { byte };

proctype server()
{
	byte r, old;
	for (r : 1 .. ROTATIONS) {
		old = rkey;
		memory[r] = REGION;
#ifdef VERSION_FIRST
		version = r + 1;
		rkey = r;
#else
		rkey = r;
		version = r + 1;
#endif
#ifndef NO_WORD
		/* A session that is silent for too long is ended. */
		do
		:: word == 0 || word >= version -> break
#ifdef ENDED_LATE
		:: ended -> break
#endif
		:: closed -> break
		:: !ended -> ended = true
		od;
#endif
		memory[old] = 0;
	}
}

/* The end of a session takes its time. */
proctype closer()
{
	ended -> closed = true
}

/* The lane of the server that takes in Pings. */
proctype lane()
{
	byte v;
	do
	:: ping ? v ->
		atomic { if :: word != 0 && v > word -> word = v :: else fi; v = 0 }
	od
}

/* The client fetches the table: the server's part of it, and its own. */
proctype fetch()
{
	byte v, k, i;
	do
	:: i < TABLES ->
#ifndef NOTE_LATE
		atomic { v = version; if :: word == 0 -> word = v :: else fi }
#endif
		v = version;
		k = rkey;
#ifdef NOTE_LATE
		atomic { if :: word == 0 -> word = version :: else fi }
#endif
		if
		:: i == 0 || v > tableversion[i - 1] ->
			tableversion[i] = v;
			tablekey[i] = k;
			inforce = i;
			i++
		:: else
		fi
	:: i == TABLES -> break
	od
}

/* The client tells which tables are out of use. */
proctype tell()
{
	byte c, i, oldest;
end:
	do
	:: inforce != NOTABLE ->
		c = inforce;
		oldest = tableversion[c];
#ifndef NO_COUNT
		i = c;
		do
		:: i > 0 ->
			i--;
			if
			:: under[i] > 0 -> oldest = tableversion[i]
			:: else
			fi
		:: i == 0 -> break
		od;
#endif
		ping ! oldest;
		c = 0; i = 0; oldest = 0
	od
}

/* Who READs: as often, and for as long, as he likes. */
proctype post()
{
	byte t, k;
end:
	do
	:: inforce != NOTABLE && !closed ->
		t = inforce;
#ifdef CHECK_FIRST
		if
		:: inforce != t -> goto over
		:: else
		fi;
		under[t]++;
#else
		under[t]++;
		if
		:: inforce != t -> under[t]--; goto over
		:: else
		fi;
#endif
		k = tablekey[t];
		/* Under way, served at some time, unless the QP is closed before. */
		atomic {
			if
			:: !closed -> assert(memory[k] == REGION)
			:: else
			fi
		}
		under[t]--;
over:
		t = 0; k = 0
	od
}

init {
	atomic {
		byte i;
		memory[0] = REGION;
		run server(); run closer(); run lane(); run fetch(); run tell();
		for (i : 1 .. POSTERS) { run post() }
	}
}

/*
 * LMDB, read by a process of its own: the peer of gets by shared memory, because
 * it too is read by a copy out of a map, without a call to any server.
 *
 *   lmdb version
 *   lmdb load DIR BYTES KEY VALUE
 *
 * fills a new environment, whose map has BYTES, with the records that stand on
 * standard input: KEY bytes and VALUE bytes each, in the order of the keys. They
 * are appended, so that pages are as full as they get.
 *
 *   lmdb get DIR BYTES RECORDS PREFIX KEY VALUE BATCH WARM SECONDS FILE
 *
 * gets keys and copies their values out. FILE has the numbers of the keys, 32 bits
 * each, little endian, in the order in which they are asked for; a key is PREFIX
 * and the number in digits, KEY bytes long. Keys are written out 64 at a time,
 * outside of any call's time. A call begins a reader's transaction (mdb_txn_renew),
 * gets BATCH keys in it, and ends it (mdb_txn_reset), so that it sees what was
 * committed before it. The clock is read as package load reads it: once for each
 * call, the end of one being the beginning of the next, and once more where a call
 * has more than 1 KiB of values. Every record is read once beforehand, and WARM
 * seconds are not counted.
 *
 * The map is put into huge pages where the kernel can (MADV_COLLAPSE, Linux 6.1),
 * as a tmpfs with huge=always would have it: the registered memory of rdmakv is in
 * such pages as well. Locks stay on (no MDB_NOLOCK), since without them no writer
 * could work beside the reader.
 *
 * One line of JSON, as pingpong prints it: calls, seconds, percentiles in
 * nanoseconds; and processor time and bytes in huge pages.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <lmdb.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_VALUE = 4 << 20, MOST_KEY = 256, MOST_BATCH = 1024, MOST_SAMPLES = 8 << 20, BLOCK = 64, HEAD = 8, LARGE = 1 << 10 };
static const size_t HUGE_PAGE = 2 << 20;

static void die(const char *what, int err)
{
	fprintf(stderr, "lmdb: %s: %s\n", what, mdb_strerror(err));
	exit(1);
}

static void try(const char *what, int err)
{
	if (err)
		die(what, err);
}

static int64_t clock_of(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t now(void) { return clock_of(CLOCK_MONOTONIC); }

/* The map of the environment, as LMDB has made it. */
static char *map;
static size_t map_bytes;

/*
 * LMDB's call of mmap for its file: the map begins where a huge page can, which
 * nothing in LMDB's interface can ask for.
 */
void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	if (addr || fd < 0 || length < HUGE_PAGE)
		return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
	char *room = (char *)syscall(SYS_mmap, NULL, length + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return room;
	room += -(uintptr_t)room & (HUGE_PAGE - 1);
	map = (char *)syscall(SYS_mmap, room, length, prot, flags | MAP_FIXED, fd, offset);
	map_bytes = length;
	return map;
}

/* Puts the pages that hold something into huge ones, and returns how many bytes were. */
static size_t collapse(size_t used)
{
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
	size_t done = 0;
	for (size_t at = 0; map && at + HUGE_PAGE <= map_bytes && at < used; at += HUGE_PAGE)
		if (!madvise(map + at, HUGE_PAGE, MADV_COLLAPSE))
			done += HUGE_PAGE;
	return done;
}

static MDB_env *open_env(const char *dir, size_t bytes, unsigned flags)
{
	MDB_env *env;
	try("mdb_env_create", mdb_env_create(&env));
	try("mdb_env_set_mapsize", mdb_env_set_mapsize(env, bytes));
	try(dir, mdb_env_open(env, dir, flags, 0600));
	return env;
}

static int load(const char *dir, size_t bytes, size_t key, size_t value)
{
	/* Nothing has to be durable; a transaction has so many records that its pages fit into memory. */
	enum { EACH = 1 << 16 };
	MDB_env *env = open_env(dir, bytes, MDB_NOSYNC | MDB_WRITEMAP);
	MDB_txn *txn = NULL;
	MDB_dbi dbi;
	char *record = malloc(key + value);
	size_t n = 0;
	if (!record)
		die("memory", ENOMEM);
	for (; fread(record, key + value, 1, stdin) == 1; n++) {
		MDB_val k = { key, record }, v = { value, record + key };
		if (!txn) {
			try("mdb_txn_begin", mdb_txn_begin(env, NULL, 0, &txn));
			try("mdb_dbi_open", mdb_dbi_open(txn, NULL, 0, &dbi));
		}
		try("mdb_put", mdb_put(txn, dbi, &k, &v, MDB_APPEND));
		if (n % EACH == EACH - 1) {
			try("mdb_txn_commit", mdb_txn_commit(txn));
			txn = NULL;
		}
	}
	if (txn)
		try("mdb_txn_commit", mdb_txn_commit(txn));
	mdb_env_close(env);
	printf("%zu\n", n);
	return 0;
}

/* What is measured. */
static struct {
	MDB_txn *txn;
	MDB_dbi dbi;
	const char *prefix;
	size_t key, value;
	uint32_t *numbers, *took;
	size_t count, next, n;
	char keys[BLOCK][MOST_KEY];
	uint32_t asked[BLOCK];
	char *out;
} m;

static void write_key(char *to, uint32_t number)
{
	memset(to, '0', m.key);
	memcpy(to, m.prefix, strlen(m.prefix));
	for (char *at = to + m.key - 1; number; number /= 10)
		*at-- = '0' + number % 10;
}

static void plan(void)
{
	for (int i = 0; i < BLOCK; i++) {
		m.asked[i] = m.numbers[m.next];
		write_key(m.keys[i], m.asked[i]);
		if (++m.next == m.count)
			m.next = 0;
	}
}

/* Gets one key in the transaction, copies its value out and looks at its length and its beginning. */
static void get(int i, char *to)
{
	MDB_val k = { m.key, m.keys[i] }, v;
	int err = mdb_get(m.txn, m.dbi, &k, &v);
	if (err)
		die(m.keys[i], err);
	if (v.mv_size != m.value) {
		fprintf(stderr, "lmdb: %s has %zu bytes, want %zu\n", m.keys[i], v.mv_size, m.value);
		exit(1);
	}
	memcpy(to, v.mv_data, v.mv_size);
	uint64_t number = 0;
	memcpy(&number, to, v.mv_size < HEAD ? v.mv_size : HEAD);
	if (v.mv_size >= HEAD && number != m.asked[i]) {
		fprintf(stderr, "lmdb: %s has the value of another key\n", m.keys[i]);
		exit(1);
	}
}

/* Reads every record once, so that no page of the map is met for the first time later. */
static size_t touch(void)
{
	MDB_cursor *c;
	MDB_val k, v;
	size_t n = 0;
	int err;
	try("mdb_txn_renew", mdb_txn_renew(m.txn));
	try("mdb_cursor_open", mdb_cursor_open(m.txn, m.dbi, &c));
	for (; !(err = mdb_cursor_get(c, &k, &v, MDB_NEXT)); n++)
		memcpy(m.out, v.mv_data, v.mv_size < m.value ? v.mv_size : m.value);
	if (err != MDB_NOTFOUND)
		die("mdb_cursor_get", err);
	mdb_cursor_close(c);
	mdb_txn_reset(m.txn);
	return n;
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* Calls from now until end; those that begin before from do not count. */
static void calls(size_t batch, int64_t from, int64_t end, size_t huge)
{
	int twice = m.value * batch > LARGE;
	int64_t first = 0, last = 0, cpu = 0, t;
	for (int more = 1; more;) {
		plan();
		t = now();
		for (size_t i = 0; more && i + batch <= BLOCK; i += batch) {
			if (twice)
				t = now();
			int64_t begun = t;
			if (!first && begun >= from) {
				cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
				first = begun = now();
			}
			try("mdb_txn_renew", mdb_txn_renew(m.txn));
			for (size_t k = 0; k < batch; k++)
				get(i + k, m.out + k * m.value);
			mdb_txn_reset(m.txn);
			t = now();
			if (first) {
				m.took[m.n++] = t - begun;
				last = t;
			}
			more = t < end && m.n < MOST_SAMPLES;
		}
	}
	cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	if (m.n == 0) {
		fprintf(stderr, "lmdb: no call\n");
		exit(1);
	}
	qsort(m.took, m.n, sizeof *m.took, ascending);
	printf("{\"ops\":%zu,\"seconds\":%.6f,\"p50_ns\":%u,\"p90_ns\":%u,\"p99_ns\":%u,\"p999_ns\":%u,\"max_ns\":%u,\"cpu_ns\":%lld,\"huge_bytes\":%zu}\n",
	       m.n, (last - first) / 1e9, m.took[m.n / 2], m.took[m.n * 9 / 10], m.took[m.n * 99 / 100], m.took[m.n * 999 / 1000],
	       m.took[m.n - 1], (long long)cpu, huge);
}

static void read_numbers(const char *path, size_t records)
{
	FILE *f = fopen(path, "r");
	if (!f || fseek(f, 0, SEEK_END))
		die(path, errno);
	long bytes = ftell(f);
	rewind(f);
	m.count = bytes / sizeof *m.numbers;
	m.numbers = malloc(bytes + 1);
	if (!m.numbers)
		die("memory", ENOMEM);
	if (m.count == 0 || fread(m.numbers, sizeof *m.numbers, m.count, f) != m.count)
		die(path, EIO);
	fclose(f);
	for (size_t i = 0; i < m.count; i++)
		if (m.numbers[i] >= records)
			die(path, EINVAL);
}

static int gets(char **a)
{
	const char *dir = a[0];
	size_t bytes = strtoull(a[1], NULL, 10), records = strtoull(a[2], NULL, 10), batch;
	m.prefix = a[3];
	m.key = strtoul(a[4], NULL, 10);
	m.value = strtoul(a[5], NULL, 10);
	batch = strtoul(a[6], NULL, 10);
	double warm = strtod(a[7], NULL), seconds = strtod(a[8], NULL);
	if (m.key < strlen(m.prefix) + 10 || m.key >= MOST_KEY || m.value < 1 || m.value > MOST_VALUE || batch < 1 || batch > BLOCK ||
	    BLOCK % batch || !(warm >= 0 && warm <= 60) || !(seconds > 0 && seconds <= 60)) {
		fprintf(stderr, "lmdb: keys end at %d bytes, values at %d, seconds at 60, and a batch divides %d\n", MOST_KEY - 1, MOST_VALUE, BLOCK);
		return 2;
	}
	read_numbers(a[9], records);
	m.took = malloc(MOST_SAMPLES * sizeof *m.took);
	m.out = malloc(batch * m.value);
	if (!m.took || !m.out)
		die("memory", ENOMEM);
	memset(m.took, 1, MOST_SAMPLES * sizeof *m.took); /* its pages are there before they are needed */
	MDB_env *env = open_env(dir, bytes, MDB_RDONLY | MDB_NOTLS | MDB_NORDAHEAD);
	MDB_envinfo info;
	MDB_stat stat;
	try("mdb_env_info", mdb_env_info(env, &info));
	try("mdb_txn_begin", mdb_txn_begin(env, NULL, MDB_RDONLY, &m.txn));
	try("mdb_dbi_open", mdb_dbi_open(m.txn, NULL, 0, &m.dbi));
	try("mdb_stat", mdb_stat(m.txn, m.dbi, &stat));
	mdb_txn_reset(m.txn);
	size_t huge = collapse((info.me_last_pgno + 1) * stat.ms_psize);
	if (touch() != records) {
		fprintf(stderr, "lmdb: %s has %zu records, want %zu\n", dir, (size_t)stat.ms_entries, records);
		return 1;
	}
	int64_t from = now() + warm * 1e9;
	calls(batch, from, from + seconds * 1e9, huge);
	return 0;
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (argc == 2 && !strcmp(argv[1], "version")) {
		printf("%s\n", mdb_version(NULL, NULL, NULL));
		return 0;
	}
	if (argc == 6 && !strcmp(argv[1], "load"))
		return load(argv[2], strtoull(argv[3], NULL, 10), strtoul(argv[4], NULL, 10), strtoul(argv[5], NULL, 10));
	if (argc == 12 && !strcmp(argv[1], "get")) {
		alarm(200);
		return gets(argv + 2);
	}
	fprintf(stderr, "usage: lmdb version | load DIR BYTES KEY VALUE | get DIR BYTES RECORDS PREFIX KEY VALUE BATCH WARM SECONDS FILE\n");
	return 2;
}

/*
 * A client in C, so that no runtime stands between the clock and the socket.
 *
 *   pingpong tcp|unix sleep|spin REQUEST ANSWER SECONDS
 *
 * is the floor of everything that goes through a socket: a process of its own
 * answers REQUEST bytes with ANSWER bytes, and nothing is parsed.
 *
 *   pingpong tcp:PORT|unix:PATH sleep|spin REQUEST ANSWER SECONDS FILE FIRST CONNECTIONS
 *
 * asks a server, in turn, the requests of FILE, all REQUEST bytes long, whose
 * answers all have ANSWER bytes and begin with the character FIRST. Each of the
 * CONNECTIONS has one exchange under way.
 *
 * sleep blocks, spin asks again and again without blocking (the answering
 * process of the first form too). One line of JSON: exchanges, seconds, and
 * percentiles in nanoseconds. A tenth more than SECONDS warms up uncounted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20, MOST_FILE = 256 << 20, MOST_SAMPLES = 8 << 20, MOST_CONNECTIONS = 1024, SHOWN = 20 };

static int flags; /* MSG_DONTWAIT when spinning */

static void die(const char *what)
{
	fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Returns 0 when the other end has closed. */
static int receive(int fd, char *buf, size_t n)
{
	while (n > 0) {
		ssize_t got = recv(fd, buf, n, flags);
		if (got == 0)
			return 0;
		if (got < 0) {
			if (errno == EAGAIN || errno == EINTR)
				continue;
			if (errno == ECONNRESET)
				return 0;
			die("recv");
		}
		buf += got;
		n -= got;
	}
	return 1;
}

static void transmit(int fd, const char *buf, size_t n)
{
	while (n > 0) {
		ssize_t put = send(fd, buf, n, flags | MSG_NOSIGNAL);
		if (put < 0) {
			if (errno == EAGAIN || errno == EINTR)
				continue;
			if (errno == EPIPE || errno == ECONNRESET)
				_exit(0);
			die("send");
		}
		buf += put;
		n -= put;
	}
}

static void no_delay(int fd)
{
	int one = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
		die("TCP_NODELAY");
	/* As all TCP of a comparison; a kernel that cannot goes without. */
	(void)!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static int tcp_connect(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connect");
	no_delay(fd);
	return fd;
}

static int unix_connect(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof a.sun_path) {
		errno = ENAMETOOLONG;
		die(path);
	}
	strcpy(a.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
		die(path);
	return fd;
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0);
	if (l < 0 || bind(l, (struct sockaddr *)&a, n) || listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &n))
		die("listen");
	fd[0] = tcp_connect(ntohs(a.sin_port));
	fd[1] = accept(l, NULL, NULL);
	if (fd[1] < 0)
		die("accept");
	no_delay(fd[1]);
	close(l);
}

/* Starts the process that answers and returns this end of the connection. */
static int answerer(int tcp, char *buf, size_t request, size_t answer)
{
	int fd[2];
	if (tcp)
		tcp_pair(fd);
	else if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		die("socketpair");
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a spinning end must not outlive the other */
		close(fd[0]);
		while (receive(fd[1], buf, request))
			transmit(fd[1], buf, answer);
		_exit(0);
	}
	close(fd[1]);
	return fd[0];
}

/* Reads the requests and returns how many there are. */
static size_t read_requests(const char *path, char *buf, size_t request)
{
	FILE *f = fopen(path, "r");
	if (!f)
		die(path);
	size_t n = fread(buf, 1, MOST_FILE, f);
	fclose(f);
	if (n < request || n % request) {
		fprintf(stderr, "pingpong: %s has %zu bytes, no multiple of %zu\n", path, n, request);
		_exit(1);
	}
	return n / request;
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* What is measured, the same for one connection and for many. */
static struct {
	char *ask, *buf;
	size_t request, answer, requests, next;
	const char *first; /* NULL: any answer will do */
	int64_t from, end, begin, last; /* begin and last of what is counted */
	uint32_t *took;
	size_t n;
} m;

static void ask_next(int fd)
{
	transmit(fd, m.ask + m.next * m.request, m.request);
	if (++m.next == m.requests)
		m.next = 0;
}

/* Takes note of an exchange; 0 when it is time to end. */
static int answered(const char *buf, int64_t asked, int64_t t)
{
	if (m.first && buf[0] != m.first[0]) {
		fprintf(stderr, "pingpong: the answer begins with %.*s\n", SHOWN, buf);
		_exit(1);
	}
	if (asked >= m.from && m.n < MOST_SAMPLES) {
		if (!m.begin)
			m.begin = asked;
		m.took[m.n++] = t - asked;
		m.last = t;
	}
	return t < m.end && m.n < MOST_SAMPLES;
}

static void gone(void)
{
	fprintf(stderr, "pingpong: the other end has gone\n");
	_exit(1);
}

static void one(int fd)
{
	int64_t asked = now(), t;
	do {
		ask_next(fd);
		if (!receive(fd, m.buf, m.answer))
			gone();
		t = now();
		int more = answered(m.buf, asked, t);
		asked = t;
		if (!more)
			return;
	} while (1);
}

static void many(const int *fd, int n, int spin)
{
	size_t have[MOST_CONNECTIONS] = { 0 };
	int64_t asked[MOST_CONNECTIONS];
	static char begins[MOST_CONNECTIONS][SHOWN + 1];
	struct epoll_event ev[64];
	int ep = epoll_create1(0);
	if (ep < 0)
		die("epoll");
	for (int i = 0; i < n; i++) {
		ev[0].events = EPOLLIN;
		ev[0].data.u32 = i;
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd[i], &ev[0]))
			die("epoll");
		asked[i] = now();
		ask_next(fd[i]);
	}
	for (;;) {
		int ready = epoll_wait(ep, ev, 64, spin ? 0 : 1000);
		if (ready < 0 && errno != EINTR)
			die("epoll");
		for (int k = 0; k < ready; k++) {
			int i = ev[k].data.u32;
			ssize_t got = recv(fd[i], m.buf, m.answer - have[i], MSG_DONTWAIT);
			if (got == 0)
				gone();
			if (got < 0) {
				if (errno == EAGAIN || errno == EINTR)
					continue;
				die("recv");
			}
			if (have[i] == 0)
				memcpy(begins[i], m.buf, got < SHOWN ? got : SHOWN);
			have[i] += got;
			if (have[i] < m.answer)
				continue;
			have[i] = 0;
			int64_t t = now();
			if (!answered(begins[i], asked[i], t))
				return;
			asked[i] = t;
			ask_next(fd[i]);
		}
	}
}

static void report(void)
{
	if (m.n == 0) {
		fprintf(stderr, "pingpong: no exchange\n");
		_exit(1);
	}
	qsort(m.took, m.n, sizeof *m.took, ascending);
	printf("{\"ops\":%zu,\"seconds\":%.6f,\"p50_ns\":%u,\"p90_ns\":%u,\"p99_ns\":%u,\"p999_ns\":%u,\"max_ns\":%u}\n",
	       m.n, (m.last - m.begin) / 1e9, m.took[m.n / 2], m.took[m.n * 9 / 10], m.took[m.n * 99 / 100],
	       m.took[m.n * 999 / 1000], m.took[m.n - 1]);
}

int main(int argc, char **argv)
{
	if (argc != 6 && argc != 9) {
		fprintf(stderr, "usage: pingpong tcp|unix|tcp:PORT|unix:PATH sleep|spin REQUEST ANSWER SECONDS [FILE FIRST CONNECTIONS]\n");
		return 2;
	}
	const char *where = argv[1];
	int server = argc == 9, spin = !strcmp(argv[2], "spin"), n = server ? atoi(argv[8]) : 1;
	double seconds = strtod(argv[5], NULL);
	m.request = strtoul(argv[3], NULL, 10);
	m.answer = strtoul(argv[4], NULL, 10);
	if (m.request < 1 || m.request > MOST_BYTES || m.answer < 1 || m.answer > MOST_BYTES || !(seconds > 0 && seconds <= 60) ||
	    n < 1 || n > MOST_CONNECTIONS) {
		fprintf(stderr, "pingpong: sizes are 1 to %d bytes, seconds at most 60, connections at most %d\n", MOST_BYTES,
			MOST_CONNECTIONS);
		return 2;
	}
	flags = spin ? MSG_DONTWAIT : 0;
	alarm(seconds * 1.1 + 5); /* an answer that never comes */
	m.ask = calloc(1, server ? MOST_FILE : MOST_BYTES);
	m.buf = calloc(1, MOST_BYTES);
	m.took = malloc(MOST_SAMPLES * sizeof *m.took);
	if (!m.ask || !m.buf || !m.took)
		die("memory");
	m.requests = 1;
	int fd[MOST_CONNECTIONS];
	if (server) {
		m.requests = read_requests(argv[6], m.ask, m.request);
		m.first = argv[7];
		for (int i = 0; i < n; i++)
			fd[i] = strncmp(where, "tcp:", 4) ? unix_connect(where + 5) : tcp_connect(atoi(where + 4));
	} else
		fd[0] = answerer(!strcmp(where, "tcp"), m.buf, m.request, m.answer);
	m.from = now() + seconds * 1e8;
	m.end = m.from + seconds * 1e9;
	if (n == 1)
		one(fd[0]);
	else
		many(fd, n, spin);
	close(fd[0]);
	if (!server)
		wait(NULL);
	report();
	return 0;
}

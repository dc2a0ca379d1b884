/*
 * One connection, one exchange at a time, in C, so that no runtime stands
 * between the clock and the socket.
 *
 *   pingpong tcp|unix sleep|spin REQUEST ANSWER SECONDS
 *
 * is the floor of everything that goes through a socket: a process of its own
 * answers REQUEST bytes with ANSWER bytes, and nothing is parsed.
 *
 *   pingpong tcp:PORT|unix:PATH sleep|spin REQUEST ANSWER SECONDS FILE FIRST
 *
 * asks a server, in turn, the requests of FILE, all REQUEST bytes long, whose
 * answers all have ANSWER bytes and begin with the character FIRST.
 *
 * sleep blocks in recv, spin asks again and again without blocking (the answering
 * process of the first form too). One line of JSON: exchanges, seconds, and
 * percentiles in nanoseconds.
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20, MOST_FILE = 256 << 20, MOST_SAMPLES = 8 << 20 };

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

int main(int argc, char **argv)
{
	if (argc != 6 && argc != 8) {
		fprintf(stderr, "usage: pingpong tcp|unix|tcp:PORT|unix:PATH sleep|spin REQUEST ANSWER SECONDS [FILE FIRST]\n");
		return 2;
	}
	const char *where = argv[1];
	flags = strcmp(argv[2], "spin") ? 0 : MSG_DONTWAIT;
	size_t request = strtoul(argv[3], NULL, 10), answer = strtoul(argv[4], NULL, 10), requests = 1;
	double seconds = strtod(argv[5], NULL);
	if (request < 1 || request > MOST_BYTES || answer < 1 || answer > MOST_BYTES || !(seconds > 0 && seconds <= 60)) {
		fprintf(stderr, "pingpong: sizes are 1 to %d bytes, seconds at most 60\n", MOST_BYTES);
		return 2;
	}
	alarm(seconds * 1.1 + 5); /* an answer that never comes */
	char *ask = calloc(1, argc == 8 ? MOST_FILE : MOST_BYTES), *buf = calloc(1, MOST_BYTES);
	uint32_t *took = malloc(MOST_SAMPLES * sizeof *took);
	if (!ask || !buf || !took)
		die("memory");
	int fd;
	if (argc == 6)
		fd = answerer(!strcmp(where, "tcp"), buf, request, answer);
	else {
		fd = strncmp(where, "tcp:", 4) ? unix_connect(where + 5) : tcp_connect(atoi(where + 4));
		requests = read_requests(argv[6], ask, request);
	}
	/* A tenth of the time warms up and is not counted. */
	int64_t begin = now(), from = begin + seconds * 1e8, end = from + seconds * 1e9, last = begin, first = 0;
	size_t n = 0, i = 0;
	while (last < end && n < MOST_SAMPLES) {
		transmit(fd, ask + i * request, request);
		if (++i == requests)
			i = 0;
		if (!receive(fd, buf, answer)) {
			fprintf(stderr, "pingpong: the other end has gone\n");
			return 1;
		}
		int64_t t = now();
		if (argc == 8 && buf[0] != argv[7][0]) {
			fprintf(stderr, "pingpong: answer begins with %.20s\n", buf);
			return 1;
		}
		if (last >= from) {
			if (!first)
				first = last;
			took[n++] = t - last;
		}
		last = t;
	}
	close(fd);
	if (argc == 6)
		wait(NULL);
	if (n == 0) {
		fprintf(stderr, "pingpong: no exchange\n");
		return 1;
	}
	qsort(took, n, sizeof *took, ascending);
	printf("{\"ops\":%zu,\"seconds\":%.6f,\"p50_ns\":%u,\"p90_ns\":%u,\"p99_ns\":%u,\"max_ns\":%u}\n", n,
	       (last - first) / 1e9, took[n / 2], took[n * 9 / 10], took[n * 99 / 100], took[n - 1]);
	return 0;
}

package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// noticeAfter is for how long a command waits for its server without a word: who
// starts both together need not hear of it, who has mistyped an address should.
const noticeAfter = time.Second

// notice returns what is told why a command waits, and says so once on standard
// error.
func (a *app) notice() func(why error) {
	var mu sync.Mutex
	var since time.Time
	said := false
	return func(why error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case since.IsZero():
			since = time.Now()
		case !said && time.Since(since) >= noticeAfter:
			said = true
			fmt.Fprintf(a.stderr, "kvclient: waiting for %s: %s\n", strings.Join(a.cfg.Servers, ", "), whyWaiting(why))
		}
	}
}

// whyWaiting is the cause in few words.
func whyWaiting(why error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	missed := client.UnreachedServers(why)
	switch {
	case len(missed) > 0 && missed[0].Node != "": // not the servers that are named before it
		return missedText(missed)
	case errors.Is(why, client.ErrNoMap):
		return "the cluster has no shard map yet (kvclient cluster init)"
	case errors.Is(why, client.ErrOverloaded):
		return "it has too many sessions"
	case errors.As(why, &dns):
		return fmt.Sprintf("%q has no address", dns.Name)
	case errors.Is(why, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(why, &errno):
		return errno.Error()
	}
	return why.Error()
}

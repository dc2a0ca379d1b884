package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
	"github.com/rdmakv/rdmakv/internal/secret"
)

// Dial connects to the store with the configuration in force. A server that is not
// there yet is waited for as long as one call may take, because scripts start both
// together.
func (a *App) Dial(ctx context.Context) (*client.Client, error) {
	return a.DialFor(ctx, a.Config.Timeout)
}

// DialFor is Dial that waits for up to a given time for a server which is not there
// yet.
func (a *App) DialFor(ctx context.Context, wait time.Duration) (*client.Client, error) {
	cfg, err := a.ClientConfig()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return client.Dial(ctx, cfg)
}

// ClientConfig translates the configuration into the library's. It is the only
// place that does, so doctor and bench connect exactly as get and put do.
func (a *App) ClientConfig() (client.Config, error) {
	log := a.Logger()
	ownSecret, err := a.Config.Secret()
	if err != nil {
		return client.Config{}, err
	}
	if len(ownSecret) > 0 {
		_ = secret.Protect() // best effort: this process lives for moments
	}
	list, err := fabrics.ForClient(a.Config.Config, log)
	if err != nil {
		return client.Config{}, err
	}
	cache := a.Config.CacheEntries
	if cache == 0 {
		cache = -1 // none; the library takes 0 for its default
	}
	wait, spin := fabrics.Waiting(a.Config.Config)
	return client.Config{
		Wait:         wait,
		Spin:         spin,
		Servers:      a.Config.Servers,
		Fabrics:      list,
		Devices:      a.Config.Device,
		RequireRDMA:  a.Config.RequireRDMA,
		Secret:       ownSecret,
		Tenant:       a.Config.Tenant,
		Timeout:      a.Config.Timeout,
		OnWait:       a.notice(),
		CacheEntries: cache,
		Logger:       log,
	}, nil
}

// WithClient runs f with a connected client and closes it. An error of Close counts
// only when nothing else went wrong: what f says has happened first, and explains
// more.
func (a *App) WithClient(ctx context.Context, f func(*client.Client) error) error {
	c, err := a.Dial(ctx)
	if err != nil {
		return err
	}
	err = f(c)
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return err
}

// noticeAfter is for how long a command waits for its server silently. A user who
// starts server and client together need not hear of the first moments; a user who
// has mistyped an address should not have to wait for the timeout to learn it.
const noticeAfter = time.Second

// notice returns the function that the library calls each time a try has failed
// to connect. It tells the reason once on standard error, when the command has
// waited for noticeAfter. The library may call it from several goroutines.
func (a *App) notice() func(why error) {
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
			fmt.Fprintf(a.Stderr, "kvclient: waiting for %s: %s\n", strings.Join(a.Config.Servers, ", "), whyWaiting(why))
		}
	}
}

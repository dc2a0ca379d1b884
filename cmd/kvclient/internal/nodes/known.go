package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

const (
	knownEvery = 200 * time.Millisecond // the rest between two tries
	knownSays  = time.Second            // it says so after this time, if it may take as much more: most nodes are known by then
)

// onceKnown does something with nodes, and does it again while that fails because gossip has not told of one of them: clusters are made and enlarged by
// scripts that have just started their nodes. No other error gets better by waiting. It says on stderr for whom it waits, once. After deadline, or when
// ctx ends, the last error stands, which names the nodes, and how long was waited.
func onceKnown[T any](ctx context.Context, a *app.App, deadline time.Time, do func() (T, error)) (T, error) {
	begun, told := time.Now(), false
	for {
		got, err := do()
		if err == nil || !errors.Is(err, client.ErrUnknownNode) {
			return got, err
		}
		now := time.Now()
		if !now.Before(deadline) {
			if waited := now.Sub(begun); waited >= knownEvery {
				err = fmt.Errorf("%w (waited for %v: --wait)", err, waited.Round(100*time.Millisecond))
			}
			return got, err
		}
		if !told && now.Sub(begun) >= knownSays && deadline.Sub(now) >= knownSays {
			told = true
			fmt.Fprintf(a.Stderr, "kvclient: waiting for %v more, at most: %s\n", deadline.Sub(now).Round(100*time.Millisecond), doctor.OneLine(err.Error()))
		}
		select {
		case <-ctx.Done():
			return got, err // the missing node, not that the user gave up
		case <-time.After(knownEvery):
		}
	}
}

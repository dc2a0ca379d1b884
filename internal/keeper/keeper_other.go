//go:build !linux

package keeper

import (
	"context"
	"errors"
	"os"
	"time"
)

// Errors of Start, of which none comes here.
var (
	ErrBusy  = errors.New("keeper: the memory is in use by another process")
	ErrStale = errors.New("keeper: what an earlier process of this node has left cannot be put out of reach of later ones")
)

// MaxKeep bounds how long memory is kept for a node that does not come.
const MaxKeep = 24 * time.Hour

var errSystem = errors.New("keeper: memory outlives its process on Linux alone (memfd): set memory_keep to off")

// A Client is a node's connection to its keeper. There is none on this system.
type Client struct{}

// A Found is what a node that starts has of its keeper.
type Found struct {
	Client *Client
	Left   map[string]int
	Cold   error
}

// Put fails: there is no keeper.
func (*Client) Put(string, int) error { return errSystem }

// Drop fails: there is no keeper.
func (*Client) Drop(string) error { return errSystem }

// Gone is never closed.
func (*Client) Gone() <-chan struct{} { return nil }

// Err says why there is none.
func (*Client) Err() error { return errSystem }

// PID is nobody's.
func (*Client) PID() int { return 0 }

// Close does nothing.
func (*Client) Close() error { return nil }

// Start fails: this system has no memfds.
func Start(context.Context, string, time.Duration, string, ...string) (*Found, error) {
	return nil, errSystem
}

// Forget has nothing to forget.
func Forget(context.Context, string, bool) (*os.File, error) { return nil, nil }

// Serve fails: this system has no memfds.
func Serve(context.Context) error { return errSystem }

//go:build !linux

package keeper

import (
	"context"
	"errors"
	"time"
)

// ErrBusy: another process has the memory.
var ErrBusy = errors.New("keeper: the memory is in use by another process")

// MaxKeep bounds how long memory is kept for a node that does not come.
const MaxKeep = 24 * time.Hour

var errSystem = errors.New("keeper: memory outlives its process on Linux alone (memfd): set memory_keep to off")

// A Client is a node's connection to its keeper. There is none on this system.
type Client struct{}

// Put fails: there is no keeper.
func (*Client) Put(string, int) error { return errSystem }

// Drop fails: there is no keeper.
func (*Client) Drop(string) error { return errSystem }

// Close does nothing.
func (*Client) Close() error { return nil }

// Start fails: this system has no memfds.
func Start(context.Context, string, time.Duration, string, ...string) (*Client, map[string]int, error) {
	return nil, nil, errSystem
}

// Serve fails likewise.
func Serve(context.Context) error { return errSystem }

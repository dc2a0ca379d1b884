package base

import (
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Config is what a client was made with, valid and complete: client.Config, whose
// fields it has one by one, so that the compiler checks the conversion. What the
// fields mean stands there.
//
// One value is shared by all peers of a client, and by their sessions. It is
// not changed.
type Config struct {
	// The servers, and what leads to them.
	Servers     []string
	Fabrics     []rdma.Fabric
	Devices     []string
	RequireRDMA bool
	Secret      []byte
	Tenant      string
	Direct      bool

	// How long calls, and Dial, wait.
	Timeout     time.Duration
	DialTimeout time.Duration
	DialOnce    bool
	OnWait      func(why error)

	// Bounds.
	CacheEntries int
	MaxInflight  int
	MaxWaiting   int
	MaxReads     int
	BufferBytes  int64
	StagingBytes int64
	AsyncWindow  int
	AsyncBytes   int64
	PartsAbove   int64
	PartBytes    int

	// How one session behaves.
	LeaseKeep time.Duration
	Wait      wait.Mode
	Spin      time.Duration

	Logger *slog.Logger // never nil
}

// Builtin makes the fabrics of a program that names none. It is nil unless the program imports
// package client/fabrics, whose init sets it, before main. Nothing else sets it, and Dial alone
// reads it. It is a variable because an import is the only means by which a Go program can
// choose what is linked into it.
var Builtin func() []rdma.Fabric

// FabricsPackage is the import that sets Builtin.
const FabricsPackage = "github.com/rdmakv/rdmakv/client/fabrics"

const (
	// MinReads is the least that Config.MaxReads may be, and that a device must take
	// at a time: one lookup's widest list of READs, and the beat.
	MinReads = 32
	// WindowChunks of a large value are READ with one doorbell; WindowBytes are the
	// most that one list of READs brings, and one buffer holds.
	WindowChunks = 8
	WindowBytes  = WindowChunks * layout.ChunkSize
)
